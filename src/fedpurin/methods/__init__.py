"""The seven methods, one short file each."""

from fedpurin.methods.base import Fit, Memory, Method, Server
from fedpurin.methods.fedavg import FedAvg
from fedpurin.methods.fedbn import FedBN
from fedpurin.methods.fedcac import FedCAC
from fedpurin.methods.fedper import FedPer
from fedpurin.methods.fedpurin import FedPURIN
from fedpurin.methods.pfedsd import PFedSD
from fedpurin.methods.separate import Separate

METHODS: dict[str, type[Method]] = {
    m.name: m for m in (Separate, FedAvg, FedPer, FedBN, PFedSD, FedCAC, FedPURIN)
}

__all__ = [
    "METHODS",
    "FedAvg",
    "FedBN",
    "FedCAC",
    "FedPURIN",
    "FedPer",
    "Fit",
    "Memory",
    "Method",
    "PFedSD",
    "Separate",
    "Server",
]
