"""Runs from Python objects: any module, any form of data, and results that come back as the user's own."""

from __future__ import annotations

import functools
import re
import sys
import types
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import fedpurin
from engine_tools import Stop, StopAt
from fedpurin.engines.driver import Watcher
from fedpurin.errors import ConfigError, DataError, MissingExtraError, ModelError, RunError

quick = functools.partial(fedpurin.run, rounds=2, epochs=1, batch_size=10, engine="inline", lr=0.05)


def classified(count: int = 3, features: int = 4, classes: int = 3) -> dict[str, tuple[Any, Any]]:
    """Clients of 20, 30, ... samples."""
    draw = np.random.default_rng(0)
    sizes = [20 + 10 * i for i in range(count)]
    return {f"c{i}": (draw.normal(size=(n, features)), np.arange(n) % classes) for i, n in enumerate(sizes)}


def net(inputs: int = 4, outputs: int = 3) -> nn.Module:
    return nn.Sequential(nn.Linear(inputs, 5), nn.BatchNorm1d(5), nn.ReLU(), nn.Linear(5, outputs))


def test_clients_of_different_sizes_train_and_their_models_come_back(tmp_path: Path) -> None:
    run = quick(model=net, data=classified(), out=tmp_path / "run")
    assert run.names == ["c0", "c1", "c2"]
    model = run.client("c1").model()
    assert isinstance(model, nn.Sequential)
    assert not model.training
    test = fedpurin.clients(classified()).parts[1]
    right = (model(test.test_x).argmax(1) == test.test_y).float().mean()
    assert float(right) == pytest.approx(run.client(1).accuracy("merged")[-1])
    again = fedpurin.load(run.path).client("c1")
    with pytest.raises(ModelError, match="pass it again"):
        again.model()
    assert torch.equal(again.model(net)(test.test_x), model(test.test_x))
    with pytest.raises(ModelError, match="its parameters are others"):
        again.model(lambda: net(outputs=4))


def test_the_same_bytes_inline_and_in_forked_processes(tmp_path: Path) -> None:
    """A lambda and a closure have no name that another program could import."""
    torch.randn(300, 300) @ torch.randn(300, 300)  # torch's threads have been at work before the fork
    threads, noise = torch.get_num_threads(), torch.random.get_rng_state()
    options: dict[str, Any] = {"model": lambda: net(), "data": classified(), "loss": lambda o, y: loss(o, y)}

    def loss(output: Tensor, y: Tensor) -> Tensor:
        return nn.functional.cross_entropy(output, y, label_smoothing=0.1)

    inline = quick(out=tmp_path / "inline", **options)
    local = quick(**options, out=tmp_path / "local", **{"engine": "local", "workers": 2})
    assert inline.summary["digest"] == local.summary["digest"]
    assert torch.get_num_threads() == threads
    assert torch.equal(torch.random.get_rng_state(), noise)


@pytest.mark.slow
def test_ray_gets_the_objects_too(tmp_path: Path) -> None:
    options: dict[str, Any] = {"model": lambda: net(), "data": classified()}
    inline = quick(out=tmp_path / "inline", **options)
    ray = quick(out=tmp_path / "ray", **options, **{"engine": "ray", "workers": 2})
    assert inline.summary["digest"] == ray.summary["digest"]


def test_a_module_is_copied_and_left_alone(tmp_path: Path) -> None:
    module = net()
    before = {k: v.clone() for k, v in module.state_dict().items()}
    run = quick(model=module, data=classified(), out=tmp_path / "run")
    assert all(torch.equal(v, before[k]) for k, v in module.state_dict().items())
    assert run.client(0).model() is not module


def test_a_run_that_was_interrupted_goes_on_with_the_same_call(tmp_path: Path) -> None:
    data = classified()
    with pytest.raises(Stop):
        quick(model=net, data=data, out=tmp_path / "run", watcher=StopAt(2))
    with pytest.raises(ConfigError, match=r"make the same call of fedpurin\.run again"):
        fedpurin.resume(tmp_path / "run")
    changed = data | {"c1": (data["c1"][0] + 1, data["c1"][1])}
    with pytest.raises(RunError, match="another run"):
        quick(model=net, data=changed, out=tmp_path / "run")
    with pytest.raises(RunError, match="another run"):
        quick(model=net, data=data, out=tmp_path / "run", method="fedavg")
    continued = quick(model=net, data=data, out=tmp_path / "run")
    whole = quick(model=net, data=data, out=tmp_path / "whole")
    assert continued.summary["digest"] == whole.summary["digest"]
    assert quick(model=net, data=data, out=tmp_path / "run").summary == continued.summary


