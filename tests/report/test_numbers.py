"""The numbers behind the charts, against plain loops over the files."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from make_run import Spec, make_run

from fedpurin.report.charts.selection import selection
from fedpurin.report.charts.traffic import seconds_for
from fedpurin.report.charts.who_works_with_whom import collaboration, collaborator_counts
from fedpurin.report.figures import as_groups
from fedpurin.report.measure import Measure, duration, mib, percent
from fedpurin.report.run_groups import find, focus
from fedpurin.report.series import bytes_per_round, client_order, evenly_spaced, gains, short_names
from fedpurin.runs.run import load_run

MIB = 2**20


def test_seeds_of_one_setting_are_one_group(seeds: Path) -> None:
    groups = as_groups(seeds)
    assert [(group.method, [run.seed for run in group.runs]) for group in groups] == [
        ("separate", [1, 2, 3]),
        ("fedpurin", [1, 2, 3]),
    ]
    runs = [load_run(seeds / f"fedpurin-{seed}") for seed in (1, 2, 3)]
    means = [run.accuracy("upload")[2].mean() for run in runs]
    assert groups[1].curve("upload")[2] == pytest.approx(np.mean(means))


def test_two_settings_of_one_method_are_told_apart_by_what_differs(tmp_path: Path) -> None:
    for tau in (0.2, 0.5):
        make_run(tmp_path / f"tau-{tau}", Spec(clients=4, rounds=2, tau=tau))
    groups = as_groups(tmp_path)
    assert [group.label for group in groups] == ["FedPURIN (tau 0.2)", "FedPURIN (tau 0.5)"]
    assert groups[0].color != groups[1].color


def test_methods_keep_their_order_and_the_report_speaks_of_fedpurin(comparison: Path) -> None:
    groups = as_groups(comparison)
    assert [group.label for group in groups] == [
        "Separate",
        "FedAvg",
        "FedPer",
        "FedBN",
        "pFedSD",
        "FedCAC",
        "FedPURIN",
    ]
    assert focus(groups).method == "fedpurin"
    assert find(groups, "fedbn") is groups[3]


def test_gain_is_the_clients_own_difference_to_separate(comparison: Path) -> None:
    row = next(row for row in gains(as_groups(comparison), "upload") if row.group.method == "fedpurin")
    own, alone = (  # the last third of six rounds
        load_run(comparison / name).accuracy("upload")[4:].mean(axis=0) for name in ("fedpurin", "separate")
    )
    assert row.gain_n == pytest.approx(100 * (own - alone))
    assert row.hurt == (own < alone).sum()


def test_gain_needs_the_same_clients(tmp_path: Path) -> None:
    make_run(tmp_path / "a", Spec("separate", clients=4, rounds=2, seed=1))
    make_run(tmp_path / "b", Spec("fedpurin", clients=4, rounds=2, seed=2))
    assert gains(as_groups(tmp_path), "upload") == []


def test_one_mib_takes_eight_point_four_seconds_at_one_megabit() -> None:
    assert float(seconds_for(np.array(1.0), 1e6)) == pytest.approx(8.388608)  # 2**20 * 8 / 10**6


def test_bytes_per_round_are_means_over_the_messages(comparison: Path) -> None:
    group = find(as_groups(comparison), "fedpurin")
    assert group is not None
    lines = [json.loads(line) for line in (comparison / "fedpurin" / "ledger.jsonl").read_text().splitlines()]
    mine = [line for line in lines if line["round"] == 5 and line["direction"] == "up"]
    sections, paper = bytes_per_round(group, "up")
    expected = sum(line["bytes"]["values"] for line in mine) / len(mine) / MIB
    assert sections[2, 4] == pytest.approx(expected)
    assert paper[4] == pytest.approx(sum(line["paper_bytes"] for line in mine) / len(mine) / MIB)


def test_clients_are_ordered_by_their_main_class(comparison: Path) -> None:
    run = load_run(comparison / "fedavg")
    main = run.train_counts.argmax(axis=1)[client_order(run)]
    assert (np.diff(main) >= 0).all()


def test_the_matrix_and_the_graph_hold_the_recorded_rounds(comparison: Path) -> None:
    run = load_run(comparison / "fedpurin")
    links = collaboration(run)
    assert links.overlap_rbb is not None
    assert not links.binned
    order = client_order(run)
    line = run.line(2)
    for a, i in enumerate(order):
        for b, j in enumerate(order):
            assert links.overlap_rbb[1, a, b] == line["overlap"][i][j]
            if i != j:
                assert links.pairs_rbb[1, a, b] == (j in line["collaborators"][i])
    assert collaborator_counts(run)[1] == np.mean([len(group) for group in line["collaborators"]])


def test_many_clients_are_binned_and_pairs_are_counted(tmp_path: Path) -> None:
    run = load_run(make_run(tmp_path / "run", Spec(clients=100, rounds=2, beta=2)))
    links = collaboration(run)
    assert links.binned
    main = run.train_counts.argmax(axis=1)
    present = np.unique(main)
    groups = run.collaborators(1) or {}
    taken = sum(main[i] == present[0] and main[j] == present[1] for i in groups for j in groups[i])
    possible = (main == present[0]).sum() * (main == present[1]).sum()
    assert links.pairs_rbb[0, 0, 1] == pytest.approx(taken / possible)


def test_long_runs_are_thinned_evenly_with_both_ends() -> None:
    assert evenly_spaced([1, 2, 3], 5) == [1, 2, 3]
    assert evenly_spaced(list(range(1, 301)), 4) == [1, 101, 200, 300]


def test_selection_counts_never_quarters_and_always(comparison: Path) -> None:
    run = load_run(comparison / "fedpurin")
    names, shares = selection(run) or ([], np.zeros(0))
    stored = run.coverage()
    assert stored is not None
    first = stored["client_counts"][:, :144]  # pre_conv.weight: 16 x 1 x 3 x 3
    assert names[0] == "pre_conv.weight"
    assert shares[0, 0] == (first == 0).mean()
    assert shares[0, 1] == (first == 1).mean()  # up to a quarter of 6 rounds is one round
    assert shares[0, 5] == (first == 6).mean()
    assert shares.sum(axis=1) == pytest.approx(1)


def test_layer_names_are_shortened_only_while_they_stay_different() -> None:
    assert short_names(["conv.weight", "fc.weight", "fc.bias"]) == ["conv", "fc", "fc.bias"]
    assert short_names(["fc.weight", "fc"]) == ["fc.weight", "fc"]


def test_units_read_well() -> None:
    points = Measure("accuracy", share=True).gain
    plain = [
        text.replace("\u00a0", " ") for text in (percent(0.8437), points(-2.04), mib(0), mib(0.05), mib(2.5))
    ]
    assert plain == ["84.4 %", "−2.0 points", "0 MiB", "51.2 KiB", "2.50 MiB"]
    assert [duration(s).replace("\u00a0", " ") for s in (5, 90, 7200)] == ["5.0 s", "1.5 min", "2.0 h"]
