"""How often each parameter was critical: ridge plots and heat maps, for clients and the server."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from fedpurin.report.style import SEQUENTIAL, look, matplotlib_style
from fedpurin.reproduce.markup import Paragraphs
from fedpurin.reproduce.paper_figures import new_figure, save
from fedpurin.reproduce.record import unpack_counts
from fedpurin.reproduce.scales import option
from fedpurin.reproduce.source import Source, column_label
from fedpurin.runs.same_setting import config_of

CLIENT = ("#0072b2", "#a9cfe8")  # edge, fill
SERVER = (look("fedpurin").color, "#f0c3a0")
COLOURS = 3  # up to this many input channels stand side by side
KINDS = {"ridge": "how often parameters were critical", "heat": "the same by place"}
BINS = 24  # of a ridge plot, at most


def coverage_figures(line: dict[str, Any], out: Path) -> list[Path]:
    name = file_name(line)
    shown = [layer for layer in line["layers"] if "histogram" in layer]
    with matplotlib_style():
        return ridges(line, shown, out, f"{name}-ridge") + heat_maps(line, shown, out, f"{name}-heat")


def file_name(line: dict[str, Any]) -> str:
    data = line["config"]["data"]
    return f"coverage-{data['dataset']}-a{data['alpha']:g}-{option(config_of(line['config']), 'score')}"


def coverage_pictures(source: Source) -> Paragraphs:
    """Those of the longest counts of each setting of CIFAR-10; the queue draws them."""
    longest = {file_name(line): line for line in source.lines("coverage", ("cifar-10",))}
    lines = []
    for name, line in sorted(longest.items()):
        score = option(config_of(line["config"]), "score")
        text = f"{where(line)}, {score} scores, {line['rounds']} rounds"
        lines += [f"- ![{kind}: {text}](figures/{name}-{part}.png)" for part, kind in KINDS.items()]
    return Paragraphs(lines or ["- nothing counted yet"])


def where(line: dict[str, Any]) -> str:
    run, data = line["config"]["run"], line["config"]["data"]
    return f"{column_label((data['dataset'], data['alpha']))}, seed {run['seed']}"


def layer_label(name: str) -> str:
    parts = name.removesuffix(".weight").split(".")
    if parts[0] == "stages":
        return f"stage {int(parts[1]) + 1}"
    return " ".join(parts).replace("pre_conv", "pre-conv")


def row_names(line: dict[str, Any]) -> list[str]:
    return [*(f"client {c}" for c in line["client_ids"]), "server"]


def density(histogram: list[int], rounds: int) -> tuple[np.ndarray, np.ndarray]:
    """Share of the parameters by share of the rounds, in at most BINS bins -> (centres, heights).

    A bin holds one possible count more than its neighbour where they do not divide evenly: heights are
    per count, or a smooth curve would get teeth.
    """
    counts = np.arange(rounds + 1)
    bins = min(BINS, rounds + 1)
    place = counts * bins // (rounds + 1)
    width = np.bincount(place)
    centres = np.bincount(place, weights=counts) / width / max(rounds, 1)
    heights = np.bincount(place, weights=np.array(histogram, dtype=np.float64)) / width
    return centres, heights / max(heights.sum(), 1)


def ridges(line: dict[str, Any], shown: list[dict[str, Any]], out: Path, name: str) -> list[Path]:
    """A column per layer, a ridge per client, the server's at the bottom."""
    names = row_names(line)
    size = (2.35 * len(shown), 0.62 * len(names) + 1.5)
    figure, axes = new_figure(size, ncols=len(shown), sharey=True)
    for axis, layer in zip(axes[0], shown, strict=True):
        shapes = [density(h, line["rounds"]) for h in layer["histogram"]]
        tallest = max(heights.max() for _, heights in shapes[:-1])  # clients share a scale
        for place, (x, heights) in enumerate(shapes):
            level = len(names) - 1 - place
            color, fill = CLIENT if level else SERVER
            top = tallest / 1.5 if level else heights.max() / 0.9
            edge_x = np.concatenate([[0], x, [1]])
            edge_y = level + np.concatenate([[heights[0]], heights, [heights[-1]]]) / top
            axis.fill_between(edge_x, level, edge_y, color=fill, linewidth=0, zorder=place + 2)
            axis.plot(edge_x, edge_y, color="white", linewidth=2.2, zorder=place + 2)
            axis.plot(edge_x, edge_y, color=color, linewidth=1.2, zorder=place + 2)
        axis.set_title(layer_label(layer["name"]), fontsize=11)
        axis.set_xlim(0, 1)
        axis.set_ylim(-0.05, len(names) + 0.55)
        axis.set_xticks([0, 0.5, 1], ["0", "50", "100"])
        axis.grid(axis="x", visible=False)
        axis.spines["left"].set_visible(False)
        axis.tick_params(axis="y", length=0)
    axes[0][0].set_yticks(range(len(names)), names[::-1])
    below = f"{where(line)}: critical (server: not zero) in this percentage of {line['rounds']} rounds"
    figure.supxlabel(below, fontsize=11)
    return save(figure, out, name)


