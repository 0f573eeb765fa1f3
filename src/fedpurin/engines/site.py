"""One client's side of a round, the same in every engine.

download -> evaluate "merged" -> train -> evaluate "trained" -> mask -> encode -> evaluate "upload"

A client's state is a flat dict of tensors:
    round            int64 [1]: the last round it worked in, 0 at first
    weights          float32 [D]: as trained; where values were uploaded, as the server decodes them
    mask             uint8 [b]: its last critical mask, packed (methods with masks)
    residual         float32 [d]: what rounding took from the last upload (with feedback)
    buffer.NAME      batch-norm statistics and other buffers of the model
    memory.NAME      what the method remembers
"""

from __future__ import annotations

import hashlib
import time
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from fedpurin import wire
from fedpurin.core.bits import pack_bits, unpack_bits
from fedpurin.errors import DivergedError, MismatchError
from fedpurin.job import Job
from fedpurin.layout import read_gradients, read_parameters, write_parameters
from fedpurin.messages import Message
from fedpurin.meta import Meta
from fedpurin.methods import Fit, Memory
from fedpurin.train import ClientData, Score, evaluate, generator, key, train

State = dict[str, Tensor]


@dataclass(frozen=True)
class Work:
    """What a client hands back: bytes for the server, and its own next state."""

    upload: bytes | None
    meta: bytes
    state: State


@dataclass(frozen=True)
class Finish:
    """The end of a run for one client."""

    meta: bytes
    digest: bytes  # SHA-256 of final parameters, buffers and last mask
    state: State


class Clock:
    """Seconds of training, of evaluation, and of all the rest."""

    def __init__(self) -> None:
        self.started = time.perf_counter()
        self.spent = {"train": 0.0, "evaluate": 0.0}

    def run(self, what: str, function, *arguments):  # type: ignore[no-untyped-def]
        before = time.perf_counter()
        result = function(*arguments)
        self.spent[what] += time.perf_counter() - before
        return result

    def seconds(self) -> tuple[float, float, float]:
        train_s, evaluate_s = self.spent["train"], self.spent["evaluate"]
        return train_s, evaluate_s, time.perf_counter() - self.started - train_s - evaluate_s


