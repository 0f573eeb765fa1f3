"""When two runs are of one setting, and when they are the same cell."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest
import tomli_w
from rich.console import Console

from fedpurin.cli.show import results_table
from fedpurin.config import Config
from fedpurin.runs.same_setting import (
    cell_key,
    config_of,
    describe_setting,
    differences,
    labels,
    seeds,
    setting_key,
)

OLD_FLAT_METHOD = {  # what config.toml and the store held for every method before settings moved to methods
    "tau": 0.5, "beta": 30, "score": "gradient", "hessian": False, "gradient_dtype": "float16",
    "exchange_norm": "no", "noncritical": "global", "average": "paper", "floor": 1e-10, "distill": 0.5,
    "temperature": 3.0,
}  # fmt: skip


def table(name: str = "fedpurin", /, **sections: dict[str, Any]) -> dict[str, Any]:
    config = Config().as_dict() | {"method": dict(OLD_FLAT_METHOD)}
    config["run"]["method"] = name
    for section, changes in sections.items():
        config[section] |= changes
    return config


@pytest.mark.parametrize(
    "changes",
    [
        {"run": {"seed": 2}},
        {"run": {"split_seed": 7, "model_seed": 8, "order_seed": 9}},
        {"run": {"engine": "ray", "workers": 3, "device": "cuda", "share_metrics": False}},
        {"run": {"checkpoint_every": 9}},
        {"data": {"dir": "/elsewhere"}},
        {"method": {"temperature": 9.0}},  # FedPURIN has no teacher
        {"wire": {"feedback": True}},  # float32 leaves no rounding error
    ],
)
def test_seeds_and_where_a_run_was_made_do_not_make_another_setting(changes: dict[str, Any]) -> None:
    assert setting_key(table(**changes)) == setting_key(table())


@pytest.mark.parametrize(
    "changes",
    [
        {"method": {"tau": 0.2}},
        {"method": {"beta": 10}},
        {"data": {"alpha": 0.5}},
        {"data": {"dataset": "cifar-10"}},
        {"data": {"partition": "dirichlet-disjoint"}},
        {"run": {"rounds": 60}},
        {"run": {"participation": 0.5}},
        {"train": {"lr": 0.01}},
        {"wire": {"values": "int8"}},
    ],
)
def test_what_decides_the_numbers_makes_another_setting(changes: dict[str, Any]) -> None:
    assert setting_key(table(**changes)) != setting_key(table())


def test_settings_of_other_methods_do_not_count() -> None:
    other = {"tau": 0.2, "beta": 1, "score": "delta"}
    assert setting_key(table("fedavg", method=other)) == setting_key(table("fedavg"))
    assert setting_key(table("fedcac", method={"tau": 0.2})) != setting_key(table("fedcac"))


def test_every_setting_of_a_method_that_is_not_installed_counts() -> None:
    assert setting_key(table("theirs:Method", method={"tau": 0.2})) != setting_key(table("theirs:Method"))


def test_a_setting_that_came_later_has_its_default_in_old_files() -> None:
    old = table()
    del old["method"]["floor"]
    del old["wire"]["feedback"]
    assert setting_key(old) == setting_key(table())
    assert cell_key(old) == cell_key(table())


def test_without_defaults_only_what_was_changed_is_said() -> None:
    usual = Config().as_dict()
    tables = [{**usual, "method": {**usual["method"], **apart}} for apart in ({}, {"tau": 0.2}, {"beta": 7})]
    assert labels(tables, defaults=False) == ["FedPURIN", "FedPURIN (tau 0.2)", "FedPURIN (beta 7)"]
    assert labels(tables)[0] == f"FedPURIN (beta {usual['method']['beta']}, tau 0.5)"


def test_a_default_that_changed_stays_in_old_files_what_it_was() -> None:
    settings = {"own": 1.0, "own_fades": False, "mix": 0.0, "fade": 0.9, "rest": 0.0}
    old, then = table("fedfrugal", method={"fade": 0.9}), table("fedfrugal", method=settings)
    now = table("fedfrugal", method={"own_fades": True, "mix": 1.0, "fade": 0.95, "rest": 0.25})
    assert setting_key(old) == setting_key(then) != setting_key(now)
    assert cell_key(old) == cell_key(then) != cell_key(now)
    assert differences([old, then]) == []
    for config in (Config.from_stored(old), config_of(old)):
        assert {name: getattr(config.method, name) for name in settings} == settings
    assert cell_key(Config().updated({"run": {"method": "fedfrugal"}})) == cell_key(now)


@pytest.mark.parametrize(
    ("method", "meant"),
    [("fedpurin", "float32"), ("fedavg", "float32"), ("fedfrugal", "sign"), ("theirs:Method", "float32")],
)
def test_auto_and_the_type_that_it_stands_for_are_one_setting(method: str, meant: str) -> None:
    auto, named = (table(method, wire={"values": values}) for values in ("auto", meant))
    assert setting_key(auto) == setting_key(named)
    assert cell_key(auto) == cell_key(named)
    without = table(method)
    del without["wire"]["values"]
    assert (setting_key(without), cell_key(without)) == (setting_key(auto), cell_key(auto))
    assert differences([auto, named, without]) == []
    other = table(method, wire={"values": "int8"})
    assert setting_key(other) != setting_key(auto)
    assert cell_key(other) != cell_key(auto)
    assert describe_setting(auto, ["wire.values"]) == f" (values {meant})"


def test_an_old_file_and_its_configuration_have_one_key() -> None:
    for method in ("fedavg", "pfedsd", "fedcac", "fedpurin"):
        assert cell_key(config_of(table(method))) == cell_key(table(method))


def test_a_seed_of_its_own_makes_another_cell_unless_it_is_the_common_one() -> None:
    assert cell_key(table(run={"split_seed": 1})) == cell_key(table())  # run.seed is 1 by default
    assert cell_key(table(run={"split_seed": 2})) != cell_key(table())
    assert seeds(table(run={"seed": 3, "model_seed": 5})) == {"split": 3, "model": 5, "order": 3}


def test_differences_are_named_with_the_methods_own_first() -> None:
    tables = [table(), table(method={"tau": 0.2}, data={"alpha": 0.5})]
    assert differences(tables) == ["method.tau", "data.alpha"]
    assert describe_setting(tables[1], differences(tables)) == " (tau 0.2, alpha 0.5)"
    assert describe_setting(tables[1], differences([table(), table(run={"seed": 2})])) == ""


def write_run(path: Path, config: dict[str, Any], accuracy: float) -> Path:
    """One round of two clients, unfinished."""
    config["run"]["clients"] = 2
    path.mkdir()
    (path / "config.toml").write_text(tomli_w.dumps(config))
    values = {"accuracy": [accuracy, accuracy], "loss": [1.0, 1.0]}
    line = {"round": 1, "clients": [0, 1], "trained": values, "upload": values}
    (path / "metrics.jsonl").write_text(json.dumps(line) + "\n")
    return path


def shown(paths: list[Path]) -> str:
    out = io.StringIO()
    Console(file=out, width=140).print(results_table(paths))
    return out.getvalue()


def test_show_pools_seeds_and_nothing_else(tmp_path: Path) -> None:
    runs = [
        write_run(tmp_path / "a", table(run={"seed": 1}), 0.5),
        write_run(tmp_path / "b", table(run={"seed": 2}), 0.7),
        write_run(tmp_path / "c", table(method={"tau": 0.2}), 0.9),
        write_run(tmp_path / "d", table(data={"alpha": 0.5}), 0.1),
    ]
    text = shown(runs)
    rows = [line.split() for line in text.splitlines() if line.lstrip().startswith("FedPURIN")]
    assert [" ".join(row[:5]) for row in rows] == [
        "FedPURIN (tau 0.5, alpha 0.1)", "FedPURIN (tau 0.2, alpha 0.1)", "FedPURIN (tau 0.5, alpha 0.5)",
    ]  # fmt: skip
    assert "60.0 ± 14.1" in text  # mean and deviation of 50 and 70 %
    assert "90.0" in text
    assert "10.0" in text
    title = text.splitlines()[0]
    assert "fashion-mnist-mini" in title
    assert "alpha" not in title, "the rows differ in it"
