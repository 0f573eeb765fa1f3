"""With validation samples each client keeps its best personal model, and ends with it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from engine_tools import Stop, StopAt, assert_same_runs, run, run_until
from fedpurin.cli.show import results_table
from fedpurin.engines.simulate import resume_run
from fedpurin.engines.states import best_in_use, no_best_yet, with_better
from fedpurin.errors import CorruptError
from fedpurin.layout import write_parameters
from fedpurin.meta import Meta, Validation
from fedpurin.methods import METHODS
from fedpurin.report.run_groups import group_runs
from fedpurin.report.summary import results
from fedpurin.runs.run import load_run
from fedpurin.train import Score, evaluate
from tiny import Federation, tiny_config, tiny_job, tiny_model

ROUNDS = 5


def test_of_the_rounds_with_most_right_answers_the_last_is_kept() -> None:
    """3, 5, 4, 5, 4 of 6 right: round 4, which had as many as round 2."""
    model = tiny_model((1, 4, 4), 3)
    state = {"weights": torch.zeros(135), "buffer.2.running_mean": torch.zeros(6)}
    state |= no_best_yet(state)
    kept = []
    for t, correct in enumerate((3, 5, 4, 5, 4), start=1):
        write_parameters(model, torch.full((135,), float(t)))
        model.get_buffer("2.running_mean").fill_(10.0 * t)
        state = with_better(state, model, Score(correct, 6, 0.0), t)
        kept.append(int(state["best.round"]))
    assert kept == [1, 2, 2, 4, 4]
    final = best_in_use(state)
    assert torch.equal(final["weights"], torch.full((135,), 4.0))
    assert torch.equal(final["buffer.2.running_mean"], torch.full((6,), 40.0))


def test_a_model_without_a_right_answer_is_better_than_none() -> None:
    model = tiny_model((1, 4, 4), 3)
    state = {"weights": torch.zeros(135)}
    state |= no_best_yet(state)
    assert best_in_use(state)["weights"] is state["weights"]  # never trained: as it was
    state = with_better(state, model, Score(0, 6, 0.0), 7)
    assert int(state["best.round"]) == 7


@pytest.mark.parametrize("name", METHODS)
def test_the_final_model_is_the_trained_one_of_the_best_round(name: str) -> None:
    """Trained models are taken from the site's model as it is evaluated, and scored here once more."""
    fed = Federation(tiny_job(name, data__validation=0.4, train__lr=0.3))
    seen: dict[tuple[int, int], tuple[int, dict[str, torch.Tensor]]] = {}
    for t in range(1, ROUNDS + 1):
        for client in range(4):
            held = fed.job.client_data(client).for_validation()
            assert held is not None
            original = fed.site._validate

            def noting(t: int, state: Any, data: Any, held: Any = held, client: int = client) -> Any:
                model = fed.site.model
                named = {k: v.detach().clone() for k, v in model.state_dict().items()}
                seen[t, client] = evaluate(model, held, "cpu").correct, named
                return type(fed.site)._validate(fed.site, t, state, data)

            fed.site._validate = noting  # type: ignore[method-assign]
            work = fed.work(client, t)
            fed.site._validate = original  # type: ignore[method-assign]
            if client == 0:
                fed.hub.begin(t, [0, 1, 2, 3])
            fed.hub.accept(client, work.upload, work.meta)
            fed.states[client] = work.state
        record = fed.hub.close(t)
        assert record["validation"]["accuracy"] == [
            seen[t, c][0] / len(fed.job.validation[c]) for c in range(4)
        ]
    chosen = []
    for client in range(4):
        t = max(range(1, ROUNDS + 1), key=lambda t: (seen[t, client][0], t))
        chosen.append(t)
        final = fed.site.finish(
            client, ROUNDS, fed.reply(client), fed.states[client], fed.job.client_data(client)
        ).state
        parameters = [seen[t, client][1][layer.name].flatten() for layer in fed.job.layout.layers]
        assert torch.equal(final["weights"], torch.cat(parameters))
        assert torch.equal(final["buffer.2.running_mean"], seen[t, client][1]["2.running_mean"])
    assert record["validation"]["best_round"] == chosen


def test_a_lost_upload_leaves_no_trace_of_its_round() -> None:
    fed = Federation(tiny_job("fedavg", data__validation=0.4))
    fed.round(1)
    before = fed.states[2]
    fed.round(2, lost=(2,))
    assert fed.states[2] is before
    assert int(before["best.round"]) == 1


# Whole runs

LOSSY = {"wire__values": "int8", "wire__feedback": True}


@pytest.mark.usefixtures("in_process")
@pytest.mark.parametrize(
    ("name", "settings"), [("fedpurin", LOSSY), ("fedfrugal", {"run__participation": 0.5})]
)
def test_a_stopped_run_ends_with_the_same_best_models(
    name: str, settings: dict[str, Any], tmp_path: Path
) -> None:
    config = tiny_config(name, tmp_path, run__rounds=ROUNDS, data__validation=0.4, **settings)
    run(config, tmp_path / "whole")
    run_until(config, tmp_path / "stopped", 2, after_client=1)
    with pytest.raises(Stop):
        resume_run(tmp_path / "stopped", StopAt(4))
    resume_run(tmp_path / "stopped")
    assert_same_runs(tmp_path / "whole", tmp_path / "stopped")


