"""The paper's algorithm as pure functions over [n, d] tensors (n clients, d exchanged parameters)."""

from fedpurin.core.collaborate import collaborators, overlap, threshold
from fedpurin.core.masks import critical_mask
from fedpurin.core.merge import combine
from fedpurin.core.scores import perturbation

__all__ = ["collaborators", "combine", "critical_mask", "overlap", "perturbation", "threshold"]
