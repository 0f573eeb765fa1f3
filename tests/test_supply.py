"""What keeps foreign bytes from becoming code: the lint rules are on, and each of them fires."""

from __future__ import annotations

import ast
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
    "import torch\ntorch.jit.load('x')": "TID251",
    "import torch\ntorch.export.load('x')": "TID251",
    "import torch.package": "TID251",
    "from torch.package import PackageImporter": "TID251",
    "from torch.serialization import load": "TID251",
    "import torch.distributed.rpc": "TID251",
    "import multiprocessing\nmultiprocessing.Queue()": "TID251",
    "from multiprocessing.managers import BaseManager": "TID251",
    "from multiprocessing.connection import Listener": "TID251",
    "import runpy\nrunpy.run_path('x')": "TID251",
    "import zipfile\nzipfile.ZipFile.extract(input(), 'x')": "TID251",
    "import tarfile\ntarfile.TarFile.extract(input(), 'x')": "TID251",
}
# what ruff cannot ban: methods of objects, whose class it does not know, and a builtin
UNPACKING = (
    "np.load('x')",
    "np.load('x', allow_pickle=True)",
    "np.load('x', allow_pickle=chosen)",
    "read(stream, allow_pickle=True)",
    "zipfile.ZipFile('x').extract('member')",
    "with tarfile.open('x') as tar:\n    tar.extract('member')",
    "archive.extractall()",
    "connection.recv()",
    "__import__(name)",
)
HARMLESS = (
    *("np.load('x', allow_pickle=False)", "tar.extractfile(member)"),
    *("pipe.recv_bytes()", "socket.recv(9)"),
)


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


def programs() -> list[Path]:
    folders = ("src", "scripts", "benchmarks", "examples", "experiments")
    return [path for folder in folders for path in (ROOT / folder).rglob("*.py")]


def methods_that_unpack(source: str) -> list[str]:
    """Calls that unpickle, import or let an archive choose paths, by the names of methods and arguments."""
    found = []
    for call in ast.walk(ast.parse(source)):
        if not isinstance(call, ast.Call):
            continue
        function = ast.unparse(call.func)
        method = function.rpartition(".")[2]
        pickle = [ast.unparse(given.value) for given in call.keywords if given.arg == "allow_pickle"]
        default = [] if function in {"np.load", "numpy.load"} else ["False"]
        unsafe = (pickle or default) != ["False"]
        empty = not call.args and not call.keywords
        if unsafe or method in {"extract", "extractall", "__import__"} or (method == "recv" and empty):
            found.append(ast.unparse(call))
    return found


def test_no_program_unpickles_or_unpacks_by_a_method() -> None:
    assert all(methods_that_unpack(code) for code in UNPACKING)
    assert not any(methods_that_unpack(code) for code in HARMLESS)
    found = {path: methods_that_unpack(path.read_text()) for path in programs()}
    assert not {path: calls for path, calls in found.items() if calls}


def test_no_rule_is_switched_off_by_a_comment() -> None:
    switched_off = re.compile(r"noqa:? *.*(S\d|TID251)|ruff: noqa")
    assert not [path for path in programs() if switched_off.search(path.read_text())]


def test_every_pinned_version_has_the_hash_of_its_wheel() -> None:
    """hashes.txt is made of constraints.txt by scripts/pin_hashes.py, and is out of date otherwise."""
    constraints = (ROOT / "constraints.txt").read_text().splitlines()
    pinned = [line for line in (ROOT / "hashes.txt").read_text().splitlines() if not line.startswith("#")]
    assert [line.split()[0] for line in pinned] == [line for line in constraints if not line.startswith("#")]
    assert all(re.fullmatch(r"\S+==\S+( --hash=sha256:[0-9a-f]{64})+", line) for line in pinned)
