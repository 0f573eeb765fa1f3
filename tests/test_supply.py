"""What keeps foreign bytes from becoming code: the lint rules are on, and each of them fires."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
FORBIDDEN = {
    "import pickle": "TID251",
    "import pickle\npickle.loads(b'')": "S301",
    "from torch import load": "TID251",
    "import torch\ntorch.load('x')": "TID251",
    "import torch\ntorch.save({}, 'x')": "TID251",
    "import marshal\nmarshal.loads(b'')": "S302",
    "import joblib": "TID251",
    "import shelve": "TID251",
    "eval(input())": "S307",
    "exec(input())": "S102",
    "import yaml\nyaml.load('', Loader=yaml.Loader)": "S506",
    "import tarfile\ntarfile.open('x').extractall()": "S202",
    "import shutil\nshutil.unpack_archive('x')": "TID251",
    "import subprocess\nsubprocess.run('ls', shell=True)": "S602",
    "import os\nos.system(input())": "S605",
}


def ruff(code: str, place: str) -> str:
    command = [sys.executable, "-m", "ruff", "check", "--no-cache", "--output-format", "concise"]
    done = subprocess.run(
        [*command, "--stdin-filename", place, "-"], input=code, text=True, capture_output=True, cwd=ROOT
    )
    assert done.returncode in (0, 1), done.stderr
    return done.stdout


@pytest.mark.parametrize("place", ["src/fedpurin/x.py", "scripts/x.py"])
def test_the_lint_refuses_whatever_turns_bytes_into_code(place: str) -> None:
    for code, rule in FORBIDDEN.items():
        assert re.search(rf"\b{rule}\b", ruff(code + "\n", place)), code
    assert not re.search(r"\b(S\d+|TID251)\b", ruff("import json\n\njson.loads('1')\n", place))


def test_arrays_are_never_read_with_pickle() -> None:
    sources = [path.read_text() for path in (ROOT / "src").rglob("*.py")]
    assert any("allow_pickle=False" in text for text in sources)
    assert not any("allow_pickle=True" in text for text in sources)
    loads = [line for text in sources for line in text.splitlines() if "np.load(" in line]
    assert all("allow_pickle=False" in line for line in loads), loads


def test_no_rule_is_switched_off_by_a_comment() -> None:
    places = [
        path
        for folder in ("src", "scripts", "benchmarks", "examples")
        for path in (ROOT / folder).rglob("*.py")
    ]
    assert not [path for path in places if re.search(r"noqa:? *.*(S\d|TID251)|ruff: noqa", path.read_text())]


def test_every_pinned_version_has_the_hash_of_its_wheel() -> None:
    """hashes.txt is made of constraints.txt by scripts/pin_hashes.py, and is out of date otherwise."""
    constraints = (ROOT / "constraints.txt").read_text().splitlines()
    pinned = [line for line in (ROOT / "hashes.txt").read_text().splitlines() if not line.startswith("#")]
    assert [line.split()[0] for line in pinned] == [line for line in constraints if not line.startswith("#")]
    assert all(re.fullmatch(r"\S+==\S+( --hash=sha256:[0-9a-f]{64})+", line) for line in pinned)
