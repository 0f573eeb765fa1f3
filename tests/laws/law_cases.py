"""Whom the laws hold for: the methods that are shipped, with their options, and those of examples/methods."""

from __future__ import annotations

from examples.methods.ditto import Ditto
from examples.methods.fedprox import FedProx
from fedpurin.methods import METHODS, AnyMethod, Method
from tiny import METHOD_CASES, config_name

EXAMPLES: list[AnyMethod] = [FedProx(), FedProx(mu=1.0), Ditto(), Ditto(pull=2.0)]
CASES: list[AnyMethod] = [*METHOD_CASES, *EXAMPLES]
NAMES = [*METHODS, *dict.fromkeys(config_name(method) for method in EXAMPLES)]


def uses_the_merged_model(method: AnyMethod) -> bool:
    """After a reply the client's model is the one that was merged, not another one of its own."""
    return type(method).in_use is Method.in_use
