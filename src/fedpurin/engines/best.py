"""The best personal model that a client has had, by its validation samples; part of the client's state.

    best.round         int64 [1]: the round whose training gave it; 0: none yet
    best.correct       int64 [1]: its right answers on the validation samples
    best.weights       float32 [D]
    best.buffer.NAME   its batch-norm statistics and other buffers

Candidates are the models after training, one a round. Of two with as many right answers the later one is
kept: a client holds out few samples, so most comparisons are ties, and models mostly get better.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from fedpurin.layout import read_parameters
from fedpurin.train import Score

State = dict[str, Tensor]
PREFIX = "best."


def nothing_yet(state: State) -> State:
    """The entries of a client that has not been trained, beside the others of its initial state."""
    model = {
        name: values for name, values in state.items() if name == "weights" or name.startswith("buffer.")
    }
    copies = {f"{PREFIX}{name}": values.clone() for name, values in model.items()}
    return {"best.round": torch.zeros(1, dtype=torch.int64), "best.correct": torch.tensor([-1])} | copies


def better_of(state: State, model: nn.Module, score: Score, t: int) -> State:
    """The entries after round t, in which this model was trained and scored so."""
    if score.correct < int(state["best.correct"]):
        return {name: values for name, values in state.items() if name.startswith(PREFIX)}
    buffers = {f"best.buffer.{name}": b.detach().cpu().clone() for name, b in model.named_buffers()}
    return {
        "best.round": torch.tensor([t]),
        "best.correct": torch.tensor([score.correct]),
        "best.weights": read_parameters(model).cpu(),
        **buffers,
    }


def in_its_place(state: State) -> State:
    """The state with the best model as the one in use; as it is where there is none."""
    if not int(state.get("best.round", 0)):
        return state
    entries = {name.removeprefix(PREFIX): values for name, values in state.items() if name.startswith(PREFIX)}
    return state | {name: v for name, v in entries.items() if name == "weights" or name.startswith("buffer.")}
