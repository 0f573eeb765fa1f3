"""The configuration: what is refused and how, and that a file says the same as the object."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from engine_tools import run
from fedpurin.config import Config
from fedpurin.engines import simulate
from fedpurin.engines.inline import InlineWorkers
from fedpurin.errors import ConfigError
from fedpurin.methods import METHODS
from fedpurin.methods.fedavg import FedAvg
from fedpurin.presets import PRESETS
from fedpurin.runs.parsing import read_toml
from fedpurin.runs.run import load_run
from fedpurin.runs.shapes import CONFIG
from fedpurin.sections import SECTIONS
from fedpurin.settings import LARGEST, check_limits, hints
from tiny import tiny_config


def refuse(section: str, key: str, value: Any) -> str:
    owner = "pfedsd" if key in ("distill", "temperature") else "fedpurin"
    with pytest.raises(ConfigError) as caught:
        Config().updated({"run": {"method": owner}}).updated({section: {key: value}})
    message = str(caught.value)
    assert "\n" not in message
    return message


NAN, INF = float("nan"), float("inf")


@pytest.mark.parametrize(
    ("section", "key", "bad"),
    [
        ("method", "tau", [0, 0.0, -0.1, 1.5, NAN, INF, -INF]),
        ("method", "beta", [0, -3, 2.5, NAN, INF]),
        ("method", "distill", [-0.1, NAN, INF]),
        ("method", "temperature", [0, -1.0, NAN]),
        ("data", "alpha", [0, -0.5, NAN, INF]),
        ("data", "train_samples", [0, -1, 1.5]),
        ("data", "test_samples", [0]),
        ("data", "classes_per_client", [0]),
        ("run", "clients", [0, -1, 2.5, NAN]),
        ("run", "rounds", [0]),
        ("run", "seed", [-1, 2**31 + 1]),
        ("run", "participation", [0, 1.1, -0.5, NAN]),
        ("run", "workers", [-1]),
        ("run", "checkpoint_every", [0]),
        ("train", "lr", [0, -0.1, NAN, INF]),
        ("train", "momentum", [-0.1, 1.5]),
        ("train", "weight_decay", [-1e-4]),
        ("train", "epochs", [0]),
        ("train", "batch_size", [0]),
    ],
)
def test_numbers_out_of_range_are_refused_by_name_and_value(section: str, key: str, bad: list[Any]) -> None:
    for value in bad:
        message = refuse(section, key, value)
        assert f"{section}.{key}" in message
        assert str(value) in message


WHOLE = [
    *((section, key, "fedpurin") for section, kind in SECTIONS.items() for key in hints(kind)),
    *(("method", key, name) for name, kind in METHODS.items() for key in hints(kind)),
]


@pytest.mark.parametrize(
    ("section", "key", "method"),
    [
        (section, key, method)
        for section, key, method in WHOLE
        if hints(METHODS[method] if section == "method" else SECTIONS[section])[key] in (int, tuple[int, ...])
    ],
)
@pytest.mark.parametrize("number", [2**53, 99999999999999999999, -(10**30)])
def test_whole_numbers_that_no_file_holds_are_refused_at_the_start(
    section: str, key: str, method: str, number: int
) -> None:
    """Else a run would be computed to its end and could not be read again."""
    base = Config().updated({"run": {"method": method}})
    value = (3, number) if key == "shape" else number
    with pytest.raises(ConfigError, match=rf"{section}\.{key} = {number} must be at (most|least)"):
        base.updated({section: {key: value}})


def test_the_largest_whole_numbers_can_be_read_again(tmp_path: Path) -> None:
    file = tmp_path / "config.toml"
    config = Config().updated({"method": {"beta": LARGEST}, "train": {"batch_size": LARGEST}})
    file.write_text(config.to_toml())
    assert Config.from_stored(read_toml(file, CONFIG)) == config


@pytest.mark.parametrize(
    ("method", "settings"),
    [
        ("pfedsd", {"method__temperature": 1e6}),
        ("fedavg", {"robust__sample_bound": 1e9, "robust__norm_bound": 1e9}),
        ("fedavg", {"train__batch_size": LARGEST, "run__checkpoint_every": LARGEST}),
        ("fedcac", {"method__beta": LARGEST}),
    ],
)
def test_what_is_accepted_can_be_computed(
    method: str, settings: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(simulate, "make_transport", InlineWorkers)
    result = run(tiny_config(method, tmp_path, run__rounds=2, **settings), tmp_path / "run")
    assert result["digest"]
    assert load_run(tmp_path / "run").complete


@pytest.mark.parametrize(
    ("section", "key"), [("method", "temperature"), ("robust", "sample_bound"), ("robust", "norm_bound")]
)
def test_what_could_not_be_computed_is_refused(section: str, key: str) -> None:
    assert "must be at most" in refuse(section, key, 1e30)


def test_the_limits_themselves_are_accepted() -> None:
    config = Config().updated(
        {
            "method": {"tau": 1, "beta": 1},
            "run": {"clients": 1, "rounds": 1, "participation": 1, "seed": 0},
            "train": {"momentum": 0, "weight_decay": 0},
        }
    )
    assert config.method.tau == 1.0
    assert isinstance(config.method.tau, float)


def test_a_refusal_says_what_would_be_accepted() -> None:
    assert refuse("method", "tau", 1.5) == "method.tau = 1.5 must be at most 1"
    assert refuse("method", "tau", 0) == "method.tau = 0.0 must be greater than 0 and at most 1"
    assert "a whole number" in refuse("run", "rounds", "ten")
    assert "true or false" in refuse("method", "hessian", 1)
    assert "a number" in refuse("train", "lr", "fast")
    assert "text" in refuse("model", "name", 8)


@pytest.mark.parametrize(
    ("section", "key", "choices"),
    [
        ("run", "method", METHODS),
        ("run", "engine", ("local", "ray", "flower")),
        ("run", "device", ("auto", "cpu", "cuda", "mps")),
        ("data", "partition", ("dirichlet", "dirichlet-disjoint", "classes", "iid")),
        ("method", "score", ("gradient", "delta", "magnitude", "random")),
        ("method", "gradient_dtype", ("float32", "float16")),
        ("method", "exchange_norm", ("no", "whole", "selected")),
        ("method", "noncritical", ("global", "local")),
        ("method", "average", ("paper", "support")),
        ("wire", "values", ("auto", "float32", "float16", "bfloat16", "int8")),
    ],
)
def test_choices_are_listed_where_a_wrong_one_is_given(
    section: str, key: str, choices: tuple[str, ...]
) -> None:
    message = refuse(section, key, "nonsense")
    assert "'nonsense'" in message
    assert all(choice in message for choice in choices)
    for choice in choices:
        changed = Config().updated({section: {key: choice}})
        assert getattr(getattr(changed, section), key) == choice


def test_signs_are_for_methods_that_send_updates() -> None:
    assert "int8, sign" in refuse("wire", "values", "int4")
    frugal = Config.preset("frugal").updated({"wire": {"values": "sign"}})
    assert frugal.value_type == Config.preset("frugal").value_type == "sign"
    weights = [name for name, kind in METHODS.items() if not kind.sends_updates]
    assert "fedpurin" in weights
    for name in weights:
        with pytest.raises(ConfigError, match=rf"wire.values = 'sign' .* {name} sends .*choose int8 or auto"):
            Config().updated({"run": {"method": name}, "wire": {"values": "sign"}})
        with pytest.raises(ConfigError, match=r"wire.values = 'sign'"):
            frugal.updated({"run": {"method": name}})
        assert frugal.updated({"run": {"method": name}, "wire": {"values": "auto"}}).value_type == "float32"


def test_feedback_is_for_methods_that_keep_no_residuals_of_their_own() -> None:
    lossy = Config().updated({"wire": {"values": "int8", "feedback": True}})
    assert lossy.wire.feedback
    with pytest.raises(
        ConfigError, match=r"wire.feedback = true does nothing with fedfrugal.*leave it false"
    ):
        lossy.updated({"run": {"method": "fedfrugal"}})
    both = lossy.updated({"run": {"method": "fedfrugal"}, "wire": {"feedback": False}})
    assert (both.value_type, both.wire.feedback) == ("int8", False)


def test_unknown_sections_and_keys_list_the_known_ones() -> None:
    with pytest.raises(
        ConfigError, match=r"unknown section \[trian\].*run, data, model, train, wire, robust, method"
    ):
        Config().updated({"trian": {}})
    message = refuse("train", "learning_rate", 0.1)
    assert "train.learning_rate" in message
    assert all(f.name in message for f in fields(SECTIONS["train"]))
    with pytest.raises(ConfigError, match=r"\[run\] must be a table"):
        Config().updated({"run": 3})  # type: ignore[dict-item]


HUGE = [f"[run]\nrounds = {5000 * '9'}", f"[train]\nlr = {400 * '9'}", "[run]\nclients = 1000000000"]
NUL = '[data]\ndir = "a\\u0000b"'


@pytest.mark.parametrize(
    "text", ["run = 3", "[run]\nclient = 3", "[run]\nclients = -1", "[run", "x = nan", *HUGE, NUL]
)
def test_a_bad_file_ends_in_one_line(text: str, tmp_path: Path) -> None:
    file = tmp_path / "c.toml"
    file.write_text(text)
    with pytest.raises(ConfigError) as caught:
        Config.from_toml(file)
    assert "\n" not in str(caught.value)


def test_a_file_as_windows_saves_it_is_read(tmp_path: Path) -> None:
    (tmp_path / "c.toml").write_bytes(b"\xef\xbb\xbf[run]\r\nrounds = 3\r\n")
    assert Config.from_toml(tmp_path / "c.toml").run.rounds == 3


@pytest.mark.parametrize("content", [None, b"\xff\xfe binary"])
def test_an_unreadable_file_is_named(content: bytes | None, tmp_path: Path) -> None:
    file = tmp_path / "c.toml"
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(ConfigError, match=r"c\.toml"):
        Config.from_toml(file)


@pytest.mark.parametrize("preset", PRESETS)
def test_toml_out_and_in_is_the_same_configuration(preset: str) -> None:
    config = Config.preset(preset).updated({"data": {"shape": [3, 8, 8], "dir": 'a "quoted" \\ path'}})
    assert Config.from_text(config.to_toml()) == config
    assert Config().updated(config.as_dict()) == config


def test_text_from_flags_becomes_the_type_of_the_setting() -> None:
    given = {
        "run": {"clients": "7", "participation": "0.5", "share_metrics": "False"},
        "data": {"shape": "[3, 32,32]"},
    }
    config = Config().updated(given)
    assert (config.run.clients, config.run.participation, config.run.share_metrics) == (7, 0.5, False)
    assert config.data.shape == (3, 32, 32)


def test_the_file_changes_its_preset_and_nothing_else() -> None:
    config = Config.from_text('preset = "paper-cifar10"\n[run]\nclients = 5\n')
    paper = Config.preset("paper-cifar10")
    assert config.run.clients == 5
    assert config.run.rounds == paper.run.rounds == 200
    assert (config.data, config.model, config.train, config.method) == (
        paper.data, paper.model, paper.train, paper.method,
    )  # fmt: skip
    with pytest.raises(
        ConfigError, match=r"unknown preset 'papers'.*quickstart, frugal, mini, paper-fashion-mnist"
    ):
        Config.from_text('preset = "papers"')


# The paper's experiment: model, rounds T, beta; N = 20, E = 5, batch 100, 500 and 100 samples, lr 0.1 with
# momentum 0.9, tau = 0.5, exact gradient rounded to float16, no Hessian
@pytest.mark.parametrize(
    ("name", "dataset", "model", "rounds", "beta"),
    [
        ("paper-fashion-mnist", "fashion-mnist", "resnet8", 200, 100),
        ("paper-cifar10", "cifar-10", "resnet8", 200, 100),
        ("paper-cifar100", "cifar-100", "resnet10", 300, 170),
    ],
)
def test_paper_presets_are_the_papers_experiment(
    name: str, dataset: str, model: str, rounds: int, beta: int
) -> None:
    c = Config.preset(name)
    assert (c.data.dataset, c.model.name, c.run.rounds, c.method.beta) == (dataset, model, rounds, beta)
    assert (c.run.clients, c.train.epochs, c.train.batch_size) == (20, 5, 100)
    assert (c.data.train_samples, c.data.test_samples, c.data.partition) == (500, 100, "dirichlet")
    assert (c.train.lr, c.train.momentum, c.train.weight_decay) == (0.1, 0.9, 0.0)
    assert (c.method.tau, c.method.score, c.method.hessian) == (0.5, "gradient", False)
    assert (c.method.gradient_dtype, c.method.exchange_norm) == ("float16", "no")
    assert (c.method.noncritical, c.method.average) == ("global", "paper")


def test_quickstart_is_small_and_needs_no_download() -> None:
    c = Config.preset("quickstart")
    assert (c.data.dataset, c.model.name) == ("fashion-mnist-mini", "cnn")
    assert (c.run.clients, c.run.rounds, c.method.beta) == (20, 15, 8)
    assert (c.data.alpha, c.data.train_samples, c.train.batch_size) == (0.5, 50, 25)
    frugal = Config.preset("frugal")
    assert frugal.run.method == "fedfrugal"
    assert frugal == c.updated({"run": {"method": "fedfrugal"}})


@pytest.mark.parametrize("kind", METHODS.values(), ids=list(METHODS))
def test_every_setting_of_a_method_has_help_and_a_default_that_its_limits_allow(kind: type) -> None:
    check_limits("method", kind())
    for f in fields(kind):
        assert f.metadata["help"], f.name


def test_a_setting_that_the_method_does_not_have_is_refused_with_those_it_has() -> None:
    for name, says in (("separate", "has no settings"), ("fedavg", "accepts silent_after")):
        config = Config().updated({"run": {"method": name}})
        with pytest.raises(ConfigError, match=rf"unknown setting method.tau; {name} {says}"):
            config.updated({"method": {"tau": 0.2}})
    with pytest.raises(ConfigError, match=r"unknown setting method.distill; fedcac accepts beta, tau"):
        Config().updated({"run": {"method": "fedcac"}, "method": {"distill": 0.2}})


def test_another_method_keeps_what_was_set_and_what_the_preset_says() -> None:
    paper = Config.preset("paper-cifar10").updated({"method": {"tau": 0.3}})
    other = paper.updated({"run": {"method": "fedcac"}})
    assert (other.method.tau, other.method.beta) == (0.3, 100)
    through_fedavg = Config.preset("paper-cifar100").updated({"run": {"method": "fedavg"}})
    assert (
        through_fedavg.updated({"run": {"method": "fedpurin"}}).method
        == Config.preset("paper-cifar100").method
    )


def test_a_configuration_of_an_earlier_version_loses_the_settings_of_other_methods() -> None:
    table = Config().as_dict()
    table["method"] |= {"distill": 0.5, "temperature": 3.0}  # version 0.1 wrote all settings of all methods
    assert Config.from_stored(table) == Config()
    with pytest.raises(ConfigError, match="trian"):
        Config.from_stored({**table, "trian": {}})


class OfAnotherPackage(FedAvg):
    name = "elsewhere"


def test_a_method_of_ones_own_is_named_by_its_module_and_class() -> None:
    config = Config().updated({"run": {"method": f"{__name__}:OfAnotherPackage"}})
    assert isinstance(config.method, OfAnotherPackage)
    assert Config.from_text(config.to_toml()) == config


def test_a_setting_of_one_name_is_of_one_kind_in_all_methods() -> None:
    """A comparison passes it to every method that has it, and a preset's stays when the method changes."""
    kinds: dict[str, set[str]] = {}
    for method in METHODS.values():
        for name, hint in hints(method).items():
            kinds.setdefault(name, set()).add(repr(hint))
    assert {name: found for name, found in kinds.items() if len(found) > 1} == {}


