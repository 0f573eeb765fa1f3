"""A type of values is one file."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import fedpurin
from fedpurin import wire
from fedpurin.value_types import NAMES, all_types, find_type, name_of

INT16 = '''
import numpy as np
from fedpurin.value_types.base import Codes, ValueType, checked_largest

class Sixteenths(ValueType):
    """Whole sixteenths from -2000 to 2000."""
    number, item, bits, reserved = 9, "<u2", 16, 0x8000

    def to_codes(self, values):
        checked_largest(values)
        return Codes(np.rint(values * 16).astype("<i2").view("<u2"), None)

    def from_codes(self, codes):
        return codes.items.view("<i2").astype(np.float32) / 16

TYPE = Sixteenths()
'''

USE = """
import torch
from fedpurin import wire
from fedpurin.config import Config
from fedpurin.messages import Message
from fedpurin.runs.ledger import VALUE_BYTES

assert Config().updated({"wire": {"values": "sixteenths"}}).value_type == "sixteenths"
address = wire.Address(bytes(8), 4, 1, 0, "up")
data = wire.encode(Message(torch.tensor([[1.03, -2.5, 0.0, 3.0]])), address, values="sixteenths").data
decoded = wire.decode(data, address)
print(decoded.value_type, decoded.message.values_nd.tolist(), VALUE_BYTES["sixteenths"], len(data))
"""


def test_every_type_has_a_number_of_its_own_which_the_specification_names() -> None:
    numbers = {name: kind.number for name, kind in all_types().items()}
    assert set(numbers) == set(NAMES)
    assert len(set(numbers.values())) == len(NAMES)
    line = re.search(r"value type: (.*)", wire.__doc__ or "")
    assert line is not None
    assert line[1] == ", ".join(f"{number} {name}" for name, number in numbers.items())
    assert all(name_of(find_type(name).number) == name for name in NAMES)
    assert name_of(0) is None


@pytest.mark.slow
def test_a_new_file_is_a_new_type_everywhere(tmp_path: Path) -> None:
    package = shutil.copytree(Path(fedpurin.__file__).parent, tmp_path / "fedpurin")
    (package / "value_types" / "sixteenths.py").write_text(INT16)
    done = subprocess.run(
        [sys.executable, "-c", USE],
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert (done.returncode, done.stderr) == (0, "")
    # 1.03 is 16.48 sixteenths: 16 of them; 4 values of 2 bytes after the header
    assert done.stdout == f"sixteenths [[1.0, -2.5, 0.0, 3.0]] 2.0 {wire.HEADER_BYTES + 8}\n"