class Site:
    """Runs rounds for any client whose data it is given. Holds one model, refilled for each client."""

    def __init__(self, job: Job) -> None:
        self.job, self.config, self.method = job, job.config, job.method
        self.layout, self.selection = job.layout, job.selection
        self.device = job.config.run.device
        self.model: nn.Module = job.model(0).to(self.device)
        self.lossy = job.config.wire.values != "float32"

    # State

    def initial_state(self, client: int) -> State:
        """Own initial values; what is exchanged starts from those of client 0."""
        model = self.job.model(client)
        common = self.selection.take(read_parameters(self.job.model(0))[None])
        state: State = {
            "round": torch.zeros(1, dtype=torch.int64),
            "weights": self.selection.put(read_parameters(model)[None], common)[0],
        }
        if self.method.has_masks:
            state["mask"] = torch.zeros(-(-self.selection.d // 8), dtype=torch.uint8)
        if self._keeps_residual:
            state["residual"] = torch.zeros(self.selection.d)
        for name, buffer in model.named_buffers():
            state[f"buffer.{name}"] = buffer.clone()
        for name, rows in self.method.memory(self.layout, 1).items():
            state[f"memory.{name}"] = rows[0]
        return state

    @property
    def _keeps_residual(self) -> bool:
        return self.config.wire.feedback and self.lossy and self.selection.d > 0

    def _load(self, weights_D: Tensor, state: State) -> None:
        write_parameters(self.model, weights_D)
        with torch.no_grad():
            for name, buffer in self.model.named_buffers():
                buffer.copy_(state[f"buffer.{name}"])

    def _reference(self, state: State) -> wire.Reference | None:
        last = int(state["round"])
        return wire.Reference(last, state["mask"]) if "mask" in state and last else None

    # A round

    def work(self, client: int, t: int, reply: bytes | None, state: State, data: ClientData) -> Work:
        clock = Clock()
        weights_D, memory, merged_round, merged = self._receive(client, t, reply, state, data, clock)
        self._load(weights_D, state)
        seed = key(self.config.run.seed, "training", t, client)
        clock.run("train", self._train, data, memory, seed)
        end_D = read_parameters(self.model).cpu()
        if not torch.isfinite(end_D).all():
            raise DivergedError(f"client {client} diverged in round {t} (NaN or Inf); lower train.lr")
        trained = clock.run("evaluate", evaluate, self.model, data, self.device)
        fit = Fit(
            self.layout,
            self.selection,
            t,
            weights_D[None],
            end_D[None],
            read_gradients(self.model).cpu()[None],
            lambda: torch.rand(
                1, self.selection.d, generator=generator(self.config.run.seed, "scores", t, client)
            ),
        )
        message, memory = self.method.upload(fit, memory)
        state = self._state_after(t, end_D, state, memory)
        upload, score = None, trained
        if message is not None and self.selection.d:  # a model that is all head has nothing for FedPer
            upload, state, sent_D = self._send(client, t, message, state, end_D)
            if not torch.equal(sent_D, end_D):
                write_parameters(self.model, sent_D)
                score = clock.run("evaluate", evaluate, self.model, data, self.device)
        meta = Meta(len(data.train_y), merged_round, merged, trained, score, clock.seconds())
        return Work(upload, meta.to_bytes(self.config.run.share_metrics), state)

    def finish(self, client: int, t: int, reply: bytes | None, state: State, data: ClientData) -> Finish:
        """The last reply, after round t: the client's final personal model."""
        clock = Clock()
        weights_D, memory, merged_round, merged = self._receive(client, t + 1, reply, state, data, clock)
        state = state | {"weights": weights_D} | {f"memory.{name}": rows[0] for name, rows in memory.items()}
        meta = Meta(len(data.train_y), merged_round, merged, None, None, clock.seconds())
        return Finish(meta.to_bytes(self.config.run.share_metrics), state_digest(state), state)

    def _train(self, data: ClientData, memory: Memory, seed: int) -> None:
        memory = {name: rows.to(self.device) for name, rows in memory.items()}

        def loss(model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
            return self.method.loss(model, x, y, memory)

        train(self.model, data, self.config.train, loss, seed, self.device)

    def _receive(
        self, client: int, t: int, reply: bytes | None, state: State, data: ClientData, clock: Clock
    ) -> tuple[Tensor, Memory, int, Score | None]:
        """Weights and memory after the reply, and the evaluation of the merged model."""
        weights_D = state["weights"]
        memory = {k.removeprefix("memory."): v[None] for k, v in state.items() if k.startswith("memory.")}
        merged_round = int(state["round"])  # without messages a client goes on where it stopped
        if reply is not None:
            merged_round, message = self._open_reply(client, t, reply, state)
            merged_nD, memory = self.method.download(weights_D[None], message, memory, self.selection)
            weights_D = merged_nD[0]
        if merged_round == 0:
            return weights_D, memory, 0, None
        self._load(weights_D, state)
        return weights_D, memory, merged_round, clock.run("evaluate", evaluate, self.model, data, self.device)

    def _open_reply(self, client: int, t: int, reply: bytes, state: State) -> tuple[int, Message]:
        aggregated = wire.peek(reply).round
        last = int(state["round"])
        if not last <= aggregated < t:
            raise MismatchError(
                f"client {client} got the aggregation of round {aggregated} at the start of round {t}, "
                f"having last worked in round {last}"
            )
        reference = self._reference(state)
        address = wire.Address(self.selection.fingerprint, self.selection.d, aggregated, client, "down")
        decoded = wire.decode(reply, address, known=[reference] if reference else [])
        if decoded.confirmed != last:
            raise MismatchError(
                f"the server answers client {client}'s upload of round {decoded.confirmed}, "
                f"but its state is that of round {last}"
            )
        return aggregated, decoded.message

    def _send(
        self, client: int, t: int, message: Message, state: State, end_D: Tensor
    ) -> tuple[bytes, State, Tensor]:
        """The upload's bytes; the state, with what the server will have decoded; the model as it was sent."""
        before = state
        message = self._with_residual(message, before, t)
        address = wire.Address(self.selection.fingerprint, self.selection.d, t, client, "up")
        reference = self._reference(before)
        encoded = wire.encode(
            message,
            address,
            values=self.config.wire.values,
            pack=self.config.wire.pack,
            reference=reference,
        )
        known = [reference] if reference else []
        got_nd = wire.decode(encoded.data, address, known=known).message.values_nd
        state = state | {"round": torch.tensor([t])}
        if message.critical_nd is not None:
            state["mask"] = pack_bits(message.critical_nd[0])
        if self._keeps_residual:
            state["residual"] = (message.values_nd - got_nd)[0]
        sent_nD = self.selection.put(end_D[None], got_nd)
        kept_nd = got_nd
        if message.support_nd is not None:
            kept_nd = torch.where(message.support_nd, got_nd, self.selection.take(end_D[None]))
        state["weights"] = self.selection.put(end_D[None], kept_nd)[0]
        return encoded.data, state, sent_nD[0]

    def _with_residual(self, message: Message, state: State, t: int) -> Message:
        """Error feedback, only where a value travels in two consecutive accepted rounds.

        The state is that of the last accepted round, so a lost upload leaves no residual behind.
        """
        if not self._keeps_residual or int(state["round"]) != t - 1 or t == 1:
            return message
        residual_nd = state["residual"][None]
        if message.critical_nd is not None:
            both = message.critical_nd & unpack_bits(state["mask"], self.selection.d)[None]
            travels = message.support_nd is None or message.support_nd
            residual_nd = torch.where(both & travels, residual_nd, 0.0)
        return Message(message.values_nd + residual_nd, message.critical_nd, message.support_nd)

    def _state_after(self, t: int, end_D: Tensor, state: State, memory: Memory) -> State:
        """Keeps `round`, `mask` and `residual` of the round before: `_send` still refers to them."""
        after = state | {"weights": end_D}
        if self.selection.d == 0:
            after["round"] = torch.tensor([t])
        for name, buffer in self.model.named_buffers():
            after[f"buffer.{name}"] = buffer.detach().cpu().clone()
        for name, rows in memory.items():
            after[f"memory.{name}"] = rows[0]
        return after


def state_digest(state: State) -> bytes:
    """SHA-256 over final parameters, buffers (by name) and last mask."""
    sha = hashlib.sha256()
    for name in ["weights", *sorted(k for k in state if k.startswith("buffer.")), "mask"]:
        if name in state:
            sha.update(state[name].contiguous().numpy().tobytes())
    return sha.digest()
