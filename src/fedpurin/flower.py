"""FedPURIN inside a Flower app that you have already: a strategy for its server, three lines for its clients.

    # server_app.py
    strategy = FedPURINStrategy(make_model, clients=3)                     instead of FedAvg(...)
    strategy.start(grid=grid, num_rounds=20)

    # client_app.py
    @app.train()
    def train(message, context):
        client = FlowerClient(message, context, make_model)
        fit(client.model, ...)                                             your own loop, in place
        return client.answer({"num-examples": 500, "loss": 0.3})

    @app.evaluate()
    def evaluate(message, context):
        client = FlowerClient(message, context, make_model)                client.model is the merged model
        return client.answer({"num-examples": 100, "accuracy": 0.8})

A client's state lives in Flower's `context.state`, which a SuperNode keeps in memory: one that is restarted
begins anew. Numbers of clients follow the order in which nodes are first seen. For a federation with keys,
checkpoints and limits see `fedpurin federation`.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from typing import Any

from fedpurin.errors import CorruptError, FedpurinError, MissingExtraError
from fedpurin.loop import ClientSide, MakeModel, MethodForm, ServerSide

try:
    from flwr.app import ArrayRecord, ConfigRecord, Context, Message, MessageType, MetricRecord, RecordDict
    from flwr.serverapp import Grid
    from flwr.serverapp.strategy import FedAvg, Result
except ImportError:
    raise MissingExtraError("flower", "fedpurin.flower") from None

RECORD, METRICS = "fedpurin", "metrics"
POLL_SECONDS = 1.0


class FedPURINStrategy(FedAvg):
    """Flower's FedAvg with the exchange of a fedpurin method; metrics are averaged as FedAvg does."""

    def __init__(
        self,
        make_model: MakeModel,
        clients: int,
        method: MethodForm = "fedpurin",
        *,
        seed: int = 1,
        **options: Any,
    ) -> None:
        super().__init__(min_available_nodes=clients, **options)
        self.server = ServerSide(make_model, clients, method, seed=seed)
        self.clients = clients
        self.numbers: dict[int, int] = {}  # node id -> number of its client

    def start(  # type: ignore[override]  # there is no global model that a caller could give
        self, grid: Grid, num_rounds: int = 3, timeout: float = 3600, **options: Any
    ) -> Result:
        return super().start(grid, ArrayRecord(), num_rounds, timeout, **options)

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        nodes = self._nodes(grid)
        self.server.begin(server_round, sorted(nodes.values()))
        return [self._message(node, server_round, config, MessageType.TRAIN) for node in nodes]

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        contents = []
        for reply in replies:
            client = self.numbers[reply.metadata.src_node_id]
            try:
                if reply.has_error():
                    raise CorruptError(reply.error.reason)
                record = reply.content.config_records[RECORD]
                samples = int(reply.content.metric_records[METRICS][self.weighted_by_key])  # type: ignore[arg-type]
                self.server.accept(client, record.get("upload"), samples)  # type: ignore[arg-type]
            except (FedpurinError, KeyError) as problem:
                self.server.hub.fail(client, str(problem))  # the others go on without it
                continue
            contents.append(RecordDict({METRICS: reply.content.metric_records[METRICS]}))
        self.server.close(server_round)
        return None, self.train_metrics_aggr_fn(contents, self.weighted_by_key)

    def configure_evaluate(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        if self.fraction_evaluate == 0.0:
            return []
        nodes = self._nodes(grid)
        return [self._message(node, server_round + 1, config, MessageType.EVALUATE) for node in nodes]

    def _nodes(self, grid: Grid) -> dict[int, int]:
        """The connected nodes and their numbers, once there are enough."""
        while len(nodes := sorted(grid.get_node_ids())) < self.clients:
            time.sleep(POLL_SECONDS)
        for node in nodes:
            if node not in self.numbers and len(self.numbers) < self.clients:
                self.numbers[node] = len(self.numbers)
        return {node: self.numbers[node] for node in nodes if node in self.numbers}

    def _message(self, node: int, t: int, config: ConfigRecord, kind: str) -> Message:
        reply = self.server.reply(self.numbers[node])
        ours: dict[str, Any] = {"round": t, "client": self.numbers[node]}
        content = RecordDict(
            {
                RECORD: ConfigRecord(ours if reply is None else ours | {"reply": reply}),
                self.configrecord_key: ConfigRecord({**config, "server-round": t}),
            }
        )
        return Message(content=content, message_type=kind, dst_node_id=node)


class FlowerClient:
    """One message at a client: `model` is your module with the merged values; `answer` makes the reply."""

    def __init__(
        self,
        message: Message,
        context: Context,
        make_model: MakeModel,
        method: MethodForm = "fedpurin",
        *,
        seed: int = 1,
    ) -> None:
        if RECORD not in message.content.config_records:
            raise CorruptError("the message holds no fedpurin record; does the server use FedPURINStrategy?")
        record = message.content.config_records[RECORD]
        self.message, self.context = message, context
        self.round, number, reply = int(record["round"]), int(record["client"]), record.get("reply")  # type: ignore[arg-type]
        self.side = ClientSide(make_model, number, method, seed=seed, state=self._kept("state"))
        before = self._kept("before")
        if before is not None:
            self.side.before = before
        self.model = self.side.begin(self.round, reply)  # type: ignore[arg-type]

    def _kept(self, name: str) -> dict[str, Any] | None:
        kept = self.context.state.array_records.get(f"{RECORD}.{name}")
        return None if kept is None else dict(kept.to_torch_state_dict())

    def answer(self, metrics: Mapping[str, int | float]) -> Message:
        """The reply with your metrics, num-examples among them; after training also the upload."""
        content = RecordDict({METRICS: MetricRecord(dict(metrics))})
        if self.message.metadata.message_type.split(".")[0] == MessageType.TRAIN:
            upload = self.side.end(self.round)
            content[RECORD] = ConfigRecord({} if upload is None else {"upload": upload})
            self.context.state[f"{RECORD}.state"] = ArrayRecord(self.side.state)
            self.context.state[f"{RECORD}.before"] = ArrayRecord(self.side.before)
        return Message(content=content, reply_to=self.message)
