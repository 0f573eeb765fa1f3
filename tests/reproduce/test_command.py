"""`fedpurin reproduce`: plan, run, resume, figures, claims, docs."""

from __future__ import annotations

import errno
import json
import os
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from reproduce_tools import Reproduce, make_line

import fedpurin
from fedpurin.cli.main import main
from fedpurin.config import Config
from fedpurin.errors import ConfigError, DataError, RunError
from fedpurin.reproduce.actions import block, experiments_folder
from fedpurin.reproduce.command import SHOWN, TABLES, WHAT
from fedpurin.reproduce.docs import BLOCK, renewed
from fedpurin.reproduce.paper_figures import figure_name, save
from fedpurin.reproduce.recipes import RECIPES
from fedpurin.reproduce.record import pack_counts, unpack_counts
from fedpurin.reproduce.result_store import ResultStore
from fedpurin.reproduce.scales import SCALES, Request, option, trains_as_published
from fedpurin.reproduce.source import Paper, Source

CHECKOUT = Path(__file__).resolve().parents[2]
DOCS = [
    page
    for page in [CHECKOUT / "README.md", *sorted((CHECKOUT / "docs").rglob("*.md"))]
    if BLOCK.search(page.read_text("utf-8"))
]

# A run of a few seconds: 3 clients, 2 rounds, an MLP on bundled data.
TINY = [
    *("--scale", "mini", "--alpha", "0.5", "--seeds", "1", "--rounds", "2", "--workers", "1"),
    *("--set", "run.clients=3", "--set", "model.name=mlp", "--set", "train.epochs=1"),
    *("--set", "data.train_samples=20", "--set", "data.test_samples=10"),
]


