"""One client's side of a round, the same in every engine.

download -> evaluate "merged" -> train, and train a personal model where the method has one ->
evaluate "trained" -> validate, keep the best -> mask -> encode -> evaluate "upload"
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from fedpurin import wire
from fedpurin.core.bits import all_finite, pack_bits, unpack_bits
from fedpurin.devices import place, prepared
from fedpurin.engines import states
from fedpurin.engines.states import State
from fedpurin.errors import DivergedError, MismatchError
from fedpurin.job import Job
from fedpurin.layout import read_gradients, read_parameters, write_parameters
from fedpurin.messages import Delivery, Message
from fedpurin.meta import Meta, Stopwatch, Validation
from fedpurin.methods.base import Fit
from fedpurin.methods.state import TensorState
from fedpurin.train import ClientData, Score, evaluate, generator, key, refresh_statistics, train
from fedpurin.value_types import find_type


@dataclass(frozen=True)
class Work:
    """What a client hands back: bytes for the server, and its own next state."""

    upload: bytes | None
    meta: bytes
    state: State
    digest: bytes = b""  # at the end of a run: SHA-256 of final parameters, buffers and last mask


class Site:
    """Runs rounds for any client whose data it is given. Holds one model, refilled for each client."""

    def __init__(self, job: Job, device: str | None = None) -> None:
        """`device`: where this process computes, if run.device does not say it all."""
        self.job, self.config, self.method = job, job.config, job.method
        self.layout, self.selection = job.layout, job.selection
        self.device = device or place(job.config.run.device)
        self.model: nn.Module = prepared(job.model(0), self.device, job.config.train.precision)
        rounds = job.config.value_type != "float32" and self.selection.d > 0
        # A method that sends updates keeps residuals of its own.
        self._keeps_residual = job.config.wire.feedback and rounds and not self.method.sends_updates
        nobody_nD = torch.zeros(0, self.layout.total)
        memory: TensorState = self.method.memory(self.layout, self.selection, nobody_nD)
        self._memory_type = type(memory)

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
        state |= states.buffers_of(model)
        if self.config.data.validation:
            state |= states.no_best_yet(state)
        return state | states.memory_rows(self.method.memory(self.layout, self.selection, weights_nD))

    def _state_after(self, t: int, end_D: Tensor, state: State, memory: TensorState) -> State:
        """Keeps `round`, `mask` and `residual` of the round before: `_send` still refers to them."""
        after = state | {"weights": end_D} | states.buffers_of(self.model) | states.memory_rows(memory)
        if self.selection.d == 0 or self.method.silent(t):
            after["round"] = torch.tensor([t])
        return after

    def _load(self, weights_D: Tensor, buffers: State) -> None:
        """Put these weights into the model, with the buffers of this state."""
        write_parameters(self.model, weights_D)
        with torch.no_grad():
            for name, buffer in self.model.named_buffers():
                buffer.copy_(buffers[f"buffer.{name}"])

    # A round

    def work(
        self, client: int, t: int, reply: bytes | memoryview | None, state: State, data: ClientData
    ) -> Work:
        weights_D, memory, merged_round, merged = self._receive(client, t, reply, state, data)
        if not int(state["round"]) and self.job.task.classifies and data.train_y.dim() == 1:
            counts = torch.bincount(data.train_y.cpu(), minlength=self.job.outputs)
            memory = self.method.know(memory, self.selection, counts[None].float())
        fit, statistics = self._fit_both(client, t, weights_D, memory, state, data)
        used_nD, memory = self.method.in_use(fit, memory)
        if used_nD is not None:
            self._put_in_use(used_nD[0], data)
        trained = self._evaluate(data)
        state, validation = self._validate(t, state, data)
        message = None
        if not self.method.silent(t):
            message, memory = self.method.upload(fit, memory)
        used_D = fit.end_nD[0] if used_nD is None else used_nD[0]
        state = self._state_after(t, used_D, state, memory)
        upload, score = None, trained
        if message is not None and self.selection.d:  # a model that is all head has nothing for FedPer
            buffers = statistics or state
            upload, state, sent_D = self._send(client, t, message, state, fit, memory)
            if used_nD is not None:
                state["weights"] = used_D  # whatever was sent
            if statistics is not None or not torch.equal(sent_D, used_D):
                self._load(sent_D, buffers)
                score = self._evaluate(data)
        seconds = self.clock.seconds()
        meta = Meta(len(data.train_y), merged_round, merged, trained, score, seconds, validation)
        return Work(upload, meta.to_bytes(self.config.run.share_metrics), state)

    def finish(
        self, client: int, t: int, reply: bytes | memoryview | None, state: State, data: ClientData
    ) -> Work:
        """The last reply, after round t, and the final model: the best by validation, or the merged one."""
        weights_D, memory, merged_round, merged = self._receive(client, t + 1, reply, state, data)
        state = states.best_in_use(state | {"weights": weights_D} | states.memory_rows(memory))
        meta = Meta(len(data.train_y), merged_round, merged, seconds=self.clock.seconds())
        return Work(None, meta.to_bytes(self.config.run.share_metrics), state, states.state_digest(state))

    # The reply

    def _receive(
        self, client: int, t: int, reply: bytes | memoryview | None, state: State, data: ClientData
    ) -> tuple[Tensor, TensorState, int, Score | None]:
        """Weights and memory after the reply, and the evaluation of the merged model."""
        self.clock = Stopwatch()
        weights_D, memory, merged_round = self._merge(client, t, reply, state)
        if merged_round == 0:
            return weights_D, memory, 0, None
        self._load(weights_D, state)
        return weights_D, memory, merged_round, self._evaluate(data)

    def _merge(
        self, client: int, t: int, reply: bytes | memoryview | None, state: State
    ) -> tuple[Tensor, TensorState, int]:
        """Weights and memory after the reply, and the round whose aggregation they hold."""
        last, memory = int(state["round"]), states.memory_in(state, self._memory_type)
        if reply is None:
            return state["weights"], memory, last  # without messages a client goes on where it stopped
        head = wire.peek(reply)
        aggregated = head.round
        if not last <= aggregated < t:
            raise MismatchError(
                f"client {client} got the aggregation of round {aggregated} at the start of round {t}, "
                f"having last worked in round {last}"
            )
        address = wire.Address(self.selection.fingerprint, self.selection.d, aggregated, client, "down")
        decoded = wire.decode(reply, address, known=states.references_in(state), head=head)
        if decoded.confirmed != last:
            raise MismatchError(
                f"the server answers client {client}'s upload of round {decoded.confirmed}, "
                f"but its state is that of round {last}"
            )
        delivery = Delivery(decoded.message, self.selection, last, aggregated)
        merged_nD, memory = self.method.download(state["weights"][None], delivery, memory)
        return merged_nD[0], memory, aggregated

    # Training

    def _fit_both(
        self, client: int, t: int, weights_D: Tensor, memory: TensorState, state: State, data: ClientData
    ) -> tuple[Fit, State | None]:
        """Train, and a second time where the method has a personal model, which is then the one in the model;
        the buffers that the first training ended with, where a second followed."""
        start_nD = self.method.start(weights_D[None], self.selection, memory)
        self._load(start_nD[0], state)

        def inside() -> Tensor:
            """bool [D]: what the last epochs train. What is not exchanged is always trained."""
            fit = self._fit(client, t, start_nD)
            everything_nD = torch.ones_like(fit.end_nD, dtype=torch.bool)
            return self.selection.put(everything_nD, self.method.inside(fit))[0]

        order_seed = self.config.run.order_seed_used
        seed = key(order_seed, "training", t, client)
        squares_D = self._train(data, t, memory, self.method.loss, seed, inside)
        fit = self._fit(client, t, start_nD)
        if squares_D is not None:
            fit = replace(fit, squares_nD=squares_D.cpu()[None])
        personal_nD = self.method.personal_start(weights_D[None], memory)
        if personal_nD is None:
            return fit, None
        statistics = states.buffers_of(self.model)
        self._load(personal_nD[0], state)
        seed = key(order_seed, "personal", t, client)
        self._train(data, t, memory, self.method.personal_loss, seed)
        return replace(fit, personal_nD=self._parameters(client, t)[None]), statistics

    def _train(
        self,
        data: ClientData,
        t: int,
        memory: TensorState,
        objective: Callable[..., Tensor],
        seed: int,
        inside: Callable[[], Tensor] | None = None,
    ) -> Tensor | None:
        with self.clock.running("train"):
            memory = memory.mapped(lambda rows: rows.to(self.device))
            return train(
                self.model,
                data,
                self.config.train,
                lambda model, x, y: objective(model, x, y, memory),
                seed,
                self.device,
                ending=self.method.ending(),
                choose=inside,
                optimiser_of=self.job.task.optimiser,
                rate=self.method.rate(t),
            )

    def _fit(self, client: int, t: int, start_nD: Tensor) -> Fit:
        end_nD = self._parameters(client, t)[None]
        gradient_nD = read_gradients(self.model).cpu()[None]
        draw = generator(self.config.run.seed, "scores", t, client)

        def noise() -> Tensor:
            return torch.rand(1, self.selection.d, generator=draw)

        return Fit(self.layout, self.selection, t, start_nD, end_nD, gradient_nD, noise)

    def _parameters(self, client: int, t: int) -> Tensor:
        """[D]: where a training ended."""
        end_D = read_parameters(self.model).cpu()
        if not all_finite(end_D):
            raise DivergedError(f"client {client} diverged in round {t} (NaN or Inf); lower train.lr")
        return end_D

    def _put_in_use(self, weights_D: Tensor, data: ClientData) -> None:
        with self.clock.running("train"):
            write_parameters(self.model, weights_D)
            if self.method.ending().refresh:
                refresh_statistics(self.model, data, self.config.train.batch_size, self.device)

    def _evaluate(self, data: ClientData) -> Score:
        with self.clock.running("evaluate"):
            return evaluate(self.model, data, self.device, self.job.task)

    def _validate(self, t: int, state: State, data: ClientData) -> tuple[State, Validation | None]:
        """The state with this round's model as the best one if it is; how that stands."""
        samples = data.for_validation()
        if samples is None:
            return state, None
        score = self._evaluate(samples)
        state = states.with_better(state, self.model, score, t)
        return state, Validation(score, int(state["best.round"]))

    # The upload

    def _send(
        self, client: int, t: int, message: Message, state: State, fit: Fit, memory: TensorState
    ) -> tuple[bytes, State, Tensor]:
        """The upload's bytes; the state, with what the server will have decoded; the model as it was sent."""
        message = self._with_residual(message, state, t)
        address = wire.Address(self.selection.fingerprint, self.selection.d, t, client, "up")
        known = states.references_in(state)
        made = wire.encode(
            message,
            address,
            values="float32" if message.exact else self.config.value_type,
            pack=self.config.wire.pack,
            reference=known[0] if known else None,
        )
        data = made.data
        got_nd = message.values_nd  # as they would be decoded from an exact type
        if not find_type(made.value_type).exact:
            got_nd = wire.decode(data, address, known=known).message.values_nd
        memory = self.method.sent(memory, message, got_nd)
        state = state | {"round": torch.tensor([t])} | states.memory_rows(memory)
        if message.critical_nd is not None:
            state["mask"] = pack_bits(message.critical_nd[0])
        if self._keeps_residual:
            state["residual"] = (message.values_nd - got_nd)[0]
        if self.method.sends_updates:
            model_nd = self.selection.take(fit.start_nD) + got_nd
            return data, state, self.selection.put(fit.end_nD, model_nd)[0]
        state["weights"] = self.selection.put(fit.end_nD, got_nd, message.support_nd)[0]
        return data, state, self.selection.put(fit.end_nD, got_nd)[0]

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
