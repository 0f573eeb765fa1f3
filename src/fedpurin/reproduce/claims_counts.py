"""The claims that counts of critical parameters speak of: how often each was critical, client by client."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from fedpurin.reproduce.claim import Claim
from fedpurin.reproduce.record import unpack_counts
from fedpurin.reproduce.result_store import Record
from fedpurin.reproduce.scales import option, trains_as_published
from fedpurin.reproduce.source import Source, dataset_label, seed_numbers
from fedpurin.reproduce.stats import seeds_together
from fedpurin.runs.same_setting import config_of

SEEDS = 3
LONG = 100  # rounds after which "never" and "agree" begin to mean something: both move with the rounds
RATHER_LONG = 50  # rounds from which other settings' counts are shown beside the one that is judged
SHARED = 0.5  # clients agree where they share more than half of the variance of their counts
UNIFORM = (0.25, 0.42)  # a third, to a quarter of it either way
PEAKED = 0.5
RARELY = 0.1  # share of the rounds


def missing_seeds(seeds: set[int]) -> str:
    return f"{n} more seed{'s' if n > 1 else ''}" if (n := SEEDS - len(seeds)) > 0 else ""


def missing(seeds: set[int], rounds: int, what: str) -> str:
    """Seeds, and rounds."""
    parts = [missing_seeds(seeds), f"{what} {LONG} rounds or more" if rounds < LONG else ""]
    return " and ".join(part for part in parts if part)


def _allcounts(source: Source) -> list[list[dict[str, Any]]]:
    """The settings of FedPURIN with the largest counted model, one line per seed: long ones first."""
    lines = [x for x in source.store.lines("coverage") if x["config"]["run"]["method"] == "fedpurin"]
    settings = seeds_together(Record(line) for line in lines)

    def weight(seeds: list[Record]) -> tuple[float, bool, int, int]:
        line = seeds[0].line
        return _counted_size(line), line["rounds"] >= LONG, len(seeds), line["rounds"]

    settings.sort(key=weight, reverse=True)
    counted = [[record.line for record in seeds] for seeds in settings]
    return [lines for lines in counted if _counted_size(lines[0]) == _counted_size(counted[0][0])]


def _counted_size(line: dict[str, Any]) -> float:
    return float(sum(np.prod(layer["shape"]) for layer in line["layers"]))


def counts(source: Source) -> list[dict[str, Any]]:
    """The lines about the setting that a claim is judged by, one per seed."""
    return next(iter(_allcounts(source)), [])


def _elsewhere(source: Source, figure: Callable[[dict[str, Any]], str]) -> str:
    """The same seed by seed in the other settings that were counted for long."""
    told = [""]
    for lines in _allcounts(source)[1:]:
        if lines[0]["rounds"] >= RATHER_LONG:
            seeds = seed_numbers(line["config"]["run"]["seed"] for line in lines)
            told.append(f"{_where(lines[0])}, {seeds}: {' / '.join(figure(line) for line in lines)}")
    return "; ".join(told)


def _needs(lines: Sequence[dict[str, Any]]) -> str:
    """Three seeds of the paper's setting, over enough rounds: agreement and "never" change with them."""
    if not trains_as_published(config_of(lines[0]["config"])):
        return "counts of the paper's setting"
    seeds = {line["config"]["run"]["seed"] for line in lines}
    return missing(seeds, min(line["rounds"] for line in lines), "counts over")


def _told(lines: Sequence[dict[str, Any]]) -> str:
    return seed_numbers(line["config"]["run"]["seed"] for line in lines)


def _counted(line: dict[str, Any]) -> str:
    record = Record(line)
    return f"{dataset_label(record.column[0])}, {record.config.model.name}, {_where(line)}"


def _where(line: dict[str, Any]) -> str:
    """The paper's own figures count with delta scores."""
    config = config_of(line["config"])
    return f"α={config.data.alpha:g}, {option(config, 'score')} score, {line['rounds']} rounds"


def nothing_unselected(source: Source) -> Claim:
    text, lines = "No parameter stays unselected for ever", counts(source)
    if not lines:
        return Claim(text, "counts of critical parameters")
    never = 100 * float(np.mean([line["never"] for line in lines]))
    chance = 100 * 0.5 ** lines[0]["rounds"]
    figure = (
        f"{never:.2f} % of a client's parameters never critical in {lines[0]['rounds']} rounds "
        f"(independent coins: {chance:.2f} %)" + _elsewhere(source, _never)
    )
    brief = f"{never:.2f} % of a client's parameters never critical in {lines[0]['rounds']} rounds"
    return Claim(text, _needs(lines), figure, _counted(lines[0]), never == 0, f"{brief} ({_told(lines)})")


