"""Where clients train, and in which precision: cpu, cuda or mps, in float32 or mixed with bfloat16.

`auto` stays in the configuration and is settled where the training happens: on this machine, on a node of
Ray, or at each site of a federation. A run can so be continued on a machine with other devices.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from fedpurin.errors import ConfigError
from fedpurin.sections import RunSection


def chosen(device: str) -> str:
    """What `auto` stands for on this machine, cuda, else mps, else cpu; any other device as it is."""
    if device != "auto":
        return device
    if torch.cuda.is_available():
        return "cuda"
    return "mps" if torch.backends.mps.is_available() else "cpu"


def place(device: str, worker: int = 0) -> str:
    """The device of one of several workers: they take turns over this machine's GPUs, and may share one."""
    device = chosen(device)
    check_device(device)
    return f"cuda:{worker % torch.cuda.device_count()}" if device == "cuda" else device


def check_device(device: str) -> None:
    """Refuse a device that this machine has not."""
    kind, _, number = device.partition(":")
    if kind == "cuda" and not torch.cuda.is_available():
        problem = "finds no CUDA device" if torch.version.cuda else "was built without CUDA"
    elif kind == "cuda" and number and int(number) >= torch.cuda.device_count():
        problem = f"finds CUDA devices 0 to {torch.cuda.device_count() - 1} only"
    elif kind == "mps" and not torch.backends.mps.is_available():
        problem = "finds no MPS device"
    else:
        return
    raise ConfigError(
        f"run.device = {device!r}, but torch {torch.__version__} {problem}; choose run.device = cpu or auto, "
        "or install a torch for this device"
    )


def record(run: RunSection) -> str:
    """For the run's record: the device that was taken, as far as this process knows it."""
    if run.device == "auto" and run.engine in ("flower", "ray"):
        return "auto, chosen where each client trains"
    return chosen(run.device)


def upload(x: Tensor, device: str) -> Tensor:
    """To the device; to a GPU from page-locked memory, so that the copy need not be waited for."""
    if device.startswith("cuda"):
        return x.pin_memory().to(device, non_blocking=True)
    return x.to(device)


def prepared(model: nn.Module, device: str, precision: str) -> nn.Module:
    """The model on its device. In bfloat16 its forward pass is mixed; weights and outputs stay float32.

    Whoever calls the model, for training, evaluation or a teacher, gets the same arithmetic.
    """
    model = model.to(device)
    if precision == "float32":
        return model
    forward, kind = model.forward, device.partition(":")[0]

    def mixed(*inputs: Any, **named: Any) -> Any:
        with torch.autocast(kind, torch.bfloat16):
            output = forward(*inputs, **named)
        return output.float() if isinstance(output, Tensor) else output

    model.forward = mixed
    return model
