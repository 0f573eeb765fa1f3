"""The clients' final models in a run directory, and the digest of a run."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from fedpurin.errors import RunError
from fedpurin.runs.checkpoints import checksum
from fedpurin.runs.parsing import unreadable

CHECKSUMS = "model_checksums"  # of result.json: CRC-32 by client, null where there is no model


def model_file(run: Path, client: int) -> Path:
    return run / "models" / f"client-{client:04d}.safetensors"


def read_model(run: Path, client: int, result: dict[str, Any] | None) -> dict[str, Tensor]:
    """Parameters and buffers by name, as they were saved: another client's, or with a flipped bit, they would
    look as sound. Results of version 0.1, and of a federation, know no checksums."""
    file = model_file(run, client)
    if not file.is_file():
        why = "it stays with its client" if result else "the run is not finished: continue it"
        raise RunError(f"{file} is missing: {why}")
    known = (result or {}).get(CHECKSUMS)
    try:
        if known and known[client] != checksum(file):
            raise RunError(f"{file} is not the model that this run ended with; restore it, or run again")
        return load_file(file)
    except OSError as problem:
        raise unreadable(file, problem) from problem
    except (SafetensorError, LookupError, ValueError) as problem:
        raise RunError(f"{file} cannot be read ({problem}); restore it, or run again") from problem


def run_digest(client_digests: list[str], ledger: bytes) -> str:
    """SHA-256 over each client's own SHA-256, by client id, and then the ledger's lines."""
    sha = hashlib.sha256()
    for digest in client_digests:
        sha.update(bytes.fromhex(digest))
    sha.update(ledger)
    return sha.hexdigest()
