"""The HTML file itself: whole, small enough, harmless, and true to the run directories."""

from __future__ import annotations

import html
import json
import re
from pathlib import Path

import pytest
from make_run import Spec, make_run

from fedpurin.errors import RunError
from fedpurin.report import write_report
from fedpurin.runs.run import load_run

LIMIT = 10 * 2**20


def text_of(page: Path) -> str:
    """The visible text, without script and style."""
    body = page.read_text("utf-8").split("<body>")[1]
    body = re.sub(r"<script.*?</script>", "", body, flags=re.DOTALL)
    return html.unescape(re.sub(r"<[^>]+>", " ", body)).replace("\u00a0", " ")


def table_of(page: Path, moment: str) -> dict[str, dict[str, str]]:
    """Method -> column -> text, of one moment's results table."""
    body = page.read_text("utf-8").split('<section id="results">')[1].split("</section>")[0]
    block = re.search(rf'<div data-moment="{moment}".*?</table>', body, flags=re.DOTALL)
    assert block is not None
    found = {}
    for method, row in re.findall(r'<tr data-method="(.*?)">(.*?)</tr>', block.group(), flags=re.DOTALL):
        found[method] = dict(re.findall(r'<td data-key="(\w+)"[^>]*>(.*?)</td>', row))
    return found


