"""The pictures of docs/method.md, each for light and dark pages.

    python scripts/method_pictures.py docs/pictures

Twelve clients of the bundled data train for one round from the common start; the paper's functions do
the rest. Overlaps over the rounds come from the recorded run of `make demo` in docs/runs/demo.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import matplotlib
import torch
from matplotlib import pyplot as plt
from matplotlib import ticker
from torch import Tensor
from torch.nn import functional as F

import fedpurin
from fedpurin import core
from fedpurin.job import Job
from fedpurin.layout import read_gradients, read_parameters, write_parameters
from fedpurin.train import key, prepare_process, train

CLIENTS, TAU, T, BETA = 12, 0.5, 1, 8
DEMO = Path(__file__).resolve().parents[1] / "docs/runs/demo/fedpurin-s1"
THEMES = {
    "light": {"ink": "#333333", "paper": "#ffffff", "grid": "#d0d0d0", "map": "YlOrBr", "signed": "PuOr"},
    "dark": {"ink": "#d8d8d8", "paper": "#131416", "grid": "#45484d", "map": "inferno", "signed": "berlin"},
}
CRITICAL, GLOBAL, NOBODY = "#d55e00", "#0072b2", "#8a8a8a"


@dataclass(frozen=True)
class Round:
    """One round of FedPURIN, step by step."""

    layer: tuple[str, int, tuple[int, ...]]  # name, offset and shape of the layer that is shown
    classes: list[list[int]]
    theta_nd: Tensor
    scores_nd: Tensor
    masks_nd: Tensor
    overlap_nn: Tensor
    groups_nn: Tensor
    merged_nd: Tensor

    def shown(self, vector: Tensor) -> Any:
        """The part of a vector that belongs to the layer, as a matrix."""
        _, start, shape = self.layer
        size = int(torch.tensor(shape).prod())
        return vector[start : start + size].reshape(shape[0], -1).numpy()


def one_round() -> Round:
    prepare_process()
    config = fedpurin.Config.preset("quickstart").updated({"run": {"clients": CLIENTS}})
    job = Job.build(config)
    theta, gradient = [], []
    for client in range(CLIENTS):
        model = job.model(client)
        write_parameters(model, job.selection.put(read_parameters(model)[None], job.common_start()[None])[0])
        train(model, job.client_data(client), config.train, _loss, key(1, "training", T, client), "cpu")
        theta.append(job.selection.take(read_parameters(model)[None])[0])
        gradient.append(job.selection.take(read_gradients(model)[None])[0])
    theta_nd, gradient_nd = torch.stack(theta), torch.stack(gradient)
    scores_nd = core.perturbation(gradient_nd, theta_nd)
    masks_nd = core.critical_mask(scores_nd, job.selection.sizes, TAU)
    overlap_nn = core.overlap(masks_nd)
    groups_nn = core.collaborators(overlap_nn, T, BETA)
    merged_nd = core.combine(theta_nd * masks_nd, masks_nd, groups_nn)
    layer, start = next((layer, at) for layer, at in job.selection.spans() if layer.kind == "head")
    classes = job.describe_clients()["train_counts"]
    return Round(
        (layer.name, start, tuple(layer.shape)),
        classes, theta_nd, scores_nd, masks_nd, overlap_nn, groups_nn, merged_nd,
    )  # fmt: skip


def _loss(model: torch.nn.Module, x: Tensor, y: Tensor) -> Tensor:
    return F.cross_entropy(model(x), y)


def scores_and_mask(round: Round, theme: dict[str, str]) -> Any:
    figure, axes = plt.subplots(2, 1, figsize=(7.6, 4.3), sharex=True)
    scores = round.shown(round.scores_nd[0])
    image = axes[0].imshow(scores.clip(1e-8) ** 0.25, aspect="auto", cmap=theme["map"], interpolation="none")
    axes[0].set_title(
        f"1. Scores of the classifier, client 0 ({scores.shape[0]} classes x {scores.shape[1]} features)"
    )
    bar = figure.colorbar(image, ax=axes, pad=0.01)
    bar.set_label("score, fourth root")
    mask = round.shown(round.masks_nd[0])
    shown = matplotlib.colors.ListedColormap([theme["paper"], CRITICAL])
    axes[1].imshow(mask, aspect="auto", cmap=shown, interpolation="none")
    axes[1].set_title(f"2. Mask: the best {TAU:.0%} of the layer. Coloured values travel, the others do not")
    axes[1].set_xlabel("feature")
    for axis in axes:
        axis.set_ylabel("class")
    return figure


def overlaps(round: Round, theme: dict[str, str]) -> Any:
    figure, axes = plt.subplots(1, 3, figsize=(7.6, 3.1), gridspec_kw={"width_ratios": [0.85, 1, 1]})
    axes[0].imshow(round.classes, aspect="auto", cmap=theme["map"])
    axes[0].set(title="Who holds what", xlabel="class", ylabel="client")
    shown = round.overlap_nn.clone().fill_diagonal_(float("nan"))
    image = axes[1].imshow(shown, cmap=theme["map"])
    figure.colorbar(image, ax=axes[1], fraction=0.046, pad=0.03)
    axes[1].set(title="3. Overlap of masks", xlabel="client j")
    groups = matplotlib.colors.ListedColormap([theme["paper"], CRITICAL])
    axes[2].imshow(round.groups_nn, cmap=groups)
    limit = core.threshold(round.overlap_nn, T, BETA)
    axes[2].set(title=f"4. Groups: overlap ≥ {limit:.2f}", xlabel="client j")
    for axis in axes:
        axis.xaxis.set_major_locator(ticker.MultipleLocator(3))
        axis.yaxis.set_major_locator(ticker.MultipleLocator(3))
    return figure


def merged(round: Round, theme: dict[str, str]) -> Any:
    figure, axes = plt.subplots(3, 1, figsize=(7.6, 5.4), sharex=True)
    own, mask = round.shown(round.theta_nd[0]), round.shown(round.masks_nd[0])
    new, sent = round.shown(round.merged_nd[0]), round.shown(round.masks_nd.any(0))
    most = abs(own).max() * 0.8
    look = {"aspect": "auto", "cmap": theme["signed"], "vmin": -most, "vmax": most, "interpolation": "none"}
    axes[0].imshow(own * mask, **look)
    axes[0].set_title("Uploaded by client 0: its critical values")
    axes[1].imshow(new, **look)
    axes[1].set_title("5. Merged model that client 0 gets back")
    source = matplotlib.colors.ListedColormap([NOBODY, GLOBAL, CRITICAL])
    axes[2].imshow(
        mask * 2 + (~mask & sent), aspect="auto", cmap=source, vmin=0, vmax=2, interpolation="none"
    )
    axes[2].set_title("Where each value comes from")
    axes[2].set_xlabel("feature")
    names = {
        CRITICAL: "critical: mean of its group",
        GLOBAL: "other: mean of all",
        NOBODY: "sent by nobody: 0",
    }
    handles = [plt.Rectangle((0, 0), 1, 1, color=color) for color in names]
    figure.legend(handles, list(names.values()), loc="outside lower center", ncols=3, frameon=False)
    for axis in axes:
        axis.set_ylabel("class")
    return figure


def over_rounds(theme: dict[str, str]) -> Any:
    lines = fedpurin.load(DEMO).lines
    rounds = [line["round"] for line in lines]
    figure, axes = plt.subplots(1, 2, figsize=(7.6, 3.0))
    spread = [
        sorted(v for i, row in enumerate(line["overlap"]) for j, v in enumerate(row) if i != j)
        for line in lines
    ]
    axes[0].fill_between(
        rounds, [s[0] for s in spread], [s[-1] for s in spread], color=GLOBAL, alpha=0.25, lw=0
    )
    axes[0].plot(rounds, [sum(s) / len(s) for s in spread], color=GLOBAL, label="overlap: mean and range")
    told = [(r, line["threshold"]) for r, line in zip(rounds, lines, strict=True) if r <= BETA]
    axes[0].plot(*zip(*told, strict=True), color=CRITICAL, label="threshold, until beta")
    axes[0].set(xlabel="round", title="The threshold climbs")
    axes[0].legend(frameon=False, fontsize=8)
    sizes = [sum(map(len, line["collaborators"])) / len(line["collaborators"]) for line in lines]
    axes[1].step(rounds, sizes, where="mid", color=CRITICAL)
    axes[1].axvline(BETA, color=theme["ink"], ls=":", lw=1)
    axes[1].text(BETA + 0.2, max(sizes) * 0.9, "beta", color=theme["ink"])
    axes[1].set(xlabel="round", title="Collaborators per client", ylim=(0, None))
    return figure


def main(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    round = one_round()
    pictures: dict[str, Callable[[dict[str, str]], Any]] = {
        "scores": lambda theme: scores_and_mask(round, theme),
        "overlap": lambda theme: overlaps(round, theme),
        "merge": lambda theme: merged(round, theme),
        "rounds": over_rounds,
    }
    for theme, colors in THEMES.items():
        ink = {
            f"{part}.{what}": colors["ink"] for part in ("xtick", "ytick") for what in ("color", "labelcolor")
        }
        style = {
            "axes.edgecolor": colors["grid"], "axes.labelcolor": colors["ink"], "text.color": colors["ink"],
            "axes.facecolor": colors["paper"], "figure.constrained_layout.use": True, "font.size": 9,
            "axes.titlesize": 10, "svg.hashsalt": "fedpurin", **ink,
        }  # fmt: skip
        with matplotlib.rc_context(style):
            for name, draw in pictures.items():
                figure = draw(colors)
                figure.savefig(
                    folder / f"{name}-{theme}.png", dpi=150, transparent=False, facecolor=colors["paper"]
                )
                plt.close(figure)


if __name__ == "__main__":
    matplotlib.use("Agg")
    main(Path(sys.argv[1]))
