"""Who is compared with whom, over which rounds, and at which moment the report opens."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from make_run import Spec, make_run
from test_page import table_of, text_of

from fedpurin.report import figure, write_report
from fedpurin.report.chart import Chart
from fedpurin.report.charts import all_charts
from fedpurin.report.figures import as_groups
from fedpurin.report.run_groups import group_runs, last_window, tasks
from fedpurin.report.series import gains, moments_of, paper_like
from fedpurin.runs.run import load_run
from fedpurin.runs.same_setting import setting_key

RISING = (0.30, 0.50, 0.60, 0.66, 0.70, 0.72)  # starts low, ends highest
FALLING = (0.78, 0.74, 0.72, 0.70, 0.68, 0.66)  # starts highest, ends lowest


def sentence(runs: Path, chart: str, **choices: str) -> str:
    built = next(definition for definition in all_charts() if definition.id == chart).build(as_groups(runs))
    assert isinstance(built, Chart)
    first = {control.name: next(iter(control.options)) for control in built.controls}
    return built.view(**{**first, **choices}).sentence.replace("\u00a0", " ")


def test_the_last_rounds_of_a_short_run_leave_out_its_start() -> None:
    assert [last_window(rounds) for rounds in (1, 2, 3, 6, 10, 29, 30, 300)] == [1, 1, 1, 2, 3, 9, 10, 10]


def test_what_ends_highest_is_judged_by_the_end(tmp_path: Path) -> None:
    make_run(tmp_path / "a", Spec("fedavg", clients=3, rounds=6, curve=RISING))
    make_run(tmp_path / "b", Spec("fedpurin", clients=3, rounds=6, curve=FALLING))
    # Over all six rounds FedPURIN's mean is the higher one, 0.713 against 0.58.
    expected = "FedAvg ends highest: 71.0 % over the last 2 rounds; FedPURIN has 67.0 % (place 2)."
    assert sentence(tmp_path, "accuracy") == expected
    page = write_report([tmp_path], tmp_path / "report.html")
    table = table_of(page, "upload")
    assert (table["fedavg"]["last_rounds"], table["fedpurin"]["last_rounds"]) == ("71.00", "67.00")
    assert (
        'title="mean of the last ten rounds, or of the last third of a short run">Last 2<' in page.read_text()
    )


@pytest.mark.parametrize(
    "other", [Spec(dataset="cifar-10"), Spec(model="cnn"), Spec(alpha=0.5), Spec(rounds=9)], ids=repr
)
def test_runs_of_another_task_are_not_ranked_against_each_other(tmp_path: Path, other: Spec) -> None:
    make_run(tmp_path / "a", Spec("separate", clients=4, rounds=6, curve=(0.5,) * 6))
    fields = {"dataset": other.dataset, "model": other.model, "alpha": other.alpha}
    rounds = other.rounds if other.rounds == 9 else 6
    make_run(tmp_path / "b", Spec("fedpurin", clients=4, rounds=rounds, curve=(0.74,) * rounds, **fields))
    groups = as_groups(tmp_path)
    assert [[group.method for group in cluster] for cluster in tasks(groups)] == [["fedpurin"], ["separate"]]
    assert gains(groups, "upload") == []
    text = " ".join(text_of(write_report([tmp_path], tmp_path / "report.html")).split())
    assert "against Separate" not in text
    assert "ends highest" not in text
    assert "are not ranked against each other" in text


def test_each_task_has_its_own_ranking_and_its_own_best(tmp_path: Path) -> None:
    for dataset, level in (("cifar-10", 0.6), ("cifar-100", 0.3)):
        for method, more in (("separate", 0.0), ("fedpurin", 0.05)):
            spec = Spec(method, clients=3, rounds=3, dataset=dataset, curve=(level + more,) * 3)
            make_run(tmp_path / f"{dataset}-{method}", spec)
    told = sentence(tmp_path, "accuracy")
    assert "FedPURIN (dataset cifar-10) ends highest: 65.0 %" in told
    assert "FedPURIN (dataset cifar-100) ends highest: 35.0 %" in told
    assert told.count("+5.0 points against Separate") == 2
    assert [row.gain_n.round(9).tolist() for row in gains(as_groups(tmp_path), "upload")] == [[5.0] * 3] * 2
    page = write_report([tmp_path], tmp_path / "report.html").read_text()
    best = re.findall(r'<td data-key="last" class="top">(.*?)</td>', page)
    assert sorted(set(best)) == ["35.00", "65.00"]


def test_settings_of_other_methods_and_of_the_machine_do_not_make_another_setting(tmp_path: Path) -> None:
    first = load_run(make_run(tmp_path / "a", Spec("fedavg", clients=3, rounds=2)))
    second = load_run(make_run(tmp_path / "b", Spec("fedavg", clients=3, rounds=2, seed=2)))
    second.config["run"] |= {"workers": 7, "device": "cuda"}
    second.config["method"]["tau"] = 0.2  # FedAvg has no tau
    assert [[run.seed for run in group.runs] for group in group_runs([first, second])] == [[1, 2]]
    assert setting_key(first.config) == setting_key(second.config)
    second.config["train"]["lr"] = 0.5
    assert [group.label for group in group_runs([first, second])] == ["FedAvg (lr 0.1)", "FedAvg (lr 0.5)"]


def test_a_method_that_is_not_installed_is_reported_too(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", Spec("fedfuture", clients=3, rounds=3))
    (group,) = as_groups(run)
    assert (group.label, group.marker) == ("fedfuture", "star")
    assert "fedfuture" in text_of(write_report([run], tmp_path / "report.html"))


def test_time_is_the_sum_of_all_rounds_whatever_result_json_says(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", Spec("fedavg", clients=3, rounds=4))
    result = json.loads((run / "result.json").read_text())
    result["seconds"] = 1.9  # as a run writes it that was resumed in its last round
    (run / "result.json").write_text(json.dumps(result))
    shown = table_of(write_report([run], tmp_path / "report.html"), "upload")["fedavg"]["seconds"]
    assert shown.replace("\u00a0", " ") == "6.4 s"  # four rounds of 1.5 s and 0.4 s at the end


@pytest.mark.parametrize(
    ("dataset", "model", "like"),
    [
        ("fashion-mnist", "resnet8", True),
        ("cifar-10", "resnet8", True),
        ("cifar-100", "resnet10", True),
        ("fashion-mnist", "cnn", False),
        ("fashion-mnist-mini", "resnet8", False),
        ("own", "cnn", False),
    ],
)
def test_the_report_opens_on_the_papers_moment_only_for_the_papers_tasks(
    tmp_path: Path, dataset: str, model: str, like: bool
) -> None:
    run = load_run(make_run(tmp_path / "run", Spec(clients=3, rounds=3, dataset=dataset, model=model)))
    assert paper_like(run) is like
    assert moments_of(as_groups(run))[0] == ("upload" if like else "trained")
    page = write_report([run.path], tmp_path / "report.html").read_text()
    shown = re.findall(r'<div data-moment="(\w+)"( hidden)?>', page)
    visible = {moment for moment, hidden in shown if not hidden}
    assert visible == {"upload" if like else "trained"}
    assert {moment for moment, _ in shown} == {"trained", "upload", "merged"}  # one click away
    assert figure(run, "accuracy").layout.title.text.endswith("as uploaded" if like else "after training")
