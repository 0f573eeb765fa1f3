"""Methods from elsewhere: named by path, by entry point, and as the README of examples/methods says."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from types import FunctionType

import pytest

import fedpurin
from examples.methods.fedprox import FedProx
from fedpurin.cli import main
from fedpurin.comparing import Plan
from fedpurin.config import Config
from fedpurin.errors import ConfigError
from fedpurin.methods import Method, find_method, installed_methods, method_names
from fedpurin.report.run_groups import group_runs
from fedpurin.report.style import look
from fedpurin.runs.places import default_path
from fedpurin.runs.run import load_run

README = Path(__file__).parents[1] / "examples" / "methods" / "README.md"
PROX, DITTO = "examples.methods.fedprox:FedProx", "examples.methods.ditto:Ditto"
SMALL = {
    "run": {"clients": 3, "rounds": 2, "engine": "inline"},
    "data": {"train_samples": 20, "test_samples": 10},
    "train": {"epochs": 1},
}


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", README.read_text(), flags=re.S | re.M)


@pytest.fixture
def fresh_names() -> Iterator[None]:
    installed_methods.cache_clear()
    yield
    installed_methods.cache_clear()
    sys.modules.pop("my_methods", None)


def small_flags() -> list[str]:
    return [f"--set={s}.{k}={v}" for s, values in SMALL.items() for k, v in values.items()]


# By path


def test_a_comparison_shows_methods_of_others_as_their_classes_say(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out, page = tmp_path / "all", tmp_path / "report.html"
    methods = f"fedavg,{DITTO},{PROX}"
    flags = [*small_flags(), "--set=method.mu=0.5", "--out", str(out), "--report", str(page)]
    assert main(["compare", "--methods", methods, *flags]) == 0
    assert {path.name for path in out.iterdir() if path.is_dir()} == {"fedavg-s1", "ditto-s1", "fedprox-s1"}
    table = capsys.readouterr().out
    assert re.search(r"^ +FedProx +\d", table, flags=re.M)
    assert re.search(r"^ +Ditto +\d", table, flags=re.M)
    groups = group_runs([load_run(path) for path in sorted(out.iterdir()) if path.is_dir()])
    assert [(g.label, g.color, g.dash, g.marker) for g in groups] == [
        ("FedAvg", "#56b4e9", "dash", "square"),
        ("FedProx", "#8c564b", "dashdot", "diamond-tall"),
        ("Ditto", "#17a2a2", "longdash", "star"),
    ]
    assert groups[1].runs[0].config["method"] == {"mu": 0.5}
    assert "FedProx" in page.read_text()


def test_a_run_of_a_method_named_by_path_has_a_plain_folder(tmp_path: Path) -> None:
    config = Config().updated({"run": {"method": PROX}})
    assert default_path(config, tmp_path).name == "fedprox-fashion-mnist-mini-a0.1-s1"


def test_methods_of_one_name_get_folders_of_their_own(tmp_path: Path) -> None:
    mine = f"{__name__}:FedProx"  # the same class, found elsewhere
    plan = Plan({name: Config().updated({"run": {"method": name}}) for name in (PROX, mine, "fedavg")}, [1])
    names = [path.name for path, _ in plan.runs(tmp_path)]
    assert names == ["examples.methods.fedprox-FedProx-s1", f"{__name__}-FedProx-s1", "fedavg-s1"]


def test_settings_of_others_have_limits_and_help_too(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(ConfigError, match=r"method.mu = -1.0 must be at least 0"):
        Config().updated({"run": {"method": PROX}, "method": {"mu": -1}})
    with pytest.raises(ConfigError, match=r"unknown setting method.tau; .* accepts mu"):
        Config().updated({"run": {"method": PROX}, "method": {"tau": 0.2}})
    assert main(["methods", PROX]) == 0
    assert "strength of the pull" in capsys.readouterr().out


def test_a_method_that_is_not_here_is_shown_by_its_name() -> None:
    assert look("no.such.module:Method").label == "no.such.module:Method"
    assert look(PROX).label == FedProx.label


# By entry point


def test_a_method_of_an_installed_package_is_one_like_ours(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fresh_names: None, capsys: pytest.CaptureFixture[str]
) -> None:
    """What pip would leave in site-packages: the module, and the metadata with the README's entry point."""
    site = tmp_path / "site"
    metadata = site / "my_methods-1.0.dist-info"
    metadata.mkdir(parents=True)
    (site / "my_methods.py").write_text(blocks("python")[0])
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: my-methods\nVersion: 1.0\n")
    target = re.search(r'^slowavg = "(.*)"$', blocks("toml")[0], flags=re.M)
    assert target
    (metadata / "entry_points.txt").write_text(f"[fedpurin.methods]\nslowavg = {target[1]}\n")
    monkeypatch.syspath_prepend(str(site))

    assert "slowavg" in method_names()
    assert find_method("slowavg").__module__ == "my_methods"
    assert main(["methods"]) == 0
    assert "how far the server goes" in capsys.readouterr().out
    config = Config().updated(SMALL).updated({"run": {"method": "slowavg"}, "method": {"step": 0.25}})
    run = fedpurin.run(config, tmp_path / "run")
    assert run.complete
    assert (run.method, run.label) == ("slowavg", "SlowAvg")
    assert (look("slowavg").label, look("slowavg").color) == ("SlowAvg", "#444444")


def test_a_name_of_ours_is_not_taken_over(monkeypatch: pytest.MonkeyPatch, fresh_names: None) -> None:
    monkeypatch.setattr("fedpurin.methods.installed_methods", lambda: {"fedavg": PROX})
    assert find_method("fedavg").__module__ == "fedpurin.methods.fedavg"
    assert method_names().count("fedavg") == 1


def test_an_entry_point_that_names_no_method_is_refused(
    monkeypatch: pytest.MonkeyPatch, fresh_names: None
) -> None:
    monkeypatch.setattr("fedpurin.methods.installed_methods", lambda: {"broken": "fedpurin.comparing:Plan"})
    with pytest.raises(ConfigError, match=r"fedpurin.comparing:Plan must be a class derived from"):
        find_method("broken")


# The README


def test_the_readmes_code_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fresh_names: None) -> None:
    first, second, imports = blocks("python")
    (tmp_path / "my_methods.py").write_text(first)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    exec(compile(second, str(README), "exec"), {})
    assert (tmp_path / "runs/slow/result.json").exists()
    exec(compile(imports, str(README), "exec"), {})


def test_the_readmes_commands_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """With less to do, and elsewhere."""
    lines = [line for block in blocks("sh") for line in block.splitlines()]
    assert len(lines) == 2
    monkeypatch.chdir(tmp_path)
    for line in lines:
        program, *words = line.split()
        assert program == "fedpurin"
        assert main([*words, *small_flags()]) == 0
    (one,) = (tmp_path / "runs").glob("fedprox-*")
    assert load_run(one).label == "FedProx"
    assert (tmp_path / "runs/compare/ditto-s1").is_dir()


def test_the_readmes_table_has_every_hook() -> None:
    kinds = (FunctionType, classmethod)
    hooks = [name for name, value in vars(Method).items() if isinstance(value, kinds) and name[0] != "_"]
    listed = re.findall(r"^\| `(\w+)` \|", README.read_text(), flags=re.M)
    assert sorted(listed) == sorted(hooks)