def test_workers_keep_the_same_best_models_as_one_process(tmp_path: Path) -> None:
    config = tiny_config("fedpurin", tmp_path, run__rounds=3, data__validation=0.4, run__workers=2)
    run(config, tmp_path / "local")
    run(config.updated({"run": {"engine": "inline"}}), tmp_path / "inline")
    assert_same_runs(tmp_path / "local", tmp_path / "inline")


@pytest.mark.usefixtures("in_process")
def test_the_summary_tells_the_test_accuracy_of_the_chosen_rounds(tmp_path: Path) -> None:
    """Worked out from the lines of metrics.jsonl by hand."""
    result = run(tiny_config("fedavg", tmp_path, run__rounds=ROUNDS, data__validation=0.4), tmp_path / "r")
    lines = [json.loads(line) for line in (tmp_path / "r" / "metrics.jsonl").read_text().splitlines()][
        :ROUNDS
    ]
    tests, rounds = [], []
    for client in range(4):
        scores = [line["validation"]["accuracy"][client] for line in lines]
        t = max(t for t in range(ROUNDS) if scores[t] == max(scores))
        rounds.append(t + 1)
        tests.append(lines[t]["trained"]["accuracy"][client])
    assert result["by_validation"]["rounds"] == rounds
    assert result["by_validation"]["accuracy"] == pytest.approx(np.mean(tests))
    assert result["by_validation"]["worst_client"] == min(tests)
    assert load_run(tmp_path / "r").derive_summary()["by_validation"] == result["by_validation"]


@pytest.mark.usefixtures("in_process")
def test_a_client_whose_best_round_is_one_of_which_it_told_nothing_does_not_count(tmp_path: Path) -> None:
    """It may lie; what the others reached is said all the same, and is a number."""
    run(tiny_config("fedavg", tmp_path, run__rounds=3, data__validation=0.4), tmp_path / "r")
    (tmp_path / "r" / "result.json").unlink()
    log = tmp_path / "r" / "metrics.jsonl"
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    lines[0]["trained"]["accuracy"][1] = None
    lines[2]["validation"]["best_round"][:] = [1, 1, 2, 3]
    log.write_text("".join(json.dumps(line) + "\n" for line in lines))
    told = load_run(tmp_path / "r").derive_summary()["by_validation"]
    assert told["rounds"] == [1, 0, 2, 3]
    trained = [lines[t]["trained"]["accuracy"][client] for client, t in ((0, 0), (2, 1), (3, 2))]
    assert told["accuracy"] == pytest.approx(np.mean(trained))
    assert told["worst_client"] == min(trained)


@pytest.mark.usefixtures("in_process")
def test_without_metrics_nothing_of_it_is_sent_and_the_models_are_the_same(tmp_path: Path) -> None:
    config = tiny_config("fedavg", tmp_path, run__rounds=3, data__validation=0.4)
    run(config, tmp_path / "told")
    result = run(config.updated({"run": {"share_metrics": False}}), tmp_path / "untold")
    assert "by_validation" not in result
    first = json.loads((tmp_path / "untold" / "ledger.jsonl").read_text().splitlines()[0])
    assert first["bytes"]["meta"] == 4  # the number of samples
    for model in sorted((tmp_path / "told" / "models").iterdir()):
        assert model.read_bytes() == (tmp_path / "untold" / "models" / model.name).read_bytes()


@pytest.mark.usefixtures("in_process")
def test_tables_show_it_where_there_is_validation_and_only_there(tmp_path: Path) -> None:
    for share in (0.0, 0.4):
        config = tiny_config("fedavg", tmp_path, run__rounds=2, data__validation=share)
        run(config, tmp_path / f"{share}")
    with_it, without = (load_run(tmp_path / name) for name in ("0.4", "0.0"))
    shown = f"{100 * with_it.summary['by_validation']['accuracy']:.1f}"
    table = results_table([with_it.path])
    assert list(next(c for c in table.columns if c.header == "by valid.").cells) == [shown]
    assert "by valid." not in [c.header for c in results_table([without.path]).columns]
    page = results(group_runs([with_it]), "trained")
    cells = {column.title: page.rows[0].cells[column.key] for column in page.columns}
    assert cells["By validation"] == f"{100 * with_it.summary['by_validation']['accuracy']:.2f}"
    assert "By validation" not in [c.title for c in results(group_runs([without]), "trained").columns]


# Beside the upload


def test_what_is_told_of_validation_survives_its_bytes() -> None:
    score = Score(3, 5, 1.25)
    meta = Meta(17, 2, score, score, score, (1.0, 0.5, 0.25), Validation(Score(4, 6, 0.5), 9))
    assert Meta.from_bytes(meta.to_bytes()) == meta
    assert len(meta.to_bytes()) == 100
    assert len(meta.to_bytes(share_metrics=False)) == 4


@pytest.mark.parametrize(
    ("told", "message"),
    [
        (Validation(Score(7, 6, 0.5), 9), "7 correct answers of 6"),
        (Validation(Score(0, 0, 0.0), 1), "validation without samples"),
    ],
)
def test_an_impossible_validation_is_refused(told: Validation, message: str) -> None:
    score = Score(3, 5, 1.25)
    with pytest.raises(CorruptError, match=message):
        Meta.from_bytes(Meta(17, 2, score, score, score, (1.0, 0.5, 0.25), told).to_bytes())
