"""A site: its own data, what it refuses to start with, and what it tells the person there."""

from __future__ import annotations

import errno
import json
import os
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tomli_w
from federation_fakes import Federation, small
from flwr.app import Message

import fedpurin
from fedpurin import files
from fedpurin.cli.main import build_parser
from fedpurin.config import Config
from fedpurin.engines.flower import records
from fedpurin.engines.flower.client_app import client_data
from fedpurin.engines.flower.journal import record_sent
from fedpurin.engines.flower.peers import Peers
from fedpurin.engines.flower.settings import PROGRESS, SiteSettings
from fedpurin.errors import ConfigError, DataError, EngineError
from fedpurin.federation import client as client_command
from fedpurin.federation import commands, engine, printing
from fedpurin.federation.keys import make_keys
from fedpurin.federation.service import free_port
from fedpurin.job import Job


class Screen:
    def __init__(self) -> None:
        self.lines: list[str] = []

    def print(self, *objects: Any, **options: Any) -> None:
        self.lines.append(" ".join(map(str, objects)))


# Own data


def write_site(path: Path, seed: int, shape: tuple[int, ...] = (1, 8, 8), classes: int = 3) -> str:
    random = np.random.default_rng(seed)
    x = random.integers(0, 256, (60, *shape), dtype=np.uint8)
    np.savez(path, x=x, y=random.integers(0, classes, 60))
    return str(path)


def own_config() -> Config:
    return small().updated({"data": {"dataset": "own", "shape": [1, 8, 8], "classes": 3}})


def test_every_site_trains_on_its_own_data(tmp_path: Path) -> None:
    federation = Federation(tmp_path, own_config())
    federation.grid.data = [write_site(tmp_path / f"{i}.npz", seed=i) for i in range(3)]
    result = federation.run()
    assert result["digest"] is not None
    assert result["missing_clients"] == []


def test_sites_without_metrics_keep_their_best_model_and_tell_nobody(tmp_path: Path) -> None:
    settings = {"run": {"share_metrics": False}, "data": {"validation": 0.3}}
    federation = Federation(tmp_path, own_config().updated(settings))
    federation.grid.data = [write_site(tmp_path / f"{i}.npz", seed=i) for i in range(3)]
    assert federation.run()["digest"] is not None
    ledger = (federation.path / "ledger.jsonl").read_text().splitlines()
    ups = [line for line in map(json.loads, ledger) if line["direction"] == "up"]
    assert {line["bytes"]["meta"] for line in ups} == {4}  # the number of training samples
    for client in range(3):
        noted = (federation.grid.state(client) / "progress.jsonl").read_text().splitlines()
        assert json.loads(noted[-1])["best_round"] in (1, 2)


def test_a_site_whose_data_does_not_fit_is_left_out_and_told_why(tmp_path: Path) -> None:
    federation = Federation(tmp_path, own_config())
    federation.grid.data = [
        write_site(tmp_path / "0.npz", seed=0),
        write_site(tmp_path / "1.npz", seed=1),
        write_site(tmp_path / "2.npz", seed=2, shape=(3, 9, 9)),
    ]
    federation.run()
    reasons = {event["reason"] for event in federation.told("failed") if event["client"] == 2}
    assert any("[3, 9, 9]" in reason and "[1, 8, 8]" in reason for reason in reasons)


def test_own_data_is_asked_for_and_only_used_where_agreed(tmp_path: Path) -> None:
    without = Federation(tmp_path / "a", own_config())
    with pytest.raises(EngineError, match="start with --data"):
        without.run()
    unexpected = Federation(tmp_path / "b", small())
    unexpected.grid.data = [write_site(tmp_path / f"{i}.npz", seed=i) for i in range(3)]
    with pytest.raises(EngineError, match='dataset = "own"'):
        unexpected.run()


def write_folder(path: Path, classes: list[str], seed: int) -> str:
    from PIL import Image

    random = np.random.default_rng(seed)
    for name in classes:
        (path / name).mkdir(parents=True)
        for number in range(10):
            pixels = random.integers(0, 256, (8, 8), dtype=np.uint8)
            Image.fromarray(pixels).save(path / name / f"{number}.png")
    return str(path)


def animals(**data: Any) -> Config:
    return small(clients=2).updated({"data": {"dataset": "own", "shape": [1, 8, 8], **data}})