def heat_maps(line: dict[str, Any], shown: list[dict[str, Any]], out: Path, name: str) -> list[Path]:
    """A row per client and the server, a column per layer: first output kernel, or the whole classifier."""
    from matplotlib.colors import LinearSegmentedColormap

    names = row_names(line)
    shown = [layer for layer in shown if "counts" in layer]
    ramp = LinearSegmentedColormap.from_list("coverage", SEQUENTIAL["light"])
    colors = ramp.with_extremes(bad="#e8e8e8")  # no channel there
    pictures = [picture(layer, len(names)) for layer in shown]
    widths = [min(max(1.0, p.shape[2] / p.shape[1]), 3.0) for p in pictures]
    size = (1.25 * sum(widths) + 1.6, 1.12 * len(names) + 0.6)
    figure, axes = new_figure(size, nrows=len(names), ncols=len(shown), width_ratios=widths)
    shades = {"cmap": colors, "vmin": 0, "vmax": 100, "aspect": "auto", "interpolation": "nearest"}
    image = None
    for column, (layer, maps) in enumerate(zip(shown, pictures, strict=True)):
        for row, axis in enumerate(axes[:, column]):
            image = axis.imshow(maps[row] / line["rounds"] * 100, **shades)
            axis.set_xticks([])
            axis.set_yticks([])
            axis.grid(visible=False)
            axis.spines[:].set_visible(False)
            if column == 0:
                axis.set_ylabel(names[row], rotation=0, ha="right", va="center", fontsize=10)
        axes[0, column].set_title(layer_label(layer["name"]), fontsize=11, loc="center")
    figure.colorbar(image, ax=axes, label=f"% of rounds; {where(line)}", shrink=0.6, pad=0.015)
    return save(figure, out, name)


def picture(layer: dict[str, Any], rows: int) -> np.ndarray:
    """[rows, height, width]: input channels as tiles; a classifier as it is, one line per class."""
    counts = unpack_counts(layer["counts"], rows)
    shape = layer["shape"]
    if len(shape) == 2:
        return counts.reshape(rows, shape[0], -1) if counts.shape[1] % shape[0] == 0 else counts[:, None, :]
    channels, high, wide = shape[1:]
    across = channels if channels <= COLOURS else int(np.ceil(np.sqrt(channels)))
    down = -(-channels // across)
    mosaic = np.full((rows, down * across, high, wide), np.nan)
    mosaic[:, :channels] = counts.reshape(rows, channels, high, wide)
    tiles = mosaic.reshape(rows, down, across, high, wide).transpose(0, 1, 3, 2, 4)
    return tiles.reshape(rows, down * high, across * wide)