@pytest.fixture(scope="module")
def page(comparison: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_report([comparison], tmp_path_factory.mktemp("page") / "deep" / "report.html")


@pytest.mark.parametrize("moment", ["trained", "upload", "merged"])
def test_the_table_shows_the_figures_of_result_json(comparison: Path, page: Path, moment: str) -> None:
    for method, row in table_of(page, moment).items():
        result = json.loads((comparison / method / "result.json").read_text())
        for key in ("best", "last", "worst_client"):
            assert row[key] == f"{100 * result['accuracy'][moment][key]:.2f}"
        assert row["best_round"] == str(result["accuracy"][moment]["best_round"])
        for key in ("up", "down", "up_paper", "down_paper"):
            assert float(row[key]) == pytest.approx(result["mib_per_client_round"][key], rel=0.005)


def test_several_seeds_show_mean_and_sample_deviation(seeds: Path, tmp_path: Path) -> None:
    page = write_report([seeds], tmp_path / "report.html")
    last = [load_run(seeds / f"fedpurin-{s}").summary["accuracy"]["upload"]["last"] for s in (1, 2, 3)]
    mean = sum(last) / 3
    deviation = (sum((value - mean) ** 2 for value in last) / 2) ** 0.5
    assert table_of(page, "upload")["fedpurin"]["last"] == f"{100 * mean:.2f} ± {100 * deviation:.2f}"


def test_best_is_said_to_be_picked_on_test_data(page: Path) -> None:
    assert "picked on test data as the paper does" in " ".join(text_of(page).split())


def test_the_page_names_config_command_and_digest(page: Path) -> None:
    text = text_of(page)
    assert "fedpurin/config.toml --seed 1" in text
    assert 'score = "gradient"' in text
    assert "f" * 64 in text


def test_nothing_in_the_page_can_be_fetched(page: Path) -> None:
    source = page.read_text("utf-8")
    assert "default-src 'none'" in source
    shell = re.sub(r"<script.*?</script>", "", source, flags=re.DOTALL)
    assert not re.findall(r"""(?:src|href)=["'](?!#|data:)""", shell)


def test_names_from_a_run_cannot_become_markup(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", Spec(clients=3, rounds=2))
    people = json.loads((run / "clients.json").read_text())
    people["classes"][0] = "</script><script>alert(1)</script>"
    (run / "clients.json").write_text(json.dumps(people))
    for file in (run / "config.toml", run / "result.json"):
        file.write_text(file.read_text().replace("fashion-mnist", "<img src=x> %%JS%%"))
    source = write_report([run], tmp_path / "out.html", title="<b>%%CSS%%</b>").read_text("utf-8")
    assert "<script>alert" not in source
    assert "<img" not in source.split("<script", 1)[0]
    assert "<title>&lt;b&gt;%%CSS%%&lt;/b&gt;</title>" in source


def test_charts_without_data_are_left_out_and_the_reason_is_given(comparison: Path, tmp_path: Path) -> None:
    page = write_report([comparison / "fedavg"], tmp_path / "report.html")
    text = " ".join(text_of(page).split())
    assert "it needs a Separate run over the same clients" in text
    assert "none of these methods forms groups of clients" in text
    assert 'id="gain"' not in page.read_text("utf-8")


def test_separate_alone_has_no_traffic_to_show(comparison: Path, tmp_path: Path) -> None:
    text = text_of(write_report([comparison / "separate"], tmp_path / "report.html"))
    assert "without messages there is no traffic to show" in text


def test_runs_without_metrics_still_make_a_page(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", Spec("fedavg", clients=3, rounds=2, stop_after=2))
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    for line in lines:
        for moment in ("trained", "upload", "merged"):
            for key in ("accuracy", "loss"):
                line[moment][key] = [None] * len(line[moment][key])
    (run / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert "no accuracy was recorded" in text_of(write_report([run], tmp_path / "report.html"))


def test_a_half_way_run_is_announced(half_way: Path, tmp_path: Path) -> None:
    text = " ".join(text_of(write_report([half_way], tmp_path / "report.html")).split())
    assert "3 of 10 rounds, not complete" in text
    assert "stopped at round 3" in text


def test_a_run_without_any_round_is_refused_alone_and_left_out_in_company(
    comparison: Path, tmp_path: Path
) -> None:
    empty = make_run(tmp_path / "empty", Spec("fedbn", clients=3, rounds=2, stop_after=1))
    (empty / "metrics.jsonl").write_text("")
    with pytest.raises(RunError, match="no finished round yet"):
        write_report([empty], tmp_path / "report.html")
    text = text_of(write_report([empty, comparison / "fedavg"], tmp_path / "report.html"))
    assert "no finished round yet, left out" in text


def test_the_file_is_written_whole_or_not_at_all(comparison: Path, tmp_path: Path) -> None:
    target = tmp_path / "report.html"
    write_report([comparison / "fedavg"], target)
    before = target.read_bytes()
    (tmp_path / "file").write_text("")
    with pytest.raises(RunError, match="cannot be written"):
        write_report([comparison / "fedavg"], tmp_path / "file" / "report.html")
    with pytest.raises(RunError, match="not a directory"):
        write_report([tmp_path / "nothing"], target)
    assert target.read_bytes() == before
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "report.html"]


def test_plotly_is_in_the_page_once(page: Path) -> None:
    assert page.read_text("utf-8").count("Plotly, Inc.") == 1


@pytest.mark.parametrize(
    "spec",
    [
        Spec(clients=1, rounds=1, beta=1),
        Spec(clients=2, rounds=2, beta=1),
        Spec(clients=64, rounds=5, beta=4),
        Spec(clients=65, rounds=3, beta=2, classes=100),
        Spec(clients=9, rounds=3, beta=2, participation=0.1),
    ],
    ids=["one client", "two clients", "64 clients", "65 clients, 100 classes", "one participant"],
)
def test_every_size_gives_a_page(tmp_path: Path, spec: Spec) -> None:
    page = write_report([make_run(tmp_path / "run", spec)], tmp_path / "report.html")
    assert page.stat().st_size < LIMIT


@pytest.mark.slow
def test_a_thousand_clients_three_hundred_rounds_and_seven_methods_stay_under_ten_megabytes(
    tmp_path: Path,
) -> None:
    for method in ("separate", "fedavg", "fedper", "fedbn", "pfedsd", "fedcac", "fedpurin"):
        spec = Spec(method, clients=1000, rounds=300, beta=150, classes=100, participation=0.1)
        make_run(tmp_path / "runs" / method, spec)
    page = write_report([tmp_path / "runs"], tmp_path / "report.html")
    assert page.stat().st_size < LIMIT
    text = " ".join(text_of(page).split())
    assert "1000 clients are binned by their most frequent class" in text
    assert "The slider shows 60 of 300 rounds" in text
    assert "150 rounds, evenly spaced, are shown" in text