def test_sites_with_different_folders_number_the_classes_alike(tmp_path: Path) -> None:
    job = Job.build(animals(class_names=["cat", "dog", "fox"]))
    all_three = client_data(job, 0, write_folder(tmp_path / "0", ["cat", "dog", "fox"], seed=0))
    two = client_data(job, 1, write_folder(tmp_path / "1", ["cat", "fox"], seed=1))
    assert set(all_three.train_y.tolist()) == {0, 1, 2}
    assert set(two.train_y.tolist()) == {0, 2}


def test_a_folder_that_is_no_class_of_the_federation_is_refused(tmp_path: Path) -> None:
    job = Job.build(animals(class_names=["cat", "dog"]))
    with pytest.raises(DataError, match="folders fox, which are no classes; accepted: cat, dog"):
        client_data(job, 0, write_folder(tmp_path / "0", ["cat", "fox"], seed=0))


def test_folders_are_not_numbered_by_guess(tmp_path: Path) -> None:
    job = Job.build(animals(classes=3))
    with pytest.raises(ConfigError, match="class_names"):
        client_data(job, 0, write_folder(tmp_path / "0", ["cat", "fox"], seed=0))


def test_labels_beyond_the_classes_are_refused(tmp_path: Path) -> None:
    job = Job.build(animals(class_names=["cat", "dog"]))
    with pytest.raises(DataError, match="label 2 found, but there are 2 classes"):
        client_data(job, 0, write_site(tmp_path / "0.npz", seed=0, classes=3))


def test_class_names_must_name_each_class_once(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"data\.class_names"):
        Job.build(animals(classes=3, class_names=["cat", "dog"]))
    twice = Job.build(animals(class_names=["cat", "cat", "dog"]))
    with pytest.raises(ConfigError, match="names a class twice"):
        client_data(twice, 0, write_folder(tmp_path / "0", ["cat", "dog"], seed=0))


# What a server may ask for


def permits(tmp_path: Path, **settings: Any) -> SiteSettings:
    return SiteSettings(0, str(tmp_path), **settings)


@pytest.mark.parametrize(
    "table",
    [
        {"model": {"name": "os:system"}},
        {"data": {"dataset": "os.path:exists"}},
        {"run": {"method": "evil.package:Method"}},
        {"future": {"deep": {"list": ["cnn", "os:system"]}}},
    ],
)
def test_a_function_that_the_site_has_not_allowed_is_refused_before_anything_is_imported(
    tmp_path: Path, table: dict[str, Any]
) -> None:
    with pytest.raises(ConfigError, match=r"which this site does not allow: .* --allow "):
        permits(tmp_path, allow=("my.models:net",)).read(tomli_w.dumps(table))


GOOD_MODEL = """
def model(shape, classes):
    return MLP(784, classes)
"""
SITE_WITHOUT_A_NODE = """
import sys
from pathlib import Path
from fedpurin.engines.flower import worker

def build(site):
    for text in sys.argv[2:]:
        try:
            site.client._build(text)
            print("built")
        except Exception as error:
            print(f"{type(error).__name__}: {error}")

worker.Worker.run = build
worker.main(Path(sys.argv[1]))
"""


def test_a_sites_process_imports_nothing_but_what_its_command_allows(tmp_path: Path) -> None:
    """Also by names that no Python programmer would write; Python imports them all the same."""
    for module in ("setup-db", "éclair", "speed", "good"):
        program = f"from pathlib import Path\nPath({module + '.ran'!r}).touch()\n"
        (tmp_path / f"{module}.py").write_text(program + "from fedpurin.models import MLP\n" + GOOD_MODEL)
    permits(tmp_path, allow=("good:model",), address="127.0.0.1:1").save(tmp_path / "settings.json")
    asked = [f"[model]\nname = '{name}:{of}'\n" for name in ("setup-db", "éclair") for of in ("model", "0")]
    asked += ["[model]\nname = 'speed:0'\n", "[run]\nmethod = 'setup-db:model'\n"]
    asked += ["[data]\ndataset = 'setup-db:model'\n", "[model]\nname = 'good:model'\n"]
    told = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", SITE_WITHOUT_A_NODE, str(tmp_path / "settings.json"), *asked],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        env=os.environ | {"PYTHONPATH": str(Path(fedpurin.__file__).parents[1])},
    )
    lines = told.stdout.splitlines()
    assert all("Error" in line and "allow" in line for line in lines[:-1]), told.stderr + told.stdout
    assert len(lines) == len(asked), told.stderr
    assert lines[-1] == "built"
    assert [path.name for path in tmp_path.glob("*.ran")] == ["good.ran"]


