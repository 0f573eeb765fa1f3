"""A client's memory survives its process, repeats a round exactly, and follows what the server accepted."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from fedpurin.engines.flower.store import LostStateError, Saved, Store, pick
from fedpurin.errors import RunError
from tiny import Federation, tiny_job


def state(round_: int, value: float = 0.0) -> dict[str, torch.Tensor]:
    return {"round": torch.tensor([round_]), "weights": torch.tensor([value, -value])}


def test_what_was_saved_is_loaded_even_where_states_share_tensors(tmp_path: Path) -> None:
    before = state(1, 0.5)
    after = before | {"round": torch.tensor([2])}
    Store(tmp_path, "run", 4).save(2, before, after)
    (saved,) = Store(tmp_path, "run", 4).load()
    assert saved.round == 2
    assert [int(state["round"]) for state in (saved.before, saved.after)] == [1, 2]
    assert torch.equal(saved.after["weights"], before["weights"])


def test_saving_leaves_no_temporary_file(tmp_path: Path) -> None:
    Store(tmp_path, "run", 0).save(1, state(0), state(1))
    assert [path.name for path in (tmp_path / "run").iterdir()] == ["state.safetensors"]


def test_the_round_before_is_kept_too_and_a_repeated_one_leaves_it(tmp_path: Path) -> None:
    store = Store(tmp_path, "run", 0)
    for round_ in (1, 2, 4, 4, 4):
        store.save(round_, state(round_ - 1), state(round_))
    assert [saved.round for saved in store.load()] == [4, 2]


def test_killed_between_the_two_files_a_client_can_repeat_its_round(tmp_path: Path) -> None:
    store = Store(tmp_path, "run", 0)
    store.save(4, state(3), state(4))
    store.state_file.rename(store.earlier_file)
    assert int(_picked([*store.load()], 5, confirmed=4)["round"]) == 4
    store.save(5, state(4), state(5))
    assert [saved.round for saved in store.load()] == [5, 4]


def _picked(saved: list[Saved], t: int, confirmed: int | None) -> dict[str, torch.Tensor]:
    found = pick(saved, t, confirmed)
    assert found is not None
    return found


def test_each_run_has_a_memory_of_its_own(tmp_path: Path) -> None:
    Store(tmp_path, "first", 0).save(1, state(0), state(1))
    assert list(Store(tmp_path, "second", 0).load()) == []


def test_the_state_of_another_client_is_refused(tmp_path: Path) -> None:
    Store(tmp_path, "run", 0).save(1, state(0), state(1))
    with pytest.raises(RunError, match="is of client 0"):
        list(Store(tmp_path, "run", 1).load())


def two_rounds(folder: Path) -> Store:
    store = Store(folder, "run", 0)
    for round_ in (1, 2):
        store.save(round_, state(round_ - 1, round_), state(round_, round_))
    return store


def flip(file: Path, bit: int) -> None:
    content = bytearray(file.read_bytes())
    content[bit // 8] ^= 1 << bit % 8
    file.write_bytes(content)


def test_a_flipped_bit_anywhere_in_a_file_is_found_and_the_earlier_pair_is_used(tmp_path: Path) -> None:
    store = two_rounds(tmp_path)
    whole = store.state_file.read_bytes()
    for bit in range(0, 8 * len(whole), 3):
        flip(store.state_file, bit)
        store.damaged.clear()
        assert [saved.round for saved in store.load()] == [1], f"bit {bit}"
        assert "state.safetensors is damaged" in store.damaged[0], f"bit {bit}"
        store.state_file.write_bytes(whole)
    assert [saved.round for saved in store.load()] == [2, 1]


@pytest.mark.parametrize("content", [b"", b"{}", b"\x02\0\0\0\0\0\0\0{}", b"\xff" * 50, b"[" * 10_000])
def test_what_is_no_such_file_counts_as_damaged(content: bytes, tmp_path: Path) -> None:
    store = two_rounds(tmp_path)
    store.state_file.write_bytes(content)
    assert [saved.round for saved in store.load()] == [1]


def test_states_that_do_not_say_their_round_count_as_damaged(tmp_path: Path) -> None:
    store = two_rounds(tmp_path)
    about = {"run": "run", "client": "0", "round": "2"}
    save_file({"before/weights": torch.zeros(2), "after/round": torch.zeros(3)}, store.state_file, about)
    assert [saved.round for saved in store.load()] == [1]


def test_a_damaged_file_never_takes_the_place_of_the_sound_one_before(tmp_path: Path) -> None:
    store = two_rounds(tmp_path)
    flip(store.state_file, -1)
    store.save(3, state(1), state(3))
    assert [saved.round for saved in store.load()] == [3, 1]


def test_a_repeated_round_leaves_no_other_outcome_of_it_behind(tmp_path: Path) -> None:
    """It could be taken for the new one if that were damaged: both carry the same number."""
    store = two_rounds(tmp_path)
    store.save(1, state(0), state(1, 0.5))
    assert [float(saved.after["weights"][0]) for saved in store.load()] == [0.5]


def test_a_client_whose_states_are_all_damaged_has_lost_them(tmp_path: Path) -> None:
    store = two_rounds(tmp_path)
    flip(store.state_file, -1)
    flip(store.earlier_file, -1)
    with pytest.raises(LostStateError, match="round 2; there is none"):
        pick(store.load(), 3, confirmed=2)


def test_a_damaged_earlier_file_matters_only_to_who_needs_it(tmp_path: Path) -> None:
    store = two_rounds(tmp_path)
    store.earlier_file.write_bytes(b"")
    found = pick(store.load(), 3, confirmed=2)
    assert found is not None
    assert int(found["round"]) == 2
    assert not store.damaged
    with pytest.raises(LostStateError):
        pick(store.load(), 3, confirmed=7)


def test_a_file_without_a_checksum_is_read_as_ever(tmp_path: Path) -> None:
    store = Store(tmp_path, "run", 0)
    store.folder.mkdir()
    tensors = {f"{part}/{name}": x for part in ("before", "after") for name, x in state(2, 0.5).items()}
    save_file(
        {k: v.clone() for k, v in tensors.items()},
        store.state_file,
        {"run": "run", "client": "0", "round": "2"},
    )
    (saved,) = store.load()
    assert torch.equal(saved.after["weights"], state(2, 0.5)["weights"])
    assert not store.damaged


def test_a_file_that_cannot_be_read_for_now_is_an_error_and_not_a_loss(tmp_path: Path) -> None:
    store = two_rounds(tmp_path)
    store.state_file.unlink()
    os.mkfifo(store.state_file)
    with pytest.raises(
        RunError, match=r"state\.safetensors cannot be read.*pipe.*nothing was changed"
    ) as told:
        list(store.load())
    assert not isinstance(told.value, LostStateError)


@pytest.mark.parametrize("name", ["", "../../etc", "a/b", "a b"])
def test_a_server_cannot_name_a_path_outside_the_state_directory(tmp_path: Path, name: str) -> None:
    with pytest.raises(RunError, match="names its run"):
        Store(tmp_path, name, 0)


SAVED = Saved(round=5, before=state(3), after=state(5))


def test_an_accepted_upload_is_built_upon() -> None:
    assert pick([SAVED], 6, confirmed=5) is SAVED.after


def test_a_lost_upload_is_forgotten() -> None:
    assert pick([SAVED], 6, confirmed=3) is SAVED.before


def test_a_repeated_round_starts_where_it_started() -> None:
    assert pick([SAVED], 5, confirmed=3) is SAVED.before


def test_a_repeated_last_reply_is_applied_to_the_trained_model_again() -> None:
    saved = Saved(
        round=6, before=state(5, 1.0), after=state(5, 2.0)
    )  # the final model carries the round of its upload
    assert pick([saved], 6, confirmed=5) is saved.before


def test_without_messages_a_client_goes_on_and_repeats_a_round_exactly() -> None:
    assert pick([SAVED], 6, confirmed=None) is SAVED.after
    assert pick([SAVED], 5, confirmed=None) is SAVED.before


def test_a_new_client_starts_from_the_initial_state() -> None:
    assert pick([], 4, confirmed=0) is None


def test_a_client_that_the_server_has_forgotten_starts_anew_in_the_next_round() -> None:
    """Its state is too old: one round without it, then it is answered like one that never took part."""
    with pytest.raises(LostStateError):
        pick([SAVED], 9, confirmed=8)
    assert pick([SAVED], 10, confirmed=0) is None


def test_a_client_that_lost_its_state_says_so() -> None:
    with pytest.raises(LostStateError):
        pick([], 4, confirmed=3)
    with pytest.raises(LostStateError):
        pick([SAVED], 9, confirmed=8)


EARLIER = Saved(round=3, before=state(2), after=state(3))


def test_a_server_that_lost_its_newest_checkpoint_may_repeat_two_rounds() -> None:
    assert pick([SAVED, EARLIER], 3, confirmed=2) is EARLIER.before
    assert pick([SAVED, EARLIER], 4, confirmed=3) is SAVED.before
    assert pick([SAVED, EARLIER], 4, confirmed=2) is EARLIER.before, "round 3 went without it this time"
    assert pick([SAVED, EARLIER], 5, confirmed=2) is EARLIER.before
    for t, found in ((6, SAVED.after), (5, SAVED.before), (4, SAVED.before), (3, EARLIER.before)):
        assert pick([SAVED, EARLIER], t, confirmed=None) is found, "without messages"


def test_the_round_before_the_last_reply_is_not_repeated_from_its_own_outcome() -> None:
    """The final model carries the round of the last upload."""
    final = Saved(round=6, before=state(5), after=state(5))
    trained = Saved(round=5, before=state(4), after=state(5))
    assert pick([final, trained], 5, confirmed=4) is trained.before
    assert pick([final, trained], 5, confirmed=None) is trained.before


def test_a_server_that_went_further_back_in_time_is_refused() -> None:
    for confirmed in (1, None):
        with pytest.raises(RunError, match="already worked in round 5"):
            pick([SAVED, EARLIER], 2, confirmed)
    assert pick([SAVED, EARLIER], 2, confirmed=0) is None, "it begins anew, and so does this client"


@pytest.mark.parametrize(("silent_after", "goes_on"), [(1, True), (0, False)])
def test_without_a_reply_a_client_goes_on_in_silence_and_else_starts_anew(
    silent_after: int, goes_on: bool, tmp_path: Path
) -> None:
    """No reply means silence, or that the server knows nothing of this client."""
    pytest.importorskip("flwr")
    from fedpurin.engines.flower.client_app import starting_state

    fed = Federation(tiny_job("fedbn", method__silent_after=silent_after))
    fed.round(1)
    before = fed.states[2]
    fed.round(2)
    store = Store(tmp_path, "run", 2)
    store.save(2, before, fed.states[2])
    expected = fed.states[2] if goes_on else fed.site.initial_state(2)
    found = starting_state(fed.site, store, 3, None)
    assert torch.equal(found["weights"], expected["weights"])
    assert int(found["round"]) == (2 if goes_on else 0)


def test_a_repeated_round_whose_pair_is_damaged_is_a_loss_and_no_fault_of_the_server(tmp_path: Path) -> None:
    pytest.importorskip("flwr")
    from fedpurin.engines.flower.client_app import starting_state

    fed = Federation(tiny_job("fedavg"))
    fed.round(1)
    store = two_rounds(tmp_path)
    store.save(3, state(2), state(3))
    flip(store.earlier_file, -1)
    with pytest.raises(LostStateError):
        starting_state(fed.site, store, 2, fed.hub.reply(0))
