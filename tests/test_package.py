"""`python -m build`: a wheel that needs no repository around it, and a source archive with everything."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
import tarfile
import zipfile
from email import message_from_bytes
from pathlib import Path

import pytest

from fedpurin.version import __version__

CHECKOUT = Path(__file__).resolve().parents[1]
TINY = shlex.split(
    "--rounds 1 --clients 3 --engine inline "
    "--set train.epochs=1 --set data.train_samples=10 --set data.test_samples=5"
)


def tracked(*below: str) -> set[str]:
    listed = subprocess.run(
        ["git", "ls-files", "-z", *below], cwd=CHECKOUT, capture_output=True, text=True, check=True
    )
    return {name for name in listed.stdout.split("\0") if (CHECKOUT / name).is_file()}


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel is made from the source archive."""
    out = tmp_path_factory.mktemp("dist")
    command = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(out), str(CHECKOUT)]
    made = subprocess.run(command, capture_output=True, text=True)
    assert made.returncode == 0, made.stdout[-2000:] + made.stderr[-2000:]
    return out


@pytest.fixture(scope="module")
def wheel(built: Path) -> Path:
    return built / f"fedpurin-{__version__}-py3-none-any.whl"


@pytest.mark.slow
def test_the_wheel_has_every_file_of_the_package(wheel: Path) -> None:
    inside = {name for name in zipfile.ZipFile(wheel).namelist() if name.startswith("fedpurin/")}
    assert inside == {name.removeprefix("src/") for name in tracked("src")}


@pytest.mark.slow
def test_the_source_archive_has_every_file_of_the_repository(built: Path) -> None:
    root = f"fedpurin-{__version__}"
    with tarfile.open(built / f"{root}.tar.gz") as archive:
        inside = {member.name.removeprefix(f"{root}/") for member in archive if member.isfile()}
    assert tracked() <= inside


@pytest.mark.slow
def test_a_plain_install_brings_torch_numpy_and_little_else(wheel: Path) -> None:
    metadata = message_from_bytes(zipfile.ZipFile(wheel).read(f"fedpurin-{__version__}.dist-info/METADATA"))
    plain = [line for line in metadata.get_all("Requires-Dist", []) if "extra ==" not in line]
    names = {line.replace("<", ">").split(">")[0] for line in plain}
    small = {"safetensors", "rich", "tomli-w", "zstandard", "platformdirs", "filelock", "argcomplete"}
    assert names == {"torch", "numpy", *small}


@pytest.mark.slow
def test_the_installed_wheel_runs_the_demo_in_an_empty_folder(wheel: Path, tmp_path: Path) -> None:
    place, work = tmp_path / "installed", tmp_path / "work"
    work.mkdir()
    pip = [
        sys.executable,
        "-m",
        "pip",
        "install",
        "--quiet",
        "--no-deps",
        "--no-index",
        "--target",
        str(place),
    ]
    subprocess.run([*pip, str(wheel)], check=True, capture_output=True)
    environment = {k: v for k, v in os.environ.items() if not k.startswith("FEDPURIN")} | {
        "PYTHONPATH": str(place)
    }

    def call(*words: str) -> str:
        done = subprocess.run(
            [sys.executable, *words], cwd=work, env=environment, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    assert call("-c", "import fedpurin; print(fedpurin.__file__)").startswith(str(place))
    demo = ["compare", "--preset", "quickstart", "--methods", "separate,fedavg,fedpurin,fedfrugal", *TINY]
    told = call("-m", "fedpurin", *demo, "--out", "runs/demo", "--report", "runs/demo/report.html")
    assert "FedFrugal" in told
    assert (work / "runs/demo/report.html").stat().st_size > 1_000_000
    assert "to run" in call("-m", "fedpurin", "reproduce", "table-accuracy", "--scale", "mini", "--dry-run")


def test_the_version_to_cite_is_the_version() -> None:
    assert f"\nversion: {__version__}\n" in (CHECKOUT / "CITATION.cff").read_text("utf-8")