def test_a_round_beyond_the_run_is_refused(tmp_path: Path) -> None:
    """A site that agreed to two rounds is not asked for a third under the same configuration."""
    federation = Federation(tmp_path, small())
    federation.run()
    for t in (0, 3, -1):
        order = Message(records.content(round=t), federation.grid.node(0), records.WORK, group_id="x")
        answer = records.read(federation.grid.answer(0, order))
        assert answer["error"] == f"the server asks for round {t} of a run of 2 rounds"


def test_an_allowed_function_and_built_in_models_pass(tmp_path: Path) -> None:
    text = tomli_w.dumps({"model": {"name": "my.models:net"}, "run": {"device": "cuda:0"}})
    assert permits(tmp_path, allow=("my.models:net",)).read(text).model.name == "my.models:net"
    assert permits(tmp_path).read("[model]\nname = 'resnet8'\n").model.name == "resnet8"


def test_a_site_opens_no_file_that_a_server_names(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="opens no files that the server names"):
        permits(tmp_path).read("[data]\nsplit_file = '/etc/passwd'\n")
    assert permits(tmp_path).read("[data]\ndir = '/etc'\n").data.dir == ""


def test_a_server_of_another_version_is_refused_at_both_ends(tmp_path: Path) -> None:
    screen: list[str] = []
    federation = Federation(tmp_path, small())
    with pytest.MonkeyPatch.context() as patch:
        hello = Peers._hello

        def older(self: Peers, node: int) -> Any:
            message = hello(self, node)
            records.read(message)["version"] = 1
            return message

        patch.setattr(Peers, "_hello", older)
        with pytest.raises(EngineError, match="0 of 3 clients are connected"):
            federation.run()
    reason = "speaks protocol 1; client 0 has fedpurin"
    assert any(reason in event["reason"] for event in federation.told("refused"))
    for line in (federation.grid.state(0) / PROGRESS).read_text().splitlines():
        screen.append(printing.describe_site(json.loads(line)))
    assert any(reason in line for line in screen)


# Starting


def start(tmp_path: Path, **options: Any) -> int:
    return client_command.take_part(state=tmp_path / "state", console=Screen(), **options)


def test_a_client_needs_to_know_its_server(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="name the server"):
        start(tmp_path)


def test_a_client_without_keys_must_say_which_one_it_is(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="say which client this is"):
        start(tmp_path, server="127.0.0.1:8443")


def test_a_client_cannot_take_the_folder_of_another(tmp_path: Path) -> None:
    make_keys(tmp_path / "keys", ["127.0.0.1"], sites=2)
    with pytest.raises(ConfigError, match="folder of client 1, not of client 0"):
        start(tmp_path, key_folder=tmp_path / "keys/site-1", client_id=0)


def test_data_that_cannot_be_read_shows_before_anything_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client_command, "check_server", lambda address, ca: None)
    with pytest.raises(DataError, match="does not exist"):
        start(tmp_path, server="127.0.0.1:8443", client_id=0, data="nowhere")
    assert not (tmp_path / "state").exists()


def test_an_absent_server_shows_before_anything_starts(tmp_path: Path) -> None:
    with pytest.raises(EngineError, match="nothing answers at"):
        start(tmp_path, server=f"127.0.0.1:{free_port()}", client_id=0)
    assert not (tmp_path / "state").exists()


def test_two_clients_cannot_share_a_state_directory(tmp_path: Path) -> None:
    with (
        client_command.only_client_of(tmp_path),
        pytest.raises(ConfigError, match="in use by another client"),
        client_command.only_client_of(tmp_path),
    ):
        pass


