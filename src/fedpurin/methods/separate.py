"""Separate: every client trains alone."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from fedpurin.layout import Layout
from fedpurin.messages import Message, Uploads
from fedpurin.methods.base import Fit, Memory, Method, Server


@dataclass(frozen=True)
class Separate(Method):
    name: ClassVar[str] = "separate"
    label: ClassVar[str] = "Separate"

    def exchanged(self, layout: Layout) -> Tensor:
        return layout.where()

    def upload(self, fit: Fit, memory: Memory) -> tuple[Message | None, Memory]:
        return None, memory

    def aggregate(self, server: Server, uploads: Uploads, t: int) -> Server:
        return server

    def reply(self, server: Server, client: int) -> Message | None:
        return None