def _never(line: dict[str, Any]) -> str:
    return f"{100 * line['never']:.2f} %"


def layers_agree(source: Source) -> Claim:
    """Agreement: the squared correlation of two clients' counts is above one half; below, there is none."""
    text, lines = "Convolutional layers agree across clients, the classifier does not", counts(source)
    pairs = [pair for line in lines if (pair := _agreement(line)) is not None]
    if not pairs:
        return Claim(text, "counts of critical parameters")
    body, head = np.mean(pairs, axis=0)

    def said(line: dict[str, Any]) -> str:
        pair = _agreement(line)
        return f"{pair[0] ** 2:.2f}, {pair[1] ** 2:.2f}" if pair else "-"

    judged = f"shared variance of counts (bar: {SHARED:g}), "
    judged += f"convolutions {body**2:.2f}, classifier {head**2:.2f}"
    figure, holds = judged + _elsewhere(source, said), bool(body**2 > SHARED > head**2)
    return Claim(text, _needs(lines), figure, _counted(lines[0]), holds, f"{judged} ({_told(lines)})")


def _agreement(line: dict[str, Any]) -> tuple[float, float] | None:
    body = [x["agreement"] for x in line["layers"] if len(x["shape"]) == 4 and x["agreement"] is not None]
    head = [x["agreement"] for x in line["layers"] if x["kind"] == "head" and len(x["shape"]) == 2]
    return (float(np.mean(body)), float(head[0])) if body and head and head[0] is not None else None


def filled_though_rare(line: dict[str, Any]) -> float | None:
    """Mean share of the rounds in which the global model was not zero, over the rarely critical."""
    rows, rare = len(line["client_ids"]) + 1, []
    for layer in line["layers"]:
        if "counts" in layer:
            shares = unpack_counts(layer["counts"], rows) / line["rounds"]
            rare += [shares[-1][client < RARELY] for client in shares[:-1]]
    values = np.concatenate(rare) if rare else np.zeros(0)
    return float(values.mean()) if len(values) else None


def uniform_ends(source: Source) -> Claim:
    """By the share of a layer's parameters that were critical in a third to two thirds of the rounds: a third
    of them where counts are uniform, more where they are peaked in the middle, fewer where most are nearly
    always or nearly never critical."""
    text = "Selection is uniform in the pre-convolution and the last block, peaked in the middle"
    lines = [line for line in counts(source) if any(x["name"] == "pre_conv.weight" for x in line["layers"])]
    if not lines:
        return Claim(text, "counts of a ResNet of the paper")
    names = [x["name"] for x in lines[0]["layers"] if "histogram" in x and x["kind"] != "head"]
    third = {name: float(np.mean([_middle_third(line, name) for line in lines])) for name in names}
    ends, middle = [third[names[0]], third[names[-1]]], [third[name] for name in names[1:-1]]
    shown = [f"{name.removesuffix('.weight')} {100 * value:.0f} %" for name, value in third.items()]
    low, high = UNIFORM

    def others(line: dict[str, Any]) -> str:
        return ", ".join(f"{100 * _middle_third(line, name):.0f}" for name in names) + " %"

    figure = (
        f"critical in a third to two thirds of the rounds (bars: uniform {100 * low:.0f} to {100 * high:.0f} "
        f"%, peaked over {100 * PEAKED:.0f} %): {', '.join(shown)}" + _elsewhere(source, others)
    )
    brief = ", ".join(f"{100 * value:.0f}" for value in third.values())
    brief += f" % critical in a third to two thirds of the rounds ({_told(lines)})"
    holds = all(low <= value <= high for value in ends) and min(middle) > PEAKED
    return Claim(text, _needs(lines), figure, _counted(lines[0]), holds, brief)


def _middle_third(line: dict[str, Any], name: str) -> float:
    """Of the clients' counts; an end of the third within the range of one count cuts it."""
    layer = next(x for x in line["layers"] if x["name"] == name)
    clients = np.array(layer["histogram"][:-1], dtype=np.float64).sum(axis=0)
    edges = np.linspace(0, 1, len(clients) + 1)
    inside = np.clip(np.minimum(edges[1:], 2 / 3) - np.maximum(edges[:-1], 1 / 3), 0, None) * len(clients)
    return float((clients * inside).sum() / clients.sum())
