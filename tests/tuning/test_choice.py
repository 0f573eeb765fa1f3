"""Which configurations are tried, who goes on, and which one is recommended."""

from __future__ import annotations

import pytest

from fedpurin.config import Config
from fedpurin.errors import RunError
from fedpurin.methods import METHODS
from fedpurin.runs.same_setting import setting_key
from fedpurin.runs.traffic import fronts
from fedpurin.settings import names_of
from fedpurin.tuning.candidates import VARIED, Candidate, candidates, never_varied
from fedpurin.tuning.outcome import choose
from fedpurin.tuning.search import rung_rounds
from fedpurin.tuning.trial import Standing


def test_the_list_begins_as_configured_and_has_every_method_once_before_any_variation() -> None:
    config = Config().updated({"method": {"score": "magnitude"}})
    listed, left_out = candidates(config)
    assert listed[0].config == config
    assert listed[0].label.endswith("as configured")
    first = [c.config.run.method for c in listed[1 : len(METHODS)]]
    assert sorted([*first, "fedpurin"]) == sorted(METHODS)
    assert first[0] == "separate"
    assert left_out == []


def test_no_configuration_is_listed_twice_and_labels_tell_them_apart() -> None:
    listed, _ = candidates(Config())
    assert len({setting_key(c.config.as_dict()) for c in listed}) == len(listed)
    assert len({c.label for c in listed}) == len(listed)
    assert len({c.name for c in listed}) == len(listed)
    assert {"FedPURIN, as configured", "FedPURIN (tau 0.1)", "FedBN (silent after 6, int8)"} < {
        c.label for c in listed
    }


def test_only_what_a_method_has_is_varied() -> None:
    listed, _ = candidates(Config().updated({"run": {"rounds": 20}}))
    shares = {(m.up, m.down) for c in listed if (m := c.config.method).name == "fedfrugal"}
    assert shares == {(0.02, 0.05), (0.05, 0.1), (0.1, 0.2), (0.25, 0.5)}
    purin = [c.config for c in listed if c.config.run.method == "fedpurin"]
    assert {c.method.tau for c in purin} == {0.1, 0.25, 0.5}
    assert {c.method.beta for c in purin} == {1, 6, 10}  # 6 as configured, half of 20 rounds
    assert {c.wire.values for c in purin} == {"auto", "int8"}
    assert {c.method.score for c in purin} == {"gradient", "curvature"}
    assert {c.method.silent_after for c in listed_of("fedbn", listed)} == {0, 10}
    assert len([c for c in listed if c.config.run.method == "separate"]) == 1


def listed_of(name: str, listed: list[Candidate]) -> list[Config]:
    return [c.config for c in listed if c.config.run.method == name]


def test_what_cannot_be_configured_is_left_out_with_the_reason() -> None:
    """Error feedback of the wire does nothing for methods that send updates, and is refused with them."""
    config = Config().updated({"wire": {"values": "int8", "feedback": True}})
    listed, left_out = candidates(config)
    assert not [c for c in listed if c.config.method.sends_updates]
    assert any(line.startswith("FedFrugal") and "wire.feedback" in line for line in left_out)


def test_every_setting_that_is_never_varied_is_named() -> None:
    lines = never_varied([c.config for c in candidates(Config())[0]])
    for kind in METHODS.values():
        for name in set(names_of(kind)) - set(VARIED):
            assert any(line.startswith(f"{kind.label}:") and name in line for line in lines), name


def test_fronts_are_peeled_off_one_after_the_other() -> None:
    """(accuracy, MiB): 0.9 for 5 and 0.8 for 1 are beaten by nobody; of the rest (0.7, 1) and (0.85, 6)."""
    points = [(0.9, 5.0), (0.8, 1.0), (0.85, 6.0), (0.7, 1.0), (0.6, 7.0)]
    assert fronts(points) == [0, 0, 1, 1, 2]
    assert fronts([(0.5, 1.0), (0.5, 1.0)]) == [0, 0]  # equal: neither beats the other


def standing(validation: float, mib: float, *, fits: bool = True) -> Standing:
    return Standing(10, 10, validation, 0.02, 0.0, mib, True, fits)


def test_with_a_budget_the_most_accurate_that_fits_is_taken() -> None:
    standings = [standing(0.9, 9.0, fits=False), standing(0.8, 3.0), standing(0.79, 0.1)]
    chosen, why = choose(standings, 4.0)
    assert chosen == 1
    assert "within 4 MiB" in why


def test_without_a_budget_the_cheapest_within_one_standard_error_is_taken() -> None:
    chosen, why = choose([standing(0.9, 9.0), standing(0.881, 3.0), standing(0.87, 0.1)], None)
    assert chosen == 1
    assert "2.0 points" in why
    assert choose([standing(0.9, 0.1), standing(0.89, 3.0)], None)[0] == 0


def test_a_budget_that_nobody_meets_is_said_to_be_too_small() -> None:
    with pytest.raises(RunError, match=r"the cheapest sends 3 MiB .* allow more than 1 MiB"):
        choose([standing(0.9, 9.0, fits=False), standing(0.8, 3.0, fits=False)], 1.0)


@pytest.mark.parametrize(
    ("rounds", "ends"),
    [(300, [34, 100, 300]), (15, [2, 5, 15]), (6, [2, 6]), (2, [2]), (1, [1])],
)
def test_rungs_end_after_a_ninth_a_third_and_all_rounds(rounds: int, ends: list[int]) -> None:
    assert rung_rounds(rounds) == ends