def test_what_is_no_method_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"is no method: .* derived from fedpurin.Method"):
        Config().updated({"run": {"method": "fedpurin.config:Config"}})


@pytest.mark.parametrize("name", [-1, ["fedavg"], True])
def test_a_stored_method_that_is_no_name_is_refused(name: object) -> None:
    with pytest.raises(ConfigError, match=r"run\.method must be text, not"):
        Config.from_stored({"run": {"method": name}})


def test_configuration_is_read_without_torch() -> None:
    words = "import sys, fedpurin.config; sys.exit('torch' in sys.modules or 'numpy' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", words], timeout=60).returncode == 0


def test_a_configuration_without_end_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with (tmp_path / "sparse").open("wb") as file:
        file.truncate(2**40)
    for path in (tmp_path / "pipe", tmp_path / "sparse", Path("/dev/zero")):
        with pytest.raises(ConfigError, match=f"cannot read the configuration {path}: .*(device|larger)"):
            Config.from_toml(path)


def test_a_setting_that_is_no_utf_8_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"data.dir = 'x\\udcff' is not UTF-8"):
        Config().updated({"data": {"dir": "x\udcff"}})


def test_a_class_that_lacks_what_a_method_needs_is_refused() -> None:
    with pytest.raises(ConfigError, match="is no whole method: it lacks memory, server, aggregate, reply"):
        Config().updated({"run": {"method": "fedpurin.methods.base:Method"}})
