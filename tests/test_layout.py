"""nn.Module <-> flat vector; kinds by module type, never by name."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from fedpurin.errors import ModelError
from fedpurin.layout import Layout, read_gradients, read_parameters, write_parameters

NORMS = [
    nn.BatchNorm1d(4), nn.BatchNorm2d(4), nn.BatchNorm3d(4), nn.SyncBatchNorm(4), nn.LayerNorm(4),
    nn.GroupNorm(2, 4), nn.InstanceNorm2d(4, affine=True), nn.RMSNorm(4),
]  # fmt: skip


@pytest.mark.parametrize("norm", NORMS, ids=lambda m: type(m).__name__)
def test_every_kind_of_normalisation_is_recognised_by_its_type(norm: nn.Module) -> None:
    model = nn.ModuleDict({"bn_in_name_only": nn.Linear(2, 2), "layer": norm, "last": nn.Linear(2, 2)})
    kinds = {layer.name: layer.kind for layer in Layout.of(model).layers}
    assert {kind for name, kind in kinds.items() if name.startswith("layer.")} == {"norm"}
    assert kinds["bn_in_name_only.weight"] == "body"
    assert kinds["last.weight"] == kinds["last.bias"] == "head"


class OwnNorm(nn.BatchNorm2d):
    pass


def test_subclasses_of_a_norm_are_norms() -> None:
    layout = Layout.of(nn.Sequential(nn.Conv2d(1, 4, 3), OwnNorm(4), nn.Flatten(), nn.Linear(4, 2)))
    assert [layer.kind for layer in layout.layers] == ["body", "body", "norm", "norm", "head", "head"]


def three_linears() -> nn.Sequential:
    return nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 4), nn.Linear(4, 2, bias=False))


def test_the_head_is_the_last_linear_layer_unless_one_is_named() -> None:
    model = three_linears()
    assert [layer.name for layer in Layout.of(model).layers if layer.kind == "head"] == ["3.weight"]
    named = Layout.of(model, head="2")
    assert [layer.name for layer in named.layers if layer.kind == "head"] == ["2.weight", "2.bias"]


def test_a_whole_module_can_be_the_head_and_its_norms_stay_norms() -> None:
    model = nn.ModuleDict(
        {"body": nn.Linear(3, 3), "top": nn.Sequential(nn.LayerNorm(3), nn.Linear(3, 3), nn.Linear(3, 2))}
    )
    kinds = {layer.name: layer.kind for layer in Layout.of(model, head="top").layers}
    assert kinds == {
        "body.weight": "body", "body.bias": "body", "top.0.weight": "norm", "top.0.bias": "norm",
        "top.1.weight": "head", "top.1.bias": "head", "top.2.weight": "head", "top.2.bias": "head",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("model", "head", "says"),
    [
        (nn.Sequential(nn.Conv2d(1, 2, 3)), None, "no linear layer"),
        (three_linears(), "classifier", "'classifier'.*0, 1, 2, 3"),
        (nn.Sequential(nn.Linear(2, 2).double()), None, "float64"),
        (nn.Sequential(nn.ReLU()), "0", "no parameters"),
    ],
)
def test_models_that_do_not_fit_are_refused_with_a_reason(
    model: nn.Module, head: str | None, says: str
) -> None:
    with pytest.raises(ModelError, match=says):
        Layout.of(model, head)


def test_layers_follow_each_other_in_the_vector() -> None:
    layout = Layout.of(three_linears())
    assert [(layer.start, layer.size) for layer in layout.layers] == [
        (0, 12), (12, 4), (16, 4), (20, 4), (24, 16), (40, 4), (44, 8),
    ]  # fmt: skip
    assert layout.total == 52
    assert layout.where("norm").nonzero().flatten().tolist() == list(range(16, 24))
    assert layout.where().sum() == 0
    assert layout.where("body", "head", "norm").all()


def test_reading_and_writing_parameters_is_lossless_in_any_memory_format() -> None:
    def make() -> nn.Module:
        return nn.Sequential(nn.Conv2d(3, 5, 3), nn.Flatten(), nn.Linear(5, 2))

    plain, last = make(), make().to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    flat = read_parameters(plain)
    write_parameters(last, flat)
    assert torch.equal(read_parameters(last), flat)
    assert torch.equal(last[0].weight, plain[0].weight)
    assert last[0].weight.is_contiguous(memory_format=torch.channels_last), "its own memory format stays"
    flat.zero_()
    assert read_parameters(plain).any(), "a copy was read"


def test_gradients_come_in_the_same_order_and_missing_ones_are_zero() -> None:
    model = nn.Sequential(nn.Linear(2, 1, bias=False), nn.Linear(1, 1))
    model[0](torch.tensor([[2.0, 3.0]])).sum().backward()  # the second layer takes no part
    assert read_gradients(model).tolist() == [2.0, 3.0, 0.0, 0.0]


# Selections: which layers are exchanged


def test_take_and_put_are_inverse_and_leave_the_rest_alone() -> None:
    layout = Layout.of(three_linears())
    selection = layout.select(layout.where("body", "head"))
    assert selection.d == 52 - 8
    full = torch.arange(2.0 * 52).view(2, 52)
    part = selection.take(full)
    assert part.tolist()[0] == [*range(16), *range(24, 52)]
    changed = selection.put(full, -part - 1)
    assert torch.equal(selection.take(changed), -part - 1)
    assert torch.equal(changed[:, 16:24], full[:, 16:24])
    part.zero_()
    assert full[0, 1] == 1, "take copies"
    assert torch.equal(full, torch.arange(2.0 * 52).view(2, 52)), "put copies"


def test_spans_say_where_layers_are_among_the_exchanged() -> None:
    layout = Layout.of(three_linears())
    selection = layout.select(layout.where("norm", "head"))
    assert [(layer.name, at) for layer, at in selection.spans()] == [
        ("1.weight", 0),
        ("1.bias", 4),
        ("3.weight", 8),
    ]
    assert selection.sizes == [4, 4, 8]


def test_nothing_may_be_exchanged_but_no_half_layers() -> None:
    layout = Layout.of(three_linears())
    assert layout.select(layout.where()).d == 0
    half = layout.where("head")
    half[-1] = False
    with pytest.raises(ModelError, match=r"3\.weight"):
        layout.select(half)


def test_the_fingerprint_tells_apart_names_shapes_and_selections() -> None:
    def fingerprint(model: nn.Module, *kinds: str) -> bytes:
        layout = Layout.of(model)
        return layout.select(layout.where(*(kinds or ("body", "head", "norm")))).fingerprint  # type: ignore[arg-type]

    models = {
        "same": fingerprint(three_linears()),
        "less": fingerprint(three_linears(), "body"),
        "shape": fingerprint(nn.Sequential(nn.Linear(4, 3), nn.Linear(3, 2))),
        "transposed": fingerprint(nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 2))),
        "name": fingerprint(nn.ModuleDict({"a": nn.Linear(3, 4), "b": nn.Linear(4, 2)})),
    }
    assert len(set(models.values())) == len(models)
    assert models["same"] == fingerprint(three_linears())
    assert all(len(f) == 8 for f in models.values())