@pytest.fixture(scope="module")
def made_up(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with made-up results for every recipe at mini scale, which no test may change."""
    store = ResultStore(tmp_path_factory.mktemp("made-up") / "results")
    for recipe in RECIPES.values():
        for number, cell in enumerate(recipe.cells(Request(scale="mini", alphas=(0.5,), seeds=(1, 2)))):
            if store.record(cell.config) is None:
                store.append("runs", make_line(cell.config, 0.6 + 0.01 * (number % 9), noise=0.05))
    return store.folder


@pytest.fixture
def full(experiments: Path, made_up: Path) -> Path:
    """An experiments folder with those results."""
    shutil.copytree(made_up, experiments / "results")
    return experiments


def test_the_command_loads_neither_torch_nor_matplotlib_for_its_help() -> None:
    code = "import sys, fedpurin.reproduce.command; sys.exit(bool({'torch', 'numpy'} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code], timeout=60).returncode == 0


def test_every_recipe_can_be_asked_for() -> None:
    assert set(RECIPES) <= set(WHAT)


def test_the_papers_scale_is_the_papers_experiment() -> None:
    cells = RECIPES["table-accuracy"].cells(Request(scale="paper"))
    assert len({cell.key for cell in cells}) == 7 * 9 * 3  # methods x settings x seeds
    betas = {(c.config.run.rounds, option(c.config, "beta")) for c in cells}
    assert betas == {(200, 100), (300, 170), (200, None), (300, None)}  # None: FedAvg and others have none
    assert {c.config.run.clients for c in cells} == {20}


@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("name", RECIPES)
def test_no_recipe_names_the_same_cell_in_two_rows(name: str, scale: str) -> None:
    cells = RECIPES[name].cells(Request(scale=scale))
    assert cells
    assert len({cell.key for cell in cells}) == len(cells)


def test_a_dry_run_shows_the_plan_with_its_time_and_runs_nothing(
    tmp_path: Path, reproduce: Reproduce
) -> None:
    code, text = reproduce("figure-tau", "--scale", "paper", "--dry-run")
    assert code == 0
    assert "45 to run" in text  # 5 taus x 3 alphas x 3 seeds
    assert " h in all" in text
    assert not (tmp_path / "runs").exists()


def test_filters_narrow_the_plan(reproduce: Reproduce) -> None:
    words = [
        "--scale",
        "paper",
        "--dataset",
        "cifar-10",
        "--alpha",
        "0.5",
        "--method",
        "fedpurin",
        "--dry-run",
    ]
    _, text = reproduce("table-accuracy", *words)
    assert "3 to run" in text


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["table-accuracy", "--dataset", "mnist"], "has no data set 'mnist'"),
        (["table-accuracy", "--method", "fedprox"], "'fedprox' is unknown"),
        (["table-accuracy", "--alpha", "x"], "should be numbers"),
        (["table-accuracy", "--set", "rounds=3"], "'rounds=3' should read SECTION.KEY=VALUE"),
        (["table-accuracy", "somewhere"], "takes no paths"),
        (["docs"], "needs at least one Markdown file"),
        (["table-accuracy", "--alpha", "nan"], "should be numbers"),
        (["table-accuracy", "--seeds", "1e400"], "should be whole numbers"),
        (["table-accuracy", "--seeds", "1.5"], "should be whole numbers"),
        (["table-accuracy", "--rounds", "0"], "--rounds 0 should be 1 or more"),
        (["table-accuracy", "--workers", "-1"], "--workers -1 should be 1 or more"),
        (["queue", "--minutes", "nan"], "--minutes nan should be 0 or more"),
        (["queue", "--minutes", "-1"], "--minutes -1.0 should be 0 or more"),
    ],
)
def test_bad_requests_name_the_value_and_the_remedy(
    reproduce: Reproduce, words: list[str], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        reproduce(*words)


@pytest.mark.parametrize(
    "name", [*TABLES, *(name for name in SHOWN if not name.startswith("figure")), "check-norms"]
)
@pytest.mark.parametrize("results", [False, True])
def test_every_table_can_be_made_from_a_full_and_from_an_empty_store(
    name: str, results: bool, experiments: Path, made_up: Path, tmp_path: Path, reproduce: Reproduce
) -> None:
    if results:
        shutil.copytree(made_up, experiments / "results")
    out = tmp_path / "out"
    code, _ = reproduce(
        name, "--scale", "mini", "--alpha", "0.5", "--seeds", "1,2", "--no-run", "--out", str(out)
    )
    assert code == 0
    is_text = name.startswith("findings")
    assert (out / f"{name}.md").read_text().startswith("- " if is_text else "|")
    assert ("\\begin{tabular}" in (out / f"{name}.tex").read_text()) != is_text


@pytest.mark.parametrize("name", ["figure-bars", "figure-rounds", "figure-bytes", "figure-bn", "figure-tau"])
def test_figures_come_as_png_and_pdf(name: str, full: Path, tmp_path: Path, reproduce: Reproduce) -> None:
    pytest.importorskip("matplotlib")
    out = tmp_path / "out"
    reproduce(name, "--scale", "mini", "--alpha", "0.5", "--seeds", "1,2", "--no-run", "--out", str(out))
    stem = f"{name.removeprefix('figure-')}-mini-a0.5"
    assert (out / f"{stem}.png").read_bytes().startswith(b"\x89PNG")
    assert (out / f"{stem}.pdf").read_bytes().startswith(b"%PDF")


def test_a_figure_is_named_after_what_was_asked_for_even_if_that_is_a_path() -> None:
    asked = {"data": {"split_file": "/my split/a.json"}}
    request = Request(scale="mini", methods=("fedpurin", "fedbn"), rounds=4, changes=asked)
    source = Source(ResultStore(Path("nowhere")), Paper({}), request)
    assert figure_name("bytes", source) == "bytes-mini-fedpurin-fedbn-t4-split_file_my_split_a.json"


def test_a_claim_about_accuracy_is_undecided_below_the_papers_scale(full: Path, reproduce: Reproduce) -> None:
    _, text = reproduce("claims")
    for claim in (
        "FedPURIN above FedBN in 5 of 9",
        "Exact gradients beat delta",
        "quadratic term changes little",
    ):
        line = next(line for line in text.splitlines() if claim in line)
        assert "**undecided**" in line


def test_a_claim_is_decided_at_the_papers_scale(experiments: Path, reproduce: Reproduce) -> None:
    store = ResultStore(experiments / "results")
    recipe, request = RECIPES["table-accuracy"], Request(scale="paper", seeds=(1,))
    for cell in recipe.cells(Request(scale="paper")):
        better = cell.config.run.method == "fedpurin"
        store.append("runs", make_line(cell.config, 0.9 if better else 0.8))
    assert request.scale == "paper"
    _, text = reproduce("claims")
    line = next(line for line in text.splitlines() if "FedPURIN above FedCAC" in line)
    assert "9 of 9" in line
    assert "**holds**" in line


def test_only_runs_that_train_as_the_paper_does_hint_at_a_claim(
    experiments: Path, reproduce: Reproduce
) -> None:
    store = ResultStore(experiments / "results")
    longer = Request(scale="paper", datasets=("cifar-10",), alphas=(0.5,), seeds=(1,), rounds=60)
    for recipe, request in (("table-accuracy", longer), ("table-communication", Request(scale="quick"))):
        for cell in RECIPES[recipe].cells(request):
            store.append("runs", make_line(cell.config, 0.9 if cell.config.run.method == "fedpurin" else 0.8))
    _, text = reproduce("claims")
    line = next(line for line in text.splitlines() if "FedPURIN above FedCAC" in line)
    assert "CIFAR-10 α=0.5, round 60" in line
    assert "α=0.1" not in line  # two local steps, for bytes


@pytest.mark.parametrize(
    "changes",
    [
        {"data": {"partition": "dirichlet-disjoint"}},
        {"run": {"participation": 0.5}},
        {"run": {"clients": 5}},
        {"data": {"test_samples": 10}},
        {"train": {"momentum": 0.0}},
        {"wire": {"values": "int8"}},
        {"method": {"tau": 0.2}},
    ],
)
def test_a_run_with_anything_changed_does_not_train_as_published(
    changes: dict[str, dict[str, object]],
) -> None:
    config = Request(scale="paper", rounds=60).config("cifar-10", 0.5, 2, "fedpurin")
    assert trains_as_published(config)
    assert not trains_as_published(config.updated(changes))


def test_reproduce_needs_no_checkout(tmp_path: Path) -> None:
    """A copy of the package alone, as an installed wheel has it, in an empty folder."""
    shutil.copytree(CHECKOUT / "src" / "fedpurin", tmp_path / "site" / "fedpurin")
    (tmp_path / "empty").mkdir()
    words = ["reproduce", "table-accuracy", "--scale", "mini", "--dry-run"]
    done = subprocess.run(
        [sys.executable, "-m", "fedpurin", *words],
        cwd=tmp_path / "empty",
        env={**os.environ, "PYTHONPATH": str(tmp_path / "site")},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert "63 to run" in done.stdout  # 7 methods x 3 alphas x 3 seeds
    assert list((tmp_path / "empty").iterdir()) == []


def test_package_data_holds_the_papers_numbers() -> None:
    settings = tomllib.loads((CHECKOUT / "pyproject.toml").read_text())
    assert "reproduce/*.toml" in settings["tool"]["setuptools"]["package-data"]["fedpurin"]


@pytest.mark.parametrize(("there", "chosen"), [(True, "experiments"), (False, "reproduction")])
def test_results_go_to_experiments_where_there_is_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, there: bool, chosen: str
) -> None:
    monkeypatch.chdir(tmp_path)
    if there:
        (tmp_path / "experiments").mkdir()
    assert experiments_folder(None) == Path(chosen)
    assert experiments_folder("mine") == Path("mine")


def test_counts_survive_their_packing() -> None:
    import numpy as np

    rows = np.array([[0, 1, 300], [7, 7, 7]])
    assert (unpack_counts(pack_counts(rows), 2) == rows).all()


# Documents


def test_a_block_is_made_anew_and_the_text_around_it_stays() -> None:
    text = "before\n<!-- reproduce table-x -->\nold\n<!-- end -->\nafter\n"
    assert renewed(text, lambda words: f"{words}\n", Path()) == (
        "before\n<!-- reproduce table-x -->\n['table-x']\n<!-- end -->\nafter\n"
    )


@pytest.mark.parametrize("kind", ["reproduce claims", "output fedpurin methods"])
def test_a_block_without_its_end_is_refused(kind: str) -> None:
    with pytest.raises(DataError, match="has no <!-- end -->"):
        renewed(f"<!-- {kind} -->\n", lambda _: "", Path())


def test_a_block_shows_what_a_command_prints_in_the_folder_of_the_page(tmp_path: Path) -> None:
    text = "<!-- output fedpurin --version -->\nold\n<!-- end -->"
    shown = f"fedpurin {fedpurin.__version__}"
    made = renewed(text, lambda _: "", tmp_path)
    assert made == f"<!-- output fedpurin --version -->\n\n```text\n{shown}\n```\n\n<!-- end -->"


@pytest.mark.parametrize(
    ("command", "message"),
    [("rm -r x", "only fedpurin's commands"), ("fedpurin show nowhere", "failed: fedpurin: error")],
)
def test_a_command_that_fails_or_is_not_ours_is_no_output(command: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=message):
        renewed(f"<!-- output {command} -->\n<!-- end -->", lambda _: "", tmp_path)


def test_docs_check_tells_when_a_number_has_drifted(full: Path, tmp_path: Path, reproduce: Reproduce) -> None:
    page = tmp_path / "page.md"
    page.write_text("<!-- reproduce table-controls --scale mini --alpha 0.5 -->\n<!-- end -->\n")
    assert reproduce("docs", str(page), "--check")[0] == 1
    assert reproduce("docs", str(page))[0] == 0
    assert "magnitude" in page.read_text()
    assert reproduce("docs", str(page), "--check")[0] == 0
    page.write_text(page.read_text().replace("| magnitude | ", "| magnitude | 9"))
    assert reproduce("docs", str(page), "--check")[0] == 1


@pytest.mark.parametrize("file", DOCS, ids=lambda file: file.name)
def test_every_generated_block_in_the_docs_matches_the_store(file: Path) -> None:
    text = file.read_text("utf-8")
    store = str(CHECKOUT / "experiments")
    assert renewed(text, lambda words: block(words, store), file.parent) == text


def test_paths_may_come_after_options(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = tmp_path / "page.md"
    page.write_text("no block\n")
    assert main(["reproduce", "docs", "--check", str(page)]) == 0
    assert "page.md: up to date" in capsys.readouterr().out.replace("\n", "")
    with pytest.raises(SystemExit):
        main(["reproduce", "docs", "--check", str(page), "--nonsense"])
    assert "--nonsense; see fedpurin --help" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        ('table-accuracy --dataset "cifar', "is no command line .No closing quotation."),
        ("table-nonsense", "reproduce table-nonsense: argument WHAT: invalid choice"),
        (
            "table-accuracy --seeds x",
            "reproduce table-accuracy --seeds x: --seeds 'x' should be whole numbers",
        ),
        ("import runs", "import makes no table"),
    ],
)
def test_a_block_whose_command_line_is_wrong_leaves_the_page_as_it_was(
    tmp_path: Path, reproduce: Reproduce, words: str, complaint: str
) -> None:
    page = tmp_path / "page.md"
    page.write_text(text := f"<!-- reproduce {words} -->\nold\n<!-- end -->\n")
    with pytest.raises((ConfigError, DataError), match=complaint):
        reproduce("docs", str(page))
    assert page.read_text() == text


def test_what_is_no_page_of_text_is_refused(tmp_path: Path, reproduce: Reproduce) -> None:
    latin, pipe, large = tmp_path / "latin.md", tmp_path / "pipe.md", tmp_path / "large.md"
    latin.write_bytes(b"caf\xe9")
    os.mkfifo(pipe)
    large.touch()
    os.truncate(large, 2**40)  # sparse
    for page, complaint in ((latin, "is not UTF-8"), (pipe, "it is a pipe"), (large, "larger than 16 MiB")):
        with pytest.raises(DataError, match=complaint):
            reproduce("docs", str(page))


def test_a_figure_is_whole_or_not_there(tmp_path: Path) -> None:
    class Figure:
        def savefig(self, file: Path, **_: object) -> None:
            file.write_bytes(b"half a pic")
            raise OSError(errno.ENOSPC, "No space left on device")

    with pytest.raises(RunError, match=r"bars\.png cannot be written: No space left on device"):
        save(Figure(), tmp_path / "out", "bars")
    assert list((tmp_path / "out").iterdir()) == []


def test_figures_named_in_the_docs_exist() -> None:
    import re

    for file in DOCS:
        for name in re.findall(r"\]\((figures/[^)]+)\)", file.read_text("utf-8")):
            assert (file.parent / name).is_file(), name


def test_the_committed_store_is_readable_and_small() -> None:
    folder = CHECKOUT / "experiments" / "results"
    assert ResultStore(folder).records()
    assert sum(file.stat().st_size for file in folder.iterdir()) < 20 * 2**20


# Real runs


@pytest.mark.slow
def test_finished_cells_are_never_run_again_and_interrupted_ones_continue(
    experiments: Path, tmp_path: Path, reproduce: Reproduce, monkeypatch: pytest.MonkeyPatch
) -> None:
    from fedpurin.engines.driver import Driver

    def stop_after_one(self: object, t: int) -> None:
        keep(self, t)
        raise KeyboardInterrupt

    keep = Driver._checkpoint
    words = ["table-accuracy", *TINY, "--method", "fedpurin,separate"]
    with monkeypatch.context() as patch:
        patch.setattr(Driver, "_checkpoint", stop_after_one)
        with pytest.raises(KeyboardInterrupt):
            reproduce(*words)
    assert not (experiments / "results" / "runs.jsonl").exists()
    _, text = reproduce(*words)
    assert "continues after round 1" in text
    _, text = reproduce(*words)
    assert "2 cells, 2 of them in the store already" in text
    assert "round 1:" not in text

    path = next((tmp_path / "runs").glob("fedpurin-*"))
    result = json.loads((path / "result.json").read_text())
    store = ResultStore(experiments / "results")
    record = next(r for r in store.records() if r.config.run.method == "fedpurin")
    assert record.line["digest"] == result["digest"]
    assert record.best() == pytest.approx(100 * result["accuracy"]["upload"]["best"], abs=0.01)
    assert record.mib("up").mean() == pytest.approx(result["mib_per_client_round"]["up"], rel=1e-4)
    assert record.mib("down_paper").mean() == pytest.approx(
        result["mib_per_client_round"]["down_paper"], rel=1e-4
    )


@pytest.mark.slow
def test_coverage_is_drawn_of_a_cell_that_another_figure_ran(
    experiments: Path, tmp_path: Path, reproduce: Reproduce
) -> None:
    reproduce("figure-tau", *TINY, "--out", str(tmp_path / "out"))
    _, text = reproduce("figure-coverage", *TINY, "--out", str(tmp_path / "out"))
    assert "round 1:" not in text  # its run directory is still there
    assert len(list((tmp_path / "out").glob("coverage-*.png"))) == 2
    _, text = reproduce("figure-coverage", *TINY, "--out", str(tmp_path / "out"))
    assert "1 cell, 1 of them in the store already" in text

    (experiments / "results" / "coverage.jsonl").unlink()
    for path in (tmp_path / "runs").iterdir():
        shutil.rmtree(path)
    _, text = reproduce("figure-coverage", *TINY, "--out", str(tmp_path / "out"))
    assert "round 2:" in text
    assert len(list(ResultStore(experiments / "results").lines("coverage"))) == 1


@pytest.mark.slow
def test_import_takes_finished_runs_and_marks_unfinished_ones(
    experiments: Path, tmp_path: Path, reproduce: Reproduce
) -> None:
    reproduce("figure-coverage", *TINY, "--out", str(tmp_path / "out"))
    assert len(list((tmp_path / "out").glob("coverage-*.png"))) == 2
    path = next((tmp_path / "runs").iterdir())
    (experiments / "results" / "runs.jsonl").unlink()
    (path / "result.json").rename(path / "aside.json")
    code, text = reproduce("import", str(path))
    assert code == 1
    assert "is not complete (2 of 2 rounds)" in text
    assert reproduce("import", str(path), "--partial")[0] == 0
    assert not ResultStore(experiments / "results").records()[0].complete
    (path / "aside.json").rename(path / "result.json")
    reproduce("import", str(path))
    assert ResultStore(experiments / "results").records()[0].complete


@pytest.mark.slow
def test_check_perturbation_predicts_a_small_step(
    experiments: Path, tmp_path: Path, reproduce: Reproduce
) -> None:
    words = [
        "check-perturbation",
        "--scale",
        "mini",
        "--set",
        "data.train_samples=40",
        "--set",
        "model.name=mlp",
    ]
    reproduce(*words, "--out", str(tmp_path / "out"))
    line = next(iter(ResultStore(experiments / "results").lines("perturbation")))
    found = line["scores"]["first-order"]
    # A 1 % step towards zero changes the loss as the gradient says, up to the curvature along the step.
    for predicted, small in zip(found["predicted"], found["small"], strict=True):
        assert small == pytest.approx(predicted, abs=0.1 * max(map(abs, found["predicted"])) + 1e-4)
    assert "in the store already" in reproduce(*words, "--out", str(tmp_path / "out"))[1]


def test_a_damaged_run_is_refused(tmp_path: Path, reproduce: Reproduce) -> None:
    with pytest.raises(RunError, match="is not a directory"):
        reproduce("import", str(tmp_path / "nothing"))


def test_unknown_scale_is_refused() -> None:
    with pytest.raises(ConfigError, match="choose one of paper, quick, mini"):
        Request(scale="huge")


def test_configs_of_quick_and_paper_differ_only_in_length() -> None:
    quick, paper = (Request(scale=s).config("cifar-10", 0.1, 1, "fedpurin") for s in ("quick", "paper"))
    same = quick.updated({"run": {"rounds": paper.run.rounds}, "method": {"beta": paper.method.beta}})
    assert same == paper
    assert isinstance(same, Config)
