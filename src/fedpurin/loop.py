"""A method of fedpurin in a training loop of your own: two objects that trade bytes.

    server = ServerSide(make_model, clients=3, method="fedpurin")        one, where uploads meet
    client = ClientSide(make_model, number, method="fedpurin")           one for each client

    server.begin(t)                                                      each round t = 1, 2, ...
        model = client.begin(t, server.reply(number))                    your own module, with merged values
        ... train it as you like; leave the last gradients in place ...
        server.accept(number, client.end(t), samples=len(data))
    server.close(t)

How the bytes travel is yours to decide. Both sides must build the same model: `make_model` is called under a
fixed seed. A client's `state`, a dict of tensors, is all that it must keep between rounds. An upload that
gets lost does no harm: the client goes back to the state that the server knows of.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from torch import Tensor, nn

from fedpurin import wire
from fedpurin.config import PYTHON, Config
from fedpurin.engines.hub import Hub
from fedpurin.engines.site import Site
from fedpurin.engines.states import State
from fedpurin.errors import ConfigError
from fedpurin.given import Given, with_method
from fedpurin.job import Job
from fedpurin.meta import Meta
from fedpurin.methods import AnyMethod, Method
from fedpurin.methods.base import Ending

MakeModel = Callable[[], nn.Module]
MethodForm = str | AnyMethod


def make_job(make_model: MakeModel, clients: int, method: MethodForm, seed: int, head: str) -> Job:
    """A job without data: what both sides must agree on."""
    table = {"run": {"clients": clients, "seed": seed}, "model": {"name": PYTHON, "head": head}}
    config = with_method(Config(), method).updated(table)
    _check_plain(config.method)
    return Job(config, (), [], None, None, Given(model=make_model))


def _check_plain(method: AnyMethod) -> None:
    """Methods that train in a way of their own cannot be put around somebody else's training."""
    hooks = ("loss", "personal_start", "in_use")
    own = [name for name in hooks if getattr(type(method), name) is not getattr(Method, name)]
    if own or method.ending() != Ending():
        what = f"its hooks {', '.join(own)}" if own else "its own end of training"
        raise ConfigError(
            f"{method.label} trains in a way of its own ({what}), so it does not fit around another loop; "
            "use fedpurin.run, or one of separate, fedavg, fedper, fedbn, fedcac, fedpurin"
        )


class ServerSide:
    """Where uploads meet. It sees no data and no model but what is exchanged."""

    def __init__(
        self,
        make_model: MakeModel,
        clients: int,
        method: MethodForm = "fedpurin",
        *,
        seed: int = 1,
        head: str = "",
    ) -> None:
        self.job = make_job(make_model, clients, method, seed, head)
        self.hub = Hub(self.job)

    def begin(self, t: int, clients: Sequence[int] | None = None) -> None:
        """Round t, of these clients; by default of all."""
        self.hub.begin(t, list(range(self.hub.clients)) if clients is None else list(clients))

    def reply(self, client: int) -> bytes | None:
        """What the client is to get before it trains; None where there is nothing to say yet."""
        return self.hub.reply(client)

    def accept(self, client: int, upload: bytes | None, samples: int) -> None:
        """Take an upload. One that is not sound raises a WireError and changes nothing."""
        self.hub.accept(client, upload, Meta(samples).to_bytes(share_metrics=False))

    def close(self, t: int) -> dict[str, Any]:
        """Aggregate what came. The record says who worked with whom."""
        return self.hub.close(t)

    def ledger(self) -> list[dict[str, Any]]:
        """A line per message since the last call: how many bytes of what."""
        return self.hub.take_ledger()


class ClientSide(Site):
    """One client: merges what it gets into its own model, and says what to send."""

    def __init__(
        self,
        make_model: MakeModel,
        client: int,
        method: MethodForm = "fedpurin",
        *,
        seed: int = 1,
        head: str = "",
        state: State | None = None,
    ) -> None:
        super().__init__(make_job(make_model, client + 1, method, seed, head))
        self.client = client
        self.state = self.initial_state(client) if state is None else state
        self.before = self.state

    def begin(self, t: int, reply: bytes | None) -> nn.Module:
        """Your module, with the personal model of this client in it, as merged for round t."""
        if self.selection.d and int(self.state["round"]) != (wire.peek(reply).confirmed if reply else 0):
            self.state = self.before  # the last upload never arrived
        weights_D, self._memory, _ = self._merge(self.client, t, reply, self.state)
        self._start_nD: Tensor = self.method.start(weights_D[None], self.selection, self._memory)
        self._load(self._start_nD[0], self.state)
        return self.model

    def end(self, t: int) -> bytes | None:
        """What to send after training: `model` as it is now, scored with the gradients it holds."""
        fit = self._fit(self.client, t, self._start_nD)
        message = None
        memory = self._memory
        if not self.method.silent(t):
            message, memory = self.method.upload(fit, memory)
        state = self._state_after(t, fit.end_nD[0], self.state, memory)
        upload: bytes | None = None
        if message is not None and self.selection.d:
            upload, state, _ = self._send(self.client, t, message, state, fit, memory)
        self.before, self.state = self.state, state
        return upload
