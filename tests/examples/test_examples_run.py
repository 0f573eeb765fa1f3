"""Every example runs offline, writes its picture, and gives what its text says. Rounds are fewer here."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

pytest.importorskip("sklearn")
from examples import images, own_loop, regression, tabular, text


@pytest.fixture(autouse=True)
def one_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without worker processes: the examples are small."""
    import fedpurin

    compare = fedpurin.compare
    monkeypatch.setattr(
        "fedpurin.compare", lambda **options: compare(engine="inline", **options), raising=False
    )


def check_picture(path: Path) -> None:
    with Image.open(path) as picture:
        pixels = np.asarray(picture.convert("L"))
    assert min(pixels.shape) > 200
    assert pixels.std() > 5  # not blank


def test_tabular(tmp_path: Path) -> None:
    runs = tabular.main(tmp_path / "out", rounds=2)
    check_picture(tmp_path / "out" / "accuracy.png")
    assert "screening" in runs[0].names
    assert runs["fedpurin"].summary["accuracy"]["trained"]["last"] > 0.8
    assert (tmp_path / "out" / "report.html").stat().st_size > 10**5


def test_regression(tmp_path: Path) -> None:
    runs = regression.main(tmp_path / "out", rounds=3)
    check_picture(tmp_path / "out" / "progression.png")
    assert runs[0].names[0] == "men 42 to 54"
    assert runs["fedavg"].summary["accuracy"]["trained"]["last"] > 0


def test_text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(text, "PACKAGES", ["asyncio", "json", "logging"])
    runs = text.main(tmp_path / "out", rounds=2)
    check_picture(tmp_path / "out" / "accuracy.png")
    assert runs[0].classes == ["code", "comment", "docstring"]
    assert runs["fedavg"].summary["accuracy"]["trained"]["last"] > 0.4  # one of three by guessing
    assert text.read(runs, "json", "return self._loop.create_task(coro)") in text.KINDS


def test_images(tmp_path: Path) -> None:
    runs = images.main(tmp_path / "out", rounds=2)
    check_picture(tmp_path / "out" / "accuracy.png")
    assert isinstance(runs["fedpurin"].client("shop-3").model(), images.MyNet)


def test_own_loop(tmp_path: Path) -> None:
    history = own_loop.main(tmp_path / "out", rounds=5)
    check_picture(tmp_path / "out" / "groups.png")
    assert history[0, :2, :2].all()  # clients of the same kinds find each other
    assert not history[0, :2, 2:].any()
    assert history[4].sum() == own_loop.CLIENTS  # after beta everybody is alone
