"""pFedSD's loss against one written by hand with a second model as teacher."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import Tensor, nn

from fedpurin.layout import Layout, read_gradients, read_parameters, write_parameters
from fedpurin.methods.pfedsd import PFedSD, Teacher
from tiny import CLASSES, Federation, tiny_job, tiny_model

DISTILL, TEMPERATURE = 0.7, 2.5


def models_and_batch() -> tuple[nn.Module, nn.Module, Tensor, Tensor]:
    """A student with some history in its running statistics, a teacher that differs, and a batch."""
    torch.manual_seed(3)
    student, teacher = tiny_model((1, 4, 4), CLASSES), tiny_model((1, 4, 4), CLASSES)
    student(torch.rand(8, 1, 4, 4))
    return student, teacher, torch.rand(7, 1, 4, 4), torch.arange(7) % CLASSES


def by_hand(student: nn.Module, teacher: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    """CE + lambda temp^2 mean over the batch of sum_c p_c (log p_c - log q_c); p teacher, q student."""
    logits = student(x)
    with torch.no_grad():
        soft = torch.softmax(teacher(x) / TEMPERATURE, dim=1)
    log_q = torch.log_softmax(logits / TEMPERATURE, dim=1)
    divergence = (soft * (soft.log() - log_q)).sum(dim=1).mean()
    cross_entropy = -torch.log_softmax(logits, dim=1)[torch.arange(len(y)), y].mean()
    return cross_entropy + DISTILL * TEMPERATURE**2 * divergence


@pytest.mark.parametrize("norms_fixed", [False, True], ids=["training", "norms-in-evaluation-mode"])
def test_the_loss_and_its_gradient_are_those_of_a_copied_teacher(norms_fixed: bool) -> None:
    """The teacher is a whole copy of the student with other parameters, in the mode the student is in."""
    student, other, x, y = models_and_batch()
    if norms_fixed:  # as in local training with a single sample
        student[2].eval()  # type: ignore[index]
    teacher = copy.deepcopy(student)
    write_parameters(teacher, read_parameters(other))
    twin = copy.deepcopy(student)
    memory = Teacher(read_parameters(other)[None], torch.tensor([[4]]))

    expected = by_hand(twin, teacher, x, y)
    expected.backward()  # type: ignore[no-untyped-call]
    found = PFedSD(DISTILL, TEMPERATURE).loss(student, x, y, memory)
    found.backward()  # type: ignore[no-untyped-call]

    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(read_gradients(student), read_gradients(twin), rtol=1e-5, atol=1e-6)
    for name, buffer in student.named_buffers():
        assert torch.equal(buffer, twin.get_buffer(name)), f"{name}: as after one pass of the student alone"
    assert torch.equal(memory.teacher[0], read_parameters(other))


def test_the_teacher_adds_something_and_vanishes_with_lambda() -> None:
    student, other, x, y = models_and_batch()
    memory = Teacher(read_parameters(other)[None], torch.tensor([[1]]))
    plain, with_teacher = PFedSD(distill=0.0), PFedSD(distill=1.0)
    assert with_teacher.loss(student, x, y, memory) > plain.loss(student, x, y, memory) + 1e-4


def test_without_a_teacher_the_loss_is_cross_entropy() -> None:
    student, _, x, y = models_and_batch()
    method = PFedSD()
    layout = Layout.of(student)
    memory = method.memory(layout, layout.select(layout.where()), read_parameters(student)[None])
    expected = nn.functional.cross_entropy(copy.deepcopy(student)(x), y)
    assert torch.equal(method.loss(student, x, y, memory), expected)


def test_the_teacher_is_the_clients_own_model_at_the_end_of_its_last_training() -> None:
    fed = Federation(tiny_job("pfedsd"))
    fed.round(1)
    trained = {c: state["weights"].clone() for c, state in fed.states.items()}
    for client, state in fed.states.items():
        assert torch.equal(state["memory.teacher"], trained[client])
        assert int(state["memory.teacher_round"]) == 1
    fed.round(2, lost=(1,))
    assert torch.equal(fed.states[1]["memory.teacher"], trained[1]), "a lost round leaves no teacher behind"
    assert torch.equal(fed.states[0]["memory.teacher"], fed.states[0]["weights"])
    assert int(fed.states[0]["memory.teacher_round"]) == 2
