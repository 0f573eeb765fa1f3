"""How much would zeroing a parameter disturb the loss? (Eq. 7)"""

from __future__ import annotations

from torch import Tensor

from fedpurin.core.checks import check_floats


def perturbation(gradient: Tensor, weights: Tensor, *, hessian: bool = False) -> Tensor:
    """Scores [n, d]: |-g*theta + 1/2 (g*theta)^2|, or |g*theta| without the quadratic term.

    `gradient` is the gradient of the last mini-batch, or the change of the parameters over the local
    training; `weights` are the parameters after it.
    """
    check_floats(gradient, "gradient")
    check_floats(weights, "weights")
    if gradient.shape != weights.shape:
        raise ValueError(f"gradient {list(gradient.shape)} and weights {list(weights.shape)} differ in shape")
    first_order = gradient * weights
    if not hessian:
        return first_order.abs_()
    return first_order.square().mul_(0.5).sub_(first_order).abs_()