def test_regression_is_measured_by_the_variance_it_explains(tmp_path: Path) -> None:
    draw = np.random.default_rng(0)
    data = {}
    for client in range(2):
        x = draw.normal(size=(60, 3)).astype(np.float32)
        data[client] = (x, x @ np.array([1.0, -2.0, client]))
    run = quick(model=lambda: nn.Linear(3, 1), data=data, out=tmp_path / "run", method="separate", rounds=4)
    assert run.setting("train", "loss") == "mse"
    model, part = run.client(1).model(), fedpurin.clients(data).parts[1]
    with torch.no_grad():
        error = (model(part.test_x)[:, 0] - part.test_y).square().sum()
    r2 = 1 - error / (part.test_y - part.test_y.mean()).square().sum()
    assert run.client(1).accuracy("merged")[-1] == pytest.approx(float(r2), abs=1e-5)
    assert float(r2) > 0.9
    assert re.search(r"R² (0\.9|1\.0)", str(run))


def test_several_labels_per_sample(tmp_path: Path) -> None:
    draw = np.random.default_rng(0)
    x = draw.normal(size=(2, 80, 4)).astype(np.float32)
    data = [(rows, (rows[:, :2] > 0).astype(np.float32)) for rows in x]
    run = quick(model=lambda: nn.Linear(4, 2), data=data, out=tmp_path / "run", rounds=4, method="fedavg")
    assert run.setting("train", "loss") == "bce"
    assert run.summary["accuracy"]["trained"]["last"] > 0.85


class Words(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.EmbeddingBag(10, 4)
        self.head = nn.Linear(4, 2)

    def forward(self, tokens: Tensor) -> Tensor:
        assert tokens.dtype == torch.int64
        out: Tensor = self.head(self.embedding(tokens))
        return out


def test_tokens_stay_whole_numbers(tmp_path: Path) -> None:
    draw = np.random.default_rng(0)
    tokens = draw.integers(0, 10, size=(2, 40, 6), dtype=np.int32)
    data = [(rows, (rows < 5).mean(1) > 0.5) for rows in tokens]
    run = quick(model=Words, data=data, out=tmp_path / "run", method="fedbn")
    assert run.classes == ["0", "1"]


def test_loss_metric_and_optimiser_of_ones_own(tmp_path: Path) -> None:
    made = []

    def optimiser(parameters: Any) -> torch.optim.Optimizer:
        made.append(torch.optim.RMSprop(parameters, lr=0.01))
        return made[-1]

    run = quick(
        model=net, data=classified(), out=tmp_path / "run", metric=lambda o, y: -2.5, optimiser=optimiser
    )
    assert len(made) == 2 * 3  # a new one in each round at each client
    assert (run.accuracy("trained") == -2.5).all()
    assert "metric -2.500" in str(run)
    by_name = quick(model=net, data=classified(), out=tmp_path / "adam", optimiser="adam")
    assert by_name.setting("train", "optimiser") == "adam"


def test_a_metric_without_a_number_is_said(tmp_path: Path) -> None:
    with pytest.raises(fedpurin.FedpurinError, match="the metric is nan"):
        quick(model=net, data=classified(), out=tmp_path / "run", metric=lambda o, y: float("nan"))


def test_a_comparison_with_methods_of_the_notebook(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from fedpurin.methods.fedavg import FedAvg
    from fedpurin.methods.fedpurin import FedPURIN

    class Mine(FedAvg):
        label = "Mine"

    Mine.__module__, Mine.__qualname__ = "__main__", "Mine"
    monkeypatch.setattr(sys.modules["__main__"], "Mine", Mine, raising=False)
    runs = fedpurin.compare(
        model=net,
        data=classified(),
        methods=["fedavg", Mine, FedPURIN(tau=0.2), FedPURIN(tau=0.4)],
        rounds=2,
        epochs=1,
        engine="inline",
        out=tmp_path / "all",
    )
    assert [run.label for run in runs] == ["FedAvg", "Mine", "FedPURIN", "FedPURIN"]
    assert runs["fedpurin"].setting("method", "tau") == 0.2
    assert runs[0].accuracy("trained").tolist() == runs["Mine"].accuracy("trained").tolist()
    frame = runs.to_dataframe()
    assert len(frame) == 4 * 2 * 3 * 3  # runs, rounds, clients, moments
    last = frame[(frame.method == "fedavg") & (frame["round"] == 2) & (frame.moment == "trained")]
    assert last.accuracy.mean() == pytest.approx(runs[0].summary["accuracy"]["trained"]["last"])
    assert "data:image/png" in runs._repr_html_()
    assert "FedAvg" in runs.report(tmp_path / "report.html").read_text()


def test_beta_is_half_of_the_rounds_unless_said(tmp_path: Path) -> None:
    run = quick(model=net, data=classified(1), out=tmp_path / "a", rounds=4)
    assert run.setting("method", "beta") == 2
    told = quick(
        model=net, data=classified(1), out=tmp_path / "b", settings={"method": {"beta": 1, "tau": 0.1}}
    )
    assert (told.setting("method", "beta"), told.setting("method", "tau")) == (1, 0.1)


def test_without_pandas_the_rows_remain(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = quick(model=net, data=classified(1), out=tmp_path / "run", rounds=1)
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(MissingExtraError, match=r"fedpurin\[pandas\]"):
        run.to_dataframe()
    assert run.rows()[0]["client"] == "c0"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"model": lambda: net(outputs=2)}, "gives 2 numbers for a sample, but there are 3 classes, 0 to 2"),
        ({"model": lambda: net(inputs=7)}, "fails with inputs"),
        ({"model": lambda: 3}, "returned int"),
        ({"model": lambda: 1 / 0}, "ZeroDivisionError"),
        ({"loss": lambda o, y: (o.argmax(1) - y).float()}, "one number for a mini-batch"),
        ({"loss": "mse"}, "its target has"),
        ({"engine": "flower"}, "takes no Python objects"),
        ({"method": "pfedsd", "loss": lambda o, y: o.sum()}, "probabilities of classes"),
        ({"method": 3}, "is no method"),
        ({"data": [(np.ones((4, 4), int), [0, 1, 2, 0])]}, "plain features should be floats"),
    ],
)
def test_what_does_not_fit_is_refused_before_the_run(
    tmp_path: Path, change: dict[str, Any], message: str
) -> None:
    options = {"model": net, "data": classified(), "out": tmp_path / "run"} | change
    with pytest.raises(fedpurin.FedpurinError, match=message):
        quick(**options)
    assert not (tmp_path / "run").exists()


