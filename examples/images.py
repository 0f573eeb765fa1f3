"""Your own CNN on your own images: folders of pictures, one per client, one per class in it.

So that it runs anywhere, the folders are written first, from the bundled sample of Fashion-MNIST: six shops,
each selling three kinds of clothes. With pictures of your own, begin at `shops`.

    python -m examples.images         writes runs/images/accuracy.png, and the pictures beside it
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch import Tensor, nn

import fedpurin
from fedpurin import data

SHOPS, KINDS_EACH, PER_KIND = 6, 3, 30


def write_folders(folder: Path) -> None:
    """Pictures as a user has them."""
    sample = data.load("fashion-mnist-mini")
    rng = np.random.default_rng(0)
    left = {kind: rng.permutation(np.flatnonzero(sample.train_y == kind)).tolist() for kind in range(10)}
    for shop in range(SHOPS):
        for step in range(KINDS_EACH):
            kind = (2 * shop + 3 * step) % 10
            place = folder / f"shop-{shop}" / sample.classes[kind].replace("/", "-")
            place.mkdir(parents=True, exist_ok=True)
            for number in range(PER_KIND):
                pixels = sample.train_x[left[kind].pop(), 0].numpy()
                Image.fromarray(pixels).save(place / f"{number:03d}.png")


def shops(folder: Path) -> dict[str, list[tuple[Image.Image, str]]]:
    """{client: [(picture, class), ...]}: fedpurin makes tensors of them."""
    return {
        shop.name: [
            (Image.open(file, formats=["PNG"]).convert("L"), file.parent.name)
            for file in sorted(shop.glob("*/*.png"))
        ]
        for shop in sorted(folder.iterdir())
    }


class MyNet(nn.Module):
    """Called with the number of classes, because it asks for it."""

    def __init__(self, classes: int) -> None:
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(1, 8, 5, stride=2, padding=2),
            nn.GroupNorm(2, 8),
            nn.ReLU(),
            nn.Conv2d(8, 16, 3, stride=2, padding=1),
            nn.ReLU(),
            nn.AdaptiveAvgPool2d(4),
            nn.Flatten(),
        )
        self.classifier = nn.Linear(16 * 16, classes)

    def forward(self, x: Tensor) -> Tensor:
        scores: Tensor = self.classifier(self.features(x))
        return scores


def main(out: Path = Path("runs/images"), rounds: int = 10) -> fedpurin.Comparison:
    folder = out.with_name(f"{out.name}-pictures")
    if not folder.exists():
        write_folders(folder)
    runs = fedpurin.compare(
        model=MyNet,
        data=shops(folder),
        methods=["separate", "fedavg", "fedpurin"],
        rounds=rounds,
        epochs=3,
        batch_size=16,
        lr=0.05,
        out=out,
    )
    runs.save_figure("accuracy", out / "accuracy.png")
    model = runs["fedpurin"].client("shop-3").model()  # a MyNet, ready to predict
    picture = torch.rand(1, 1, 28, 28)
    assert model(picture).shape == (1, len(runs[0].classes))
    return runs


if __name__ == "__main__":
    print(main())
