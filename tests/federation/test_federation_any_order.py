"""Server and sites under any order of messages, losses, repeats, forgeries and restarts.

The sites keep their memory in files, as those of a federation do (`engines.flower.store`), and the server
knows after a restart what its checkpoint holds. Beside them goes a federation to which nothing ever happens:
its clients step forward exactly when a round is closed that has their upload. Whatever order hypothesis
thinks of, the two must never differ.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from torch import Tensor

from fedpurin.engines.flower.client_app import starting_state
from fedpurin.engines.flower.store import LostStateError, Store
from fedpurin.engines.hub import Hub
from fedpurin.engines.site import Site, Work
from fedpurin.engines.states import State
from fedpurin.errors import WireError
from fedpurin.methods.fedfrugal import Common
from tiny import tiny_job

COUNTS = (8, 5, 6)
CLIENTS = st.integers(0, len(COUNTS) - 1)
EXAMPLES = 25 if os.environ.get("CI") == "true" else 3
CASES: dict[str, dict[str, Any]] = {
    "fedavg": {},
    "fedbn, int8 with feedback": {"wire__values": "int8", "wire__feedback": True},
    "fedpurin": {"method__beta": 2},
    "fedpurin, int8 with feedback": {"method__beta": 2, "wire__values": "int8", "wire__feedback": True},
    "fedcac": {"method__beta": 2},
    "pfedsd": {},
    "fedfrugal": {},
    "fedfrugal, float16": {"wire__values": "float16"},
}


class Noting(Site):
    """Remembers what the last training changed of what is exchanged, before anything was left out."""

    delta_d: Tensor

    def _send(self, client: int, t: int, message: Any, state: State, fit: Any, memory: Any) -> Any:
        self.delta_d = self.selection.take(fit.end_nD)[0] - self.selection.take(fit.start_nD)[0]
        return super()._send(client, t, message, state, fit, memory)


class AnyOrder(RuleBasedStateMachine):
    case = ""

    @initialize(first=st.sets(CLIENTS), second=st.sets(CLIENTS))
    def begin(self, first: set[int], second: set[int]) -> None:
        """Two rounds, in which answers of some are lost, so that there is a past."""
        self.job = tiny_job(self.case.partition(",")[0], COUNTS, **CASES[self.case])
        self.folder = Path(tempfile.mkdtemp(dir="/dev/shm" if Path("/dev/shm").is_dir() else None))
        self.site = Noting(self.job)
        self.hub, self.ideal_hub = Hub(self.job), Hub(self.job)
        self.stores = [Store(self.folder / str(c), "run", c) for c in range(len(COUNTS))]
        self.ideal: dict[int, State] = {c: self.site.initial_state(c) for c in range(len(COUNTS))}
        self.t, self.open, self.over = 0, False, False
        self.finals: dict[int, bytes] = {}  # digests of final models
        self.answers: dict[tuple[int, int], Work] = {}  # by round and client
        self.replies: dict[tuple[int, int], bytes | None] = {}
        self.made: dict[tuple[int, int, bytes | None], Work] = {}  # also by the reply it answers
        self.deltas: dict[tuple[int, int], Tensor] = {}
        self.files: dict[int, str] = {}  # of those that have not worked since the round began
        self.sent = 0  # bytes since the ledger was last taken
        d = self.job.selection.d
        self.owed = {c: torch.zeros(d, dtype=torch.float64) for c in self.ideal}  # trained, not yet sent
        self.means = torch.zeros(d, dtype=torch.float64)  # the sum of all rounds' means
        self.checkpoints: list[Any] = []
        self._remember()
        self.a_round_of_all(first, second)
        self.a_round_of_all(second, first)

    def teardown(self) -> None:
        if hasattr(self, "folder"):
            shutil.rmtree(self.folder)

    # What a server does

    @precondition(lambda self: not self.over)
    @rule(lost=st.sets(CLIENTS), twice=st.sets(CLIENTS))
    def a_round_of_all(self, lost: set[int], twice: set[int]) -> None:
        """An open one is given up first. Some answers are lost, some clients are asked twice."""
        if self.open:
            self.the_server_restarts()
        self.begin_a_round(set(self.ideal))
        for client in self.ideal:
            for _ in range(1 + (client in twice)):
                self.a_client_works(client)
        for client in sorted(set(self._undelivered()) - lost):
            self.an_answer_arrives(self._undelivered().index(client))
            if client in twice:
                self._refuses(client, self.answers[self.t, client])
        if self.hub.metas:
            self.close_the_round()

    @precondition(lambda self: not self.open and not self.over)
    @rule(asked=st.sets(CLIENTS, min_size=1))
    def begin_a_round(self, asked: set[int]) -> None:
        self.t, self.open = self.t + 1, True
        self.hub.begin(self.t, sorted(asked))
        self.files = {c: _digest(store.folder) for c, store in enumerate(self.stores)}

    @precondition(lambda self: self.open)
    @rule(which=CLIENTS)
    def a_reply_is_lost(self, which: int) -> None:
        self._reply(self._one_of(self.hub.asked, which))

    @precondition(lambda self: self.open)
    @rule(which=CLIENTS)
    def a_client_works(self, which: int) -> None:
        """For the first time, or again: its answer was lost, or the server has restarted."""
        client = self._one_of(self.hub.asked, which)
        reply, store = self._reply(client), self.stores[client]
        self.files.pop(client, None)
        try:
            start = starting_state(self.site, store, self.t, reply)
        except LostStateError:
            self._forget(client)
            return
        if not self.hub.known(client).round:  # the server counts on nothing: it begins anew
            self._forget(client)
        _assert_equal(start, self.ideal[client], f"client {client} starts from another state")
        done = self.site.work(client, self.t, reply, start, self.job.client_data(client))
        store.save(self.t, start, done.state)
        made = self.made.setdefault((self.t, client, reply), done)
        assert done.upload == made.upload, "a repeated round gave other bytes"
        self.answers[self.t, client], self.replies[self.t, client] = done, reply
        self.deltas[self.t, client] = self.site.delta_d.double()

    @precondition(lambda self: self.open and self._undelivered())
    @rule(which=CLIENTS)
    def an_answer_arrives(self, which: int) -> None:
        client = self._one_of(self._undelivered(), which)
        done = self.answers[self.t, client]
        assert done.upload is not None
        self.hub.accept(client, done.upload, done.meta)
        self.sent += len(done.upload) + len(done.meta)

    @precondition(lambda self: self.open and self.answers)
    @rule(which=st.integers(0, 99), client=CLIENTS, data=st.data())
    def something_else_arrives(self, which: int, client: int, data: st.DataObject) -> None:
        """A replay of any answer, by any client; a second one; one with a flipped bit."""
        made_in, made_by = self._one_of(sorted(self.answers), which)
        done = self.answers[made_in, made_by]
        assert done.upload is not None
        upload = bytearray(done.upload)
        if (made_in, made_by) == (self.t, client) and client in self._undelivered():
            at = data.draw(st.integers(0, 8 * len(upload) - 1))
            upload[at // 8] ^= 1 << at % 8
        self._refuses(client, replace(done, upload=bytes(upload)))

    def _refuses(self, client: int, done: Work) -> None:
        """And nothing changes by it."""
        before = (set(self.hub.metas), len(self.hub.ledger), _copy(self.hub.state()))
        with pytest.raises(WireError):
            self.hub.accept(client, done.upload, done.meta)
        assert (set(self.hub.metas), len(self.hub.ledger)) == before[:2]
        _assert_equal(self.hub.state(), before[2], "a refused upload changed the server")

    @precondition(lambda self: self.open and self.hub.metas)
    @rule()
    def close_the_round(self) -> None:
        present = sorted(self.hub.metas)
        got = {c: self._decoded(c) for c in present}
        record = self.hub.close(self.t)
        lines = self.hub.take_ledger()
        assert sum(sum(line["bytes"].values()) for line in lines) == self.sent, "ledger and bytes differ"
        for client, digest in self.files.items():
            assert _digest(self.stores[client].folder) == digest, f"client {client} did not take part"
        self.ideal_hub.begin(self.t, self.hub.asked)
        for client in present:
            done = self.answers[self.t, client]
            self.ideal_hub.accept(client, done.upload, done.meta)
            self.ideal[client] = done.state
            self.owed[client] += self.deltas[self.t, client] - got[client]
        told, ideal = record, self.ideal_hub.close(self.t)
        assert {**told, "seconds": 0} == {**ideal, "seconds": 0}
        shares = torch.tensor([float(COUNTS[c]) for c in present], dtype=torch.float64)
        self.means += (torch.stack([got[c] for c in present]) * shares[:, None]).sum(0) / shares.sum()
        self.open, self.sent = False, 0
        self._assert_agreement()
        self._remember()

    def _remember(self) -> None:
        """A checkpoint; two are kept."""
        owed = {c: tensor.clone() for c, tensor in self.owed.items()}
        ideal = (_copy(self.ideal_hub.state()), dict(self.ideal), owed, self.means.clone())
        self.checkpoints = [*self.checkpoints[-1:], (self.t, _copy(self.hub.state()), ideal)]

    @precondition(lambda self: not self.open and self.hub.aggregated)
    @rule(which=CLIENTS)
    def the_run_ends_for_a_client(self, which: int) -> None:
        """The last reply; there are no rounds after it, but it may be asked for again."""
        self.over = True
        reply, store = self._reply(which), self.stores[which]
        try:
            start = starting_state(self.site, store, self.t + 1, reply)
        except LostStateError:
            self._forget(which)
            return
        if not self.hub.known(which).round:
            self._forget(which)
        _assert_equal(start, self.ideal[which], f"client {which} ends from another state")
        done = self.site.finish(which, self.t, reply, start, self.job.client_data(which))
        store.save(self.t + 1, start, done.state)
        assert self.finals.setdefault(which, done.digest) == done.digest, "another final model"

    def _forget(self, client: int) -> None:
        self.hub.forget(client)
        self.ideal_hub.forget(client)
        self.ideal[client] = self.site.initial_state(client)
        self.owed[client].zero_()
        self.finals.pop(client, None)

    @rule()
    def the_server_restarts(self) -> None:
        """What was not checkpointed never happened; the round is asked for again, perhaps of others."""
        self.hub = Hub(self.job)
        self.t, kept, (state, ideal, owed, means) = self.checkpoints[-1]
        self.hub.restore(_copy(kept))  # whom it forgot since then it knows again
        self.ideal_hub.restore(_copy(state))
        self.finals = {c: d for c, d in self.finals.items() if self.ideal[c] is ideal[c]}
        self.ideal, self.owed = dict(ideal), {c: tensor.clone() for c, tensor in owed.items()}
        self.means = means.clone()
        self.open, self.sent = False, 0

    @precondition(lambda self: len(self.checkpoints) == 2)
    @rule()
    def the_newest_checkpoint_is_damaged(self) -> None:
        """The server goes on from the one before: a round that was closed is asked for again. What was on the
        way to the process that is gone is lost: Flower delivers answers to the order they answer."""
        del self.checkpoints[-1]
        self.over = False
        self.the_server_restarts()
        self.answers = {(t, client): done for (t, client), done in self.answers.items() if t <= self.t}

    # What happens at a site

    @rule(client=CLIENTS)
    def a_site_loses_its_files(self, client: int) -> None:
        shutil.rmtree(self.stores[client].folder, ignore_errors=True)
        self.files[client] = _digest(self.stores[client].folder)

    @precondition(lambda self: any(store.state_file.exists() for store in self.stores))
    @rule(which=CLIENTS, earlier=st.booleans(), at=st.integers(0, 2**20))
    def a_bit_flips_in_a_sites_file(self, which: int, earlier: bool, at: int) -> None:
        client = self._one_of([c for c, store in enumerate(self.stores) if store.state_file.exists()], which)
        store = self.stores[client]
        file = store.earlier_file if earlier and store.earlier_file.exists() else store.state_file
        content = bytearray(file.read_bytes())
        content[at // 8 % len(content)] ^= 1 << at % 8
        file.write_bytes(content)
        self.files[client] = _digest(store.folder)

    @precondition(lambda self: any(store.folder.exists() for store in self.stores))
    @rule(which=CLIENTS)
    def a_site_makes_a_backup(self, which: int) -> None:
        client = self._one_of([c for c, store in enumerate(self.stores) if store.folder.exists()], which)
        shutil.copytree(self.stores[client].folder, self._backup(client), dirs_exist_ok=True)

    @precondition(lambda self: any(self._backup(c).exists() for c in range(len(COUNTS))))
    @rule(which=CLIENTS)
    def a_site_goes_back_to_its_backup(self, which: int) -> None:
        client = self._one_of([c for c in range(len(COUNTS)) if self._backup(c).exists()], which)
        shutil.rmtree(self.stores[client].folder, ignore_errors=True)
        shutil.copytree(self._backup(client), self.stores[client].folder)
        self.files[client] = _digest(self.stores[client].folder)

    # What holds at any time

    @invariant()
    def the_server_knows_what_the_ideal_one_knows(self) -> None:
        if hasattr(self, "hub") and not self.open:
            # where in its file a record lies depends on restarts; what it says does not
            ours, ideal = (
                {key: tensor for key, tensor in hub.state().items() if not key.endswith(".slot")}
                for hub in (self.hub, self.ideal_hub)
            )
            _assert_equal(ours, ideal, "the server differs")

    def _assert_agreement(self) -> None:
        """On the common model, also with those who would get their reply only now."""
        for client, state in self.ideal.items():
            if int(self.hub.known(client).round) != int(state["round"]):
                continue  # it is about to learn that it was forgotten
            reply = self.hub.method.reply(self.hub.server, client, self.hub.known(client))
            merged = self._merged(client, state)
            assert reply is not None
            if isinstance(self.hub.server, Common):
                assert torch.equal(merged["memory.change"], self.hub.server.change), f"client {client}"
            elif reply.support_nd is None:
                taken_d = self.job.selection.take(merged["weights"][None])[0]
                torch.testing.assert_close(taken_d, self.hub._rounded(reply)[0], rtol=0, atol=0)

    @invariant()
    def no_residual_is_lost_or_counted_twice(self) -> None:
        """Where a method sends changes: all that was trained is either at the server or still owed."""
        if not hasattr(self, "hub") or self.open or not self.job.method.sends_updates:
            return
        for client, state in self.ideal.items():
            _assert_close(state["memory.residual"], self.owed[client])
        server = self.hub.server
        assert isinstance(server, Common)
        _assert_close(server.change.double() + server.residual, self.means)

    # Helpers

    def _reply(self, client: int) -> bytes | None:
        reply = self.hub.reply(client)
        self.sent += len(reply or b"")
        return reply

    def _merged(self, client: int, state: State) -> State:
        """The client's state after the reply it would get now; nothing is counted."""
        counted = list(self.hub.ledger)
        reply = self.hub.reply(client)
        self.hub.ledger = counted
        return self.site.finish(client, self.hub.aggregated, reply, state, self.job.client_data(client)).state

    def _decoded(self, client: int) -> Tensor:
        """float64 [d]: what the server has got from it in this round."""
        row = self.hub.asked.index(client)
        assert self.hub._values is not None
        return self.hub._values[row].double().clone()

    def _undelivered(self) -> list[int]:
        """Who has an answer of this round on the way that builds upon the server's last reply."""
        return [c for c in self.hub.asked if (self.t, c) in self.answers and c not in self.hub.metas
                and self.replies[self.t, c] == self._peek(c)]  # fmt: skip

    def _peek(self, client: int) -> bytes | None:
        counted = list(self.hub.ledger)
        reply = self.hub.reply(client)
        self.hub.ledger = counted
        return reply

    def _backup(self, client: int) -> Path:
        return self.folder / f"backup-{client}"

    @staticmethod
    def _one_of(choices: Iterable[Any], which: int) -> Any:
        listed = list(choices)
        return listed[which % len(listed)]


def _copy(state: State) -> State:
    return {name: tensor.clone() for name, tensor in state.items()}


def _assert_equal(found: State, expected: State, what: str) -> None:
    assert found.keys() == expected.keys(), what
    for name, tensor in expected.items():
        assert torch.equal(found[name], tensor), f"{what}: {name}"


def _assert_close(found: Tensor, expected: Tensor) -> None:
    """Sums of a few rounds in float32."""
    torch.testing.assert_close(found.double(), expected, rtol=1e-4, atol=1e-5)


def _digest(folder: Path) -> str:
    sha = hashlib.sha256()
    for path in sorted(folder.rglob("*")) if folder.exists() else []:
        sha.update(path.name.encode() + (path.read_bytes() if path.is_file() else b""))
    return sha.hexdigest()


@pytest.mark.parametrize("case", CASES)
def test_any_order_of_messages_losses_repeats_and_restarts_keeps_the_invariants(case: str) -> None:
    machine = type("AnyOrderOfThis", (AnyOrder,), {"case": case}).TestCase
    machine.settings = settings(
        max_examples=EXAMPLES, stateful_step_count=30, deadline=None, derandomize=True,
        suppress_health_check=list(HealthCheck),
    )  # fmt: skip
    machine("runTest").runTest()
