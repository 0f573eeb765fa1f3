"""What a run keeps of its clients: records of those that took part, in files that checkpoints refer to."""

from __future__ import annotations

import json
import shutil
import zlib
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from engine_tools import Stop, StopAt, assert_same_runs, metrics_of, run, run_until
from fedpurin.engines import driver
from fedpurin.engines.driver import Watcher
from fedpurin.engines.hub import Hub
from fedpurin.engines.simulate import resume_run
from fedpurin.engines.site import Site
from fedpurin.engines.table import Spec
from fedpurin.runs.directory import RunDirectory
from fedpurin.runs.rows import RowFile
from tiny import tiny_config

pytestmark = pytest.mark.usefixtures("in_process")
FEW = {"run__participation": 0.25}  # one of four clients in every round


def part(path: Path, name: str, t: int) -> dict[str, Tensor]:
    return load_file(path / "checkpoints" / f"round-{t:05d}" / f"{name}.safetensors")


def taken_part(path: Path, until: int) -> set[int]:
    return {client for line in metrics_of(path)[:until] for client in line["clients"]}


def test_only_clients_that_took_part_have_a_record(tmp_path: Path) -> None:
    run(tiny_config("fedpurin", tmp_path, run__rounds=2, **FEW), tmp_path / "run")
    present = taken_part(tmp_path / "run", 2)
    assert len(present) <= 2
    assert set(part(tmp_path / "run", "clients", 2)["clients.client"].tolist()) == present
    assert set(part(tmp_path / "run", "server", 2)["masks.client"].tolist()) == present


def test_the_server_keeps_merged_parts_of_groups_of_several_alone(tmp_path: Path) -> None:
    """beta = 2: in the third round everybody works alone, and nothing is kept any more."""
    run(tiny_config("fedpurin", tmp_path, run__rounds=3, method__beta=2), tmp_path / "run")
    for t, line in enumerate(metrics_of(tmp_path / "run")[:3], start=1):
        several = [c for c, others in zip(line["clients"], line["collaborators"], strict=True) if others]
        if t > 1:  # two checkpoints are kept
            assert part(tmp_path / "run", "server", t)["kept.client"].tolist() == several
        else:
            assert several, "this test needs a group"


