"""A client's state: all that it keeps from one round to the next, a flat dict of tensors.

    round              int64 [1]: the last round it worked in, 0 at first
    weights            float32 [D]: the model in use; where it is the one uploaded, as the server decodes it
    mask               uint8 [b]: its last critical mask, packed (methods with masks)
    residual           float32 [d]: what rounding took from the last upload (with feedback)
    buffer.NAME        batch-norm statistics and other buffers of the model
    memory.NAME        what the method remembers
and where it holds out validation samples, the best personal model that it has had by them:
    best.round         int64 [1]: the round whose training gave it; 0: none yet
    best.correct       int64 [1]: its right answers on the validation samples
    best.weights, best.buffer.NAME

Candidates for the best are the models after training, one a round. Of two with as many right answers the
later one is kept: a client holds out few samples, so most comparisons are ties, and models mostly get better.
"""

from __future__ import annotations

import hashlib

import torch
from torch import Tensor, nn

from fedpurin import wire
from fedpurin.layout import Layout, read_parameters
from fedpurin.methods.state import TensorState
from fedpurin.train import Score

State = dict[str, Tensor]


def buffers_of(model: nn.Module) -> State:
    return {f"buffer.{name}": buffer.detach().cpu().clone() for name, buffer in model.named_buffers()}


def named_model(layout: Layout, state: State) -> State:
    """Parameters and buffers by name, as `load_state_dict` wants them."""
    named = {
        layer.name: state["weights"][layer.start : layer.start + layer.size].view(layer.shape).clone()
        for layer in layout.layers
    }
    return named | {k.removeprefix("buffer."): v.clone() for k, v in state.items() if k.startswith("buffer.")}


def state_digest(state: State) -> bytes:
    """SHA-256 over final parameters, buffers (by name) and last mask."""
    sha = hashlib.sha256()
    for name in ["weights", *sorted(k for k in state if k.startswith("buffer.")), "mask"]:
        if name in state:
            sha.update(state[name].contiguous().numpy().tobytes())
    return sha.digest()


def _model_in(state: State) -> State:
    return {k: v for k, v in state.items() if k == "weights" or k.startswith("buffer.")}


def memory_rows(memory: TensorState) -> State:
    return {f"memory.{name}": rows[0] for name, rows in memory.tensors().items()}


def memory_in(state: State, kind: type[TensorState]) -> TensorState:
    return kind.of({k.removeprefix("memory."): v[None] for k, v in state.items() if k.startswith("memory.")})


def references_in(state: State) -> list[wire.Reference]:
    """The mask that the server has of this client, which messages may build on; none before the first."""
    last = int(state["round"])
    return [wire.Reference(last, state["mask"])] if "mask" in state and last else []


def no_best_yet(state: State) -> State:
    """The entries of a client that has not been trained, beside the others of its initial state."""
    copies = {f"best.{name}": values.clone() for name, values in _model_in(state).items()}
    return {"best.round": torch.zeros(1, dtype=torch.int64), "best.correct": torch.tensor([-1])} | copies


def with_better(state: State, model: nn.Module, score: Score, t: int) -> State:
    """The state after round t, in which this model was trained and scored so."""
    if score.correct < int(state["best.correct"]):
        return state
    entries = {"round": torch.tensor([t]), "correct": torch.tensor([score.correct])}
    entries |= {"weights": read_parameters(model).cpu()} | buffers_of(model)
    return state | {f"best.{name}": values for name, values in entries.items()}


def best_in_use(state: State) -> State:
    """The state with the best model as the one in use; as it is where there is none."""
    if not int(state.get("best.round", 0)):
        return state
    return state | {name: state[f"best.{name}"] for name in _model_in(state)}
