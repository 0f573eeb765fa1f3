"""Separate: every client trains alone."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from fedpurin.layout import Layout, Selection
from fedpurin.messages import Known, Message, Uploads
from fedpurin.methods.base import Fit, Method, NoMemory
from fedpurin.methods.state import ServerState


@dataclass(frozen=True)
class Separate(Method[NoMemory, ServerState]):
    name: ClassVar[str] = "separate"
    label: ClassVar[str] = "Separate"
    color: ClassVar[str] = "#7f7f7f"
    dash: ClassVar[str] = "dot"
    marker: ClassVar[str] = "x"
    order: ClassVar[int] = 0

    def exchanged(self, layout: Layout) -> Tensor:
        return layout.where()

    def memory(self, layout: Layout, selection: Selection, start_nD: Tensor) -> NoMemory:
        return NoMemory()

    def server(self, selection: Selection, clients: int, start_d: Tensor) -> ServerState:
        return ServerState()

    def upload(self, fit: Fit, memory: NoMemory) -> tuple[Message | None, NoMemory]:
        return None, memory

    def aggregate(self, server: ServerState, uploads: Uploads, t: int) -> ServerState:
        return server

    def reply(self, server: ServerState, client: int, known: Known) -> Message | None:
        return None