@pytest.mark.parametrize("settings", [{}, {"run__participation": 0.75}, {"robust__norm_bound": 1.5}])
@pytest.mark.parametrize("every", [1, 2, 9])
def test_what_is_kept_is_the_same_wherever_it_waits(
    settings: dict[str, object], every: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the uploads' own memory until its place is needed or a checkpoint is, or in the file at once."""
    config = tiny_config(
        "fedpurin", tmp_path, run__rounds=5, method__beta=9, run__checkpoint_every=every, **settings
    )
    run(config, tmp_path / "waiting")
    monkeypatch.setattr(driver, "Hub", lambda job, rows, *, closes: Hub(job, rows))
    run(config, tmp_path / "written")
    assert_same_runs(tmp_path / "waiting", tmp_path / "written")


def test_merged_parts_that_nobody_else_needs_the_place_of_are_not_written(tmp_path: Path) -> None:
    config = tiny_config("fedpurin", tmp_path, run__rounds=4, method__beta=9, run__checkpoint_every=9)
    run(config, tmp_path / "all")
    assert not (tmp_path / "all" / "checkpoints" / "kept.rows").exists()
    run(config.updated({"run": {"participation": 0.75}}), tmp_path / "some")
    assert (tmp_path / "some" / "checkpoints" / "kept.rows").stat().st_size > 0


@pytest.mark.parametrize("name", ["clients", "masks"])
def test_a_damaged_record_of_the_newest_checkpoint_gives_way_to_the_one_before(
    name: str, tmp_path: Path
) -> None:
    config = tiny_config("fedpurin", tmp_path, run__rounds=4, method__beta=2)
    run(config, tmp_path / "whole")
    run_until(config, tmp_path / "run", 4, after_client=2)
    index = part(tmp_path / "run", "clients" if name == "clients" else "server", 3)
    file = tmp_path / "run" / "checkpoints" / f"{name}.rows"
    content = bytearray(file.read_bytes())
    content[int(index[f"{name}.slot"][1]) * RowFile(name, int(index[f"{name}.size"])).stride + 3] ^= 8
    file.write_bytes(content)
    warnings: list[str] = []

    class Note(Watcher):
        def warned(self, text: str) -> None:
            warnings.append(text)

    resume_run(tmp_path / "run", Note())
    assert_same_runs(tmp_path / "whole", tmp_path / "run")
    assert any("record of client 1" in text and "trying the one before" in text for text in warnings)


@pytest.mark.parametrize("method", ["fedpurin", "fedcac", "fedavg"])
def test_a_checkpoint_with_a_matrix_of_all_clients_is_continued(method: str, tmp_path: Path) -> None:
    """As version 0.2.0 wrote them first: masks, merged parts and states of everybody, whole."""
    settings = {} if method == "fedavg" else {"method__beta": 3}
    config = tiny_config(method, tmp_path, run__rounds=4, **settings)
    run(config, tmp_path / "whole")
    run_until(config, tmp_path / "run", 4, after_client=2)
    folder = tmp_path / "run" / "checkpoints"
    shutil.rmtree(folder / "round-00002")
    _as_matrices(tmp_path / "run", folder / "round-00003")
    for file in folder.glob("*.rows"):
        file.unlink()
    resume_run(tmp_path / "run")
    assert_same_runs(tmp_path / "whole", tmp_path / "run")


def _as_matrices(run_path: Path, folder: Path) -> None:
    directory, job = RunDirectory.reopen(run_path)
    directory.close()
    spec, n = Spec.of(Site(job).initial_state(0)), job.config.run.clients

    def records(name: str, index: dict[str, Tensor]) -> dict[int, bytearray]:
        rows = RowFile(name, int(index[f"{name}.size"]), folder.parent / f"{name}.rows")
        rows.restore(index)
        return {client: rows.read(client) or bytearray() for client in index[f"{name}.client"].tolist()}

    states = [
        spec.views(record)
        for _, record in sorted(records("clients", load_file(folder / "clients.safetensors")).items())
    ]
    save_file(
        {name: torch.stack([state[name] for state in states]) for name in states[0]},
        folder / "clients.safetensors",
    )
    server = load_file(folder / "server.safetensors")
    after = {name: x for name, x in server.items() if not name.startswith(("masks.", "kept."))}
    if masks := records("masks", server):
        after["masks"] = torch.stack([torch.frombuffer(masks[c], dtype=torch.uint8) for c in range(n)])
        kept, d = records("kept", server), job.selection.d
        after["method.alone"] = torch.tensor([c not in kept for c in range(n)])
        after["method.merged"] = torch.stack(
            [
                torch.frombuffer(kept[c], dtype=torch.float32) if c in kept else torch.zeros(d)
                for c in range(n)
            ]
        )
        assert kept, "this test needs a group"
    save_file(after, folder / "server.safetensors")
    about = json.loads((folder / "checkpoint.json").read_text())
    for name in ("clients", "server"):
        about["checksums"][name] = zlib.crc32((folder / f"{name}.safetensors").read_bytes())
    (folder / "checkpoint.json").write_text(json.dumps(about))


@pytest.mark.parametrize("whose", ["all", "participants", "none"])
def test_the_final_models_that_are_asked_for_are_saved(whose: str, tmp_path: Path) -> None:
    path = tmp_path / "run"
    result = run(tiny_config("fedpurin", tmp_path, run__rounds=2, run__save_models=whose, **FEW), path)
    expected = {"all": set(range(4)), "participants": taken_part(path, 2), "none": set()}[whose]
    assert {int(file.stem[-4:]) for file in path.glob("models/*")} == expected
    assert result is None or result["missing_clients"] == []


def test_states_survive_a_run_that_was_stopped_before_its_first_checkpoint(tmp_path: Path) -> None:
    config = tiny_config("fedpurin", tmp_path, run__rounds=3, **FEW)
    run(config, tmp_path / "whole")
    run_until(config, tmp_path / "run", 1)
    with pytest.raises(Stop):
        resume_run(tmp_path / "run", StopAt(2, after_client=1))
    resume_run(tmp_path / "run")
    assert_same_runs(tmp_path / "whole", tmp_path / "run")