def test_a_federation_on_this_machine_checks_its_data_sets_first(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="1 data sets for 3 clients"):
        commands.up(own_config(), out=tmp_path / "run", console=Screen(), data=["a.npz"])
    with pytest.raises(ConfigError, match='needs dataset = "own"'):
        commands.up(small(), out=tmp_path / "run", console=Screen(), data=["a.npz"] * 3)
    good = write_site(tmp_path / "good.npz", seed=1)
    bad = write_site(tmp_path / "bad.npz", seed=2, shape=(1, 9, 9))
    for item, says in (("nope", "nope does not exist"), (str(bad), "bad.npz: samples of shape")):
        with pytest.raises(DataError, match=says):
            commands.up(own_config(), out=tmp_path / "run", console=Screen(), data=[good, item, good])
    assert not (tmp_path / "run").exists()


def test_the_command_to_go_on_with_names_the_own_data_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = [write_site(tmp_path / f"site {i}.npz", seed=i) for i in range(3)]

    def fail(*_: Any, **options: Any) -> None:
        raise EngineError("out of power")

    monkeypatch.setattr(engine, "run_job", fail)
    with pytest.raises(EngineError) as told:
        commands.up(own_config(), out=tmp_path / "run", console=Screen(), data=files)
    command = shlex.split(str(told.value).partition("continue with: ")[2])
    arguments = build_parser().parse_args(command[1:])
    assert (arguments.resume, arguments.out, arguments.data) == (True, tmp_path / "run", files)


# What people read


def test_the_keys_command_says_what_to_do_next(tmp_path: Path) -> None:
    screen = Screen()
    assert commands.keys(tmp_path / "keys", console=screen, names=["fed.example.org"], sites=2) == 0
    text = "\n".join(screen.lines)
    for needed in ("site-0", "site-1", "federation server", "federation client", "backup"):
        assert needed in text


def test_every_event_is_told_in_one_plain_line(tmp_path: Path) -> None:
    record = {"round": 2, "upload": {"accuracy": [0.5, None, 1.0]}, "seconds": {"round": 2.0}}
    later = {"round": 3, "upload": {"accuracy": [0.9]}, "seconds": {"round": 7.0}}
    (tmp_path / "metrics.jsonl").write_text(f"{json.dumps(record)}\n{json.dumps(later)}\n")

    def told(**event: Any) -> str | None:
        return printing.describe_event(event, tmp_path)

    assert told(event="waiting", have=1, want=3) == "waiting for clients: 1 of 3 connected"
    assert told(event="failed", round=2, client=1, reason="x") == "round 2: client 1 left out: x"
    assert told(event="round_done", round=2, accepted=3) == "round 2: 3 uploads, mean accuracy 0.750, 2.0 s"
    assert told(event="warning", text="round-00002 is damaged") == "round-00002 is damaged"
    assert told(event="started", pid=1) is None


def test_a_site_is_told_about_its_rounds_and_its_model() -> None:
    line = {"round": 2, "of": 9, "accuracy": 0.5, "received": 1000, "sent": 20}
    assert (
        printing.describe_site(line) == "round 2 of 9: trained, accuracy 0.500, received 1,000 bytes, sent 20"
    )
    last = {"final": True, "model": "/m", "accuracy": None, "best_round": 0}
    assert printing.describe_site(last) == "the run is over; the personal model is /m"
    told = printing.describe_site({**last, "best_round": 3})
    assert told == "the run is over; the personal model of round 3, the best by validation, is /m"


def test_traffic_is_told_beside_the_ledger(tmp_path: Path) -> None:
    lines = [{"direction": "up", "bytes": {"header": 60, "values": 940}}] * 2
    (tmp_path / "ledger.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    (told,) = printing.describe_traffic(2100, 0, tmp_path)  # 100 more for 2 messages of 1,000 bytes
    assert "50 more per message, 5.00 %" in told


def test_the_commands_start_without_torch() -> None:
    code = "import sys, fedpurin.federation.commands; raise SystemExit('torch' in sys.modules)"
    env = os.environ | {"PYTHONPATH": str(Path(__file__).parents[2] / "src")}
    assert subprocess.run([sys.executable, "-c", code], env=env).returncode == 0


def test_a_message_that_a_full_disk_cuts_short_is_not_kept_as_if_it_were_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Full(files.Disk):
        def fill(self, path: Path, write: Callable[[Path], object]) -> None:
            path.write_bytes(b"half")
            raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(files, "disk", Full())
    with pytest.raises(OSError, match="No space left"):
        record_sent(tmp_path, "run", 1, "upload", [b"half and half"], keep=True)
    assert list((tmp_path / "run" / "sent").iterdir()) == []
