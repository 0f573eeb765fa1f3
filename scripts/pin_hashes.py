"""Pin the wheels of constraints.txt by hash, for CPython 3.11 on Linux x86_64: writes hashes.txt.

    python scripts/pin_hashes.py            # downloads every wheel once, from wherever pip is set up to look

`make HASHES=1 .venv/dev-ready` installs from that file; anything with another hash is refused.
"""

from __future__ import annotations

import hashlib
import subprocess
import sys
import tempfile
from collections import defaultdict
from pathlib import Path

from packaging.utils import canonicalize_name, parse_wheel_filename

ROOT = Path(__file__).resolve().parents[1]
HEAD = """# Made by scripts/pin_hashes.py of constraints.txt, for CPython 3.11 on Linux x86_64.
# Install with: make HASHES=1 .venv/dev-ready
"""


def wheels(constraints: Path, folder: Path) -> list[Path]:
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary", ":all:"]
    subprocess.run([*command, "-d", str(folder), "-r", str(constraints)], check=True)
    return sorted(folder.glob("*.whl"))


def lines(found: list[Path], wanted: list[str]) -> list[str]:
    """A requirement per package, as constraints.txt has it, with the hash of its wheel."""
    hashes: dict[str, list[str]] = defaultdict(list)
    for wheel in found:
        name, *_ = parse_wheel_filename(wheel.name)
        with wheel.open("rb") as file:
            hashes[name].append(hashlib.file_digest(file, "sha256").hexdigest())
    made = []
    for requirement in wanted:
        of_it = hashes.get(canonicalize_name(requirement.split("==")[0]), [])
        if not of_it:
            raise SystemExit(f"{requirement}: pip brought no wheel of it")
        made.append(" ".join([requirement, *(f"--hash=sha256:{digest}" for digest in of_it)]))
    return made


def main() -> None:
    constraints = ROOT / "constraints.txt"
    wanted = [line for line in constraints.read_text().splitlines() if line and not line.startswith("#")]
    with tempfile.TemporaryDirectory() as name:
        made = lines(wheels(constraints, Path(name)), wanted)
    (ROOT / "hashes.txt").write_text(HEAD + "\n".join(made) + "\n")


if __name__ == "__main__":
    main()
