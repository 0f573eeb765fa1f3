"""Whether what a checkpoint holds is what this run can go on from, though its checksums are right."""

from __future__ import annotations

import torch
from torch import Tensor

from fedpurin.core.bits import BITS_PER_BYTE
from fedpurin.job import Job
from fedpurin.runs.rows import check_index


def check_state(job: Job, state: dict[str, Tensor], t: int) -> None:
    """Raises ValueError, KeyError or TypeError where `Hub.restore` could not go on from round t with this."""
    clients, d = job.config.run.clients, job.selection.d
    confirmed, last = state["confirmed"], int(state["aggregated"])
    if confirmed.shape != (clients,) or confirmed.dtype != torch.int64:
        raise ValueError(f"it does not say of {clients} clients when they last took part")
    if not (0 <= last <= t and int(confirmed.min()) >= 0 and int(confirmed.max()) <= t):
        raise ValueError(f"it speaks of other rounds than those up to {t}")
    size = -(-d // BITS_PER_BYTE)
    if "masks" in state and state["masks"].shape != (clients, size):  # of version 0.1
        raise ValueError(f"its masks are no table of {clients} x {size} bytes")
    if job.config.method.has_masks and "masks" not in state and "masks.client" not in state:
        raise ValueError("it has no masks")
    for name, bytes_each in (("masks", size), ("kept", 4 * d)):
        if f"{name}.client" in state:
            check_index(state, name, bytes_each, clients)
    parts = {k.removeprefix("method."): v for k, v in state.items() if k.startswith("method.")}
    fresh = job.config.method.server(job.selection, clients, job.common_start())
    type(fresh).of(parts)
    for name, tensor in fresh.tensors().items():
        if name in parts and parts[name].shape != tensor.shape:
            raise ValueError(f"method.{name} is of another shape")
    if job.selection.d and "theta_bar" in parts and parts["theta_bar"].shape != (d,):
        raise ValueError("method.theta_bar is of another shape")
