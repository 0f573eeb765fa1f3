"""The client. Three lines are FedPURIN's: the import, `FlowerClient(...)` and `client.answer(...)`."""

from __future__ import annotations

from flwr.app import Context, Message
from flwr.clientapp import ClientApp

from fedpurin.flower import FlowerClient
from in_flower.task import accuracy, load, make_model, train

app = ClientApp()


@app.train()
def on_train(message: Message, context: Context) -> Message:
    x, y, _, _ = load(int(context.node_config["partition-id"]), int(context.node_config["num-partitions"]))
    client = FlowerClient(message, context, make_model)
    loss = train(client.model, x, y)
    return client.answer({"num-examples": len(y), "loss": loss})


@app.evaluate()
def on_evaluate(message: Message, context: Context) -> Message:
    _, _, x, y = load(int(context.node_config["partition-id"]), int(context.node_config["num-partitions"]))
    client = FlowerClient(message, context, make_model)
    return client.answer({"num-examples": len(y), "accuracy": accuracy(client.model, x, y)})