def test_progress_in_a_notebook(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shown: list[str] = []

    class Handle:
        def update(self, page: str) -> None:
            shown.append(page)

    display = types.ModuleType("IPython.display")
    display.HTML = str  # type: ignore[attr-defined]
    display.display = lambda page, display_id: shown.append(page) or Handle()  # type: ignore[attr-defined]
    kernel = types.SimpleNamespace(kernel=object())
    ipython = types.SimpleNamespace(get_ipython=lambda: kernel, display=display)
    monkeypatch.setitem(sys.modules, "IPython", ipython)  # type: ignore[arg-type]
    monkeypatch.setitem(sys.modules, "IPython.display", display)
    quick(model=net, data=classified(), out=tmp_path / "run")
    assert "starting" in shown[0]
    assert 'value="2" max="2"' in shown[-1]
    assert "accuracy" in shown[-1]
    before = len(shown)
    quick(model=net, data=classified(), out=tmp_path / "quiet", progress=False)
    quick(model=net, data=classified(), out=tmp_path / "watched", watcher=Watcher())
    assert len(shown) == before


def test_plain_lines_where_progress_is_asked_for(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    quick(model=net, data=classified(1), out=tmp_path / "run", progress=True)
    assert "round   2/2" in capsys.readouterr().out
    quick(model=net, data=classified(1), out=tmp_path / "quiet")
    assert capsys.readouterr().out == ""


def test_a_function_of_the_running_program_can_be_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.modules["__main__"], "my_net", net, raising=False)
    for engine in ("inline", "local"):
        quick(model="__main__:my_net", data=classified(), out=tmp_path / engine, engine=engine)
    with pytest.raises(fedpurin.FedpurinError, match="into a file of its own"):
        quick(model="__main__:no_net", data=classified(), out=tmp_path / "none")


def test_the_public_names_can_be_seen() -> None:
    assert {"run", "compare", "clients", "Clients", "Comparison", "Run", "METHODS"} <= set(dir(fedpurin))
    assert set(fedpurin.__all__) <= set(dir(fedpurin))
    assert all(getattr(fedpurin, name) is not None for name in fedpurin.__all__)
    with pytest.raises(DataError):
        fedpurin.clients({})
