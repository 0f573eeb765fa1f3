"""One client's side of a round, the same in every engine.

download -> evaluate "merged" -> train, and train a personal model where the method has one ->
evaluate "trained" -> validate, keep the best -> mask -> encode -> evaluate "upload"

A client's state is a flat dict of tensors:
    round            int64 [1]: the last round it worked in, 0 at first
    weights          float32 [D]: the model in use; where it is the one uploaded, as the server decodes it
    mask             uint8 [b]: its last critical mask, packed (methods with masks)
    residual         float32 [d]: what rounding took from the last upload (with feedback)
    buffer.NAME      batch-norm statistics and other buffers of the model
    memory.NAME      what the method remembers
    best.NAME        its best model by validation samples, where it has such (best.py)
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from fedpurin import wire
from fedpurin.core.bits import all_finite, choose, pack_bits, unpack_bits
from fedpurin.devices import place, prepared
from fedpurin.engines import best
from fedpurin.errors import DivergedError, MismatchError
from fedpurin.job import Job
from fedpurin.layout import read_gradients, read_parameters, write_parameters
from fedpurin.messages import Delivery, Message
from fedpurin.meta import Meta, Validation
from fedpurin.methods.base import Fit
from fedpurin.methods.state import TensorState
from fedpurin.train import ClientData, Score, evaluate, generator, key, refresh_statistics, train

State = dict[str, Tensor]
Objective = Callable[[nn.Module, Tensor, Tensor, Any], Tensor]  # with the client's memory


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


class Stopwatch:
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

    def __init__(self, job: Job, device: str | None = None) -> None:
        """`device`: where this process computes, if run.device does not say it all."""
        self.job, self.config, self.method = job, job.config, job.method
        self.layout, self.selection = job.layout, job.selection
        self.device = device or place(job.config.run.device)
        self.model: nn.Module = prepared(job.model(0), self.device, job.config.train.precision)
        self.lossy = job.config.value_type != "float32"
        nobody_nD = torch.zeros(0, self.layout.total)
        self._memory_type: type[TensorState] = type(
            self.method.memory(self.layout, self.selection, nobody_nD)
        )

    # State

    def initial_state(self, client: int) -> State:
        """Own initial values; what is exchanged starts from those of client 0."""
        model = self.job.model(client)
        weights_nD = self.selection.put(read_parameters(model)[None], self.job.common_start()[None])
        state: State = {"round": torch.zeros(1, dtype=torch.int64), "weights": weights_nD[0]}
        if self.method.has_masks:
            state["mask"] = torch.zeros(-(-self.selection.d // 8), dtype=torch.uint8)
        if self._keeps_residual:
            state["residual"] = torch.zeros(self.selection.d)
        for name, buffer in model.named_buffers():
            state[f"buffer.{name}"] = buffer.clone()
        if self.config.data.validation:
            state |= best.nothing_yet(state)
        return state | _memory_rows(self.method.memory(self.layout, self.selection, weights_nD))

    @property
    def _keeps_residual(self) -> bool:
        wanted = (
            self.config.wire.feedback and not self.method.sends_updates
        )  # which keep residuals of their own
        return wanted and self.lossy and self.selection.d > 0

    def _load(self, weights_D: Tensor, state: State) -> None:
        self._write(weights_D, {name: state[f"buffer.{name}"] for name, _ in self.model.named_buffers()})

    def _write(self, weights_D: Tensor, buffers: Mapping[str, Tensor]) -> None:
        write_parameters(self.model, weights_D)
        with torch.no_grad():
            for name, values in buffers.items():
                self.model.get_buffer(name).copy_(values)

    def _reference(self, state: State) -> wire.Reference | None:
        last = int(state["round"])
        return wire.Reference(last, state["mask"]) if "mask" in state and last else None

    # A round

    def work(self, client: int, t: int, reply: bytes | None, state: State, data: ClientData) -> Work:
        clock = Stopwatch()
        weights_D, memory, merged_round, merged = self._receive(client, t, reply, state, data, clock)
        if not int(state["round"]) and self.job.task.classifies and data.train_y.dim() == 1:
            counts = torch.bincount(data.train_y.cpu(), minlength=self.job.outputs)
            memory = self.method.know(memory, self.selection, counts[None].float())
        start_nD = self.method.start(weights_D[None], self.selection, memory)
        self._load(start_nD[0], state)
        order_seed = self.config.run.order_seed_used

        def inside() -> Tensor:
            return self._inside(self._fit(client, t, start_nD))

        seed = key(order_seed, "training", t, client)
        squares_D = clock.run("train", self._train, data, t, memory, self.method.loss, seed, inside)
        fit = self._fit(client, t, start_nD)
        if squares_D is not None:
            fit = replace(fit, squares_nD=squares_D.cpu()[None])
        statistics = None
        personal_nD = self.method.personal_start(weights_D[None], memory)
        if personal_nD is not None:
            statistics = {name: buffer.clone() for name, buffer in self.model.named_buffers()}
            self._load(personal_nD[0], state)
            seed = key(order_seed, "personal", t, client)
            clock.run("train", self._train, data, t, memory, self.method.personal_loss, seed)
            fit = replace(fit, personal_nD=self._parameters(client, t)[None])
        used_nD, memory = self.method.in_use(fit, memory)
        if used_nD is not None:
            clock.run("train", self._put_in_use, used_nD[0], data)
        trained = clock.run("evaluate", evaluate, self.model, data, self.device, self.job.task)
        state, validation = self._validate(t, state, data, clock)
        message = None
        if not self.method.silent(t):
            message, memory = self.method.upload(fit, memory)
        used_D = fit.end_nD[0] if used_nD is None else used_nD[0]
        state = self._state_after(t, used_D, state, memory)
        upload, score = None, trained
        if message is not None and self.selection.d:  # a model that is all head has nothing for FedPer
            upload, state, sent_D = self._send(client, t, message, state, fit, memory)
            if used_nD is not None:
                state["weights"] = used_D  # whatever was sent
            if statistics is not None or not torch.equal(sent_D, used_D):
                self._write(sent_D, statistics or {})
                score = clock.run("evaluate", evaluate, self.model, data, self.device, self.job.task)
        meta = Meta(len(data.train_y), merged_round, merged, trained, score, clock.seconds(), validation)
        return Work(upload, meta.to_bytes(self.config.run.share_metrics), state)

    def _validate(
        self, t: int, state: State, data: ClientData, clock: Stopwatch
    ) -> tuple[State, Validation | None]:
        """The state with this round's model as the best one if it is; how that stands."""
        samples = data.for_validation()
        if samples is None:
            return state, None
        score = clock.run("evaluate", evaluate, self.model, samples, self.device, self.job.task)
        state = state | best.better_of(state, self.model, score, t)
        return state, Validation(score, int(state["best.round"]))

    def _fit(self, client: int, t: int, start_nD: Tensor) -> Fit:
        end_D = self._parameters(client, t)
        draw = generator(self.config.run.seed, "scores", t, client)
        return Fit(
            self.layout,
            self.selection,
            t,
            start_nD,
            end_D[None],
            read_gradients(self.model).cpu()[None],
            lambda: torch.rand(1, self.selection.d, generator=draw),
        )

    def _parameters(self, client: int, t: int) -> Tensor:
        """[D]: where a training ended."""
        end_D = read_parameters(self.model).cpu()
        if not all_finite(end_D):
            raise DivergedError(f"client {client} diverged in round {t} (NaN or Inf); lower train.lr")
        return end_D

    def _put_in_use(self, weights_D: Tensor, data: ClientData) -> None:
        write_parameters(self.model, weights_D)
        if self.method.ending().refresh:
            refresh_statistics(self.model, data, self.config.train.batch_size, self.device)

    def finish(self, client: int, t: int, reply: bytes | None, state: State, data: ClientData) -> Finish:
        """The last reply, after round t, and the final model: the best by validation, or the merged one."""
        clock = Stopwatch()
        weights_D, memory, merged_round, merged = self._receive(client, t + 1, reply, state, data, clock)
        state = best.in_its_place(state | {"weights": weights_D} | _memory_rows(memory))
        meta = Meta(len(data.train_y), merged_round, merged, None, None, clock.seconds())
        return Finish(meta.to_bytes(self.config.run.share_metrics), state_digest(state), state)

    def _inside(self, fit: Fit) -> Tensor:
        """bool [D]: what the last epochs train. What is not exchanged is always trained."""
        everything_nD = torch.ones_like(fit.end_nD, dtype=torch.bool)
        return self.selection.put(everything_nD, self.method.inside(fit))[0]

    def _train(
        self,
        data: ClientData,
        t: int,
        memory: TensorState,
        objective: Objective,
        seed: int,
        inside: Callable[[], Tensor] | None = None,
    ) -> Tensor | None:
        memory = memory.mapped(lambda rows: rows.to(self.device))

        def loss(model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
            return objective(model, x, y, memory)

        ending = self.method.ending()
        squares_D = train(
            self.model,
            data,
            self.config.train,
            loss,
            seed,
            self.device,
            tail=ending.tail,
            squares=ending.squares,
            optimiser_of=self.job.task.optimiser,
            inside=ending.inside,
            choose=inside,
            rate=self.method.rate(t),
        )
        if ending.refresh:
            refresh_statistics(self.model, data, self.config.train.batch_size, self.device)
        return squares_D

    def _receive(
        self, client: int, t: int, reply: bytes | None, state: State, data: ClientData, clock: Stopwatch
    ) -> tuple[Tensor, TensorState, int, Score | None]:
        """Weights and memory after the reply, and the evaluation of the merged model."""
        weights_D = state["weights"]
        memory = self._memory_of(state)
        merged_round = int(state["round"])  # without messages a client goes on where it stopped
        if reply is not None:
            merged_round, message = self._open_reply(client, t, reply, state)
            delivery = Delivery(message, self.selection, int(state["round"]), merged_round)
            merged_nD, memory = self.method.download(weights_D[None], delivery, memory)
            weights_D = merged_nD[0]
        if merged_round == 0:
            return weights_D, memory, 0, None
        self._load(weights_D, state)
        return (
            weights_D,
            memory,
            merged_round,
            clock.run("evaluate", evaluate, self.model, data, self.device, self.job.task),
        )

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

    def _memory_of(self, state: State) -> TensorState:
        rows = {k.removeprefix("memory."): v[None] for k, v in state.items() if k.startswith("memory.")}
        return self._memory_type.of(rows)

    def _send(
        self, client: int, t: int, message: Message, state: State, fit: Fit, memory: TensorState
    ) -> tuple[bytes, State, Tensor]:
        """The upload's bytes; the state, with what the server will have decoded; the model as it was sent."""
        before, end_D = state, fit.end_nD[0]
        message = self._with_residual(message, before, t)
        address = wire.Address(self.selection.fingerprint, self.selection.d, t, client, "up")
        reference = self._reference(before)
        encoded = wire.encode(
            message,
            address,
            values="float32" if message.exact else self.config.value_type,
            pack=self.config.wire.pack,
            reference=reference,
        )
        known = [reference] if reference else []
        got_nd = wire.decode(encoded.data, address, known=known).message.values_nd
        state = state | {"round": torch.tensor([t])} | _memory_rows(self.method.sent(memory, message, got_nd))
        if message.critical_nd is not None:
            state["mask"] = pack_bits(message.critical_nd[0])
        if self._keeps_residual:
            state["residual"] = (message.values_nd - got_nd)[0]
        if self.method.sends_updates:
            model_nd = self.selection.take(fit.start_nD) + got_nd
            return encoded.data, state, self.selection.put(fit.end_nD, model_nd)[0]
        sent_nD = self.selection.put(end_D[None], got_nd)
        kept_nd = got_nd
        if message.support_nd is not None:
            kept_nd = choose(message.support_nd, got_nd, self.selection.take(end_D[None]))
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
        return replace(message, values_nd=message.values_nd + residual_nd)

    def _state_after(self, t: int, end_D: Tensor, state: State, memory: TensorState) -> State:
        """Keeps `round`, `mask` and `residual` of the round before: `_send` still refers to them."""
        after = state | {"weights": end_D}
        if self.selection.d == 0 or self.method.silent(t):
            after["round"] = torch.tensor([t])
        for name, buffer in self.model.named_buffers():
            after[f"buffer.{name}"] = buffer.detach().cpu().clone()
        return after | _memory_rows(memory)


def _memory_rows(memory: TensorState) -> State:
    return {f"memory.{name}": rows[0] for name, rows in memory.tensors().items()}


def state_digest(state: State) -> bytes:
    """SHA-256 over final parameters, buffers (by name) and last mask."""
    sha = hashlib.sha256()
    for name in ["weights", *sorted(k for k in state if k.startswith("buffer.")), "mask"]:
        if name in state:
            sha.update(state[name].contiguous().numpy().tobytes())
    return sha.digest()
