"""The server: `FedPURINStrategy` where `FedAvg` stood."""

from __future__ import annotations

from flwr.app import Context
from flwr.serverapp import Grid, ServerApp

from fedpurin.flower import FedPURINStrategy
from in_flower.task import make_model

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    strategy = FedPURINStrategy(make_model, clients=int(context.run_config.get("clients", 3)))
    strategy.start(grid=grid, num_rounds=int(context.run_config.get("rounds", 3)))
