"""Posteriors and agents answer what they answered before; `tests/frozen.py` says what is asked, and what compared."""

import copy
import json

import frozen
import pytest
from frozen import CASES, PLAYS, ROUTES, compare, compare_plays

OLD = frozen.load(frozen.POSTERIORS)
PLAYED = frozen.load(frozen.AGENTS)
SHOWN = 5


DECIDING = ("walk", "hmc", "nuts", "grid")
"""Where a last bit may decide, which another processor rounds otherwise; and what takes long."""
SIBLINGS = (
    "larger swirl",
    "swirl, complete",
    "swirl, wide",
    "exact swirl, complete",
    "exact larger sea",
    "exact pyramid, complete: ties",
    "sea, narrow",
    "exact swirl, discounted",
    "exact leaky loop",
    "slippery sea",
    "four states",
    "two states, uniform",
    "noisy sea, Laplace",
    "noisy sea, inferred Student's t",
)
"""Larger or other cases of what is asked in a smaller one too."""


def case_of(case):
    """As a case of a test; one whose numbers hang on last bits, or that has a sibling, is left to `make test-slow`."""
    slow = case.name in SIBLINGS or any(word in case.name for word in DECIDING)
    return pytest.param(case, id=case.name, marks=[pytest.mark.slow] if slow else [])


@pytest.mark.parametrize("case", [case_of(case) for case in CASES])
def test_posteriors_are_what_they_were(case, request):
    """As the table says: the same numbers, or numbers within 5 combined standard errors.

    With another master seed the points are others and all are compared by their errors. False alarms: 1% for all cases
    with importance sampling and many chains, if old and new points are independent; see `tests/frozen.py`.
    """
    comparison = "error" if request.config.getoption("--master-seed") else case.comparison
    found = compare(comparison, OLD[case.name], frozen.ask(case))
    failed = [difference for difference in found if difference.excess > 1.0]
    worst = "\n  ".join(map(str, failed[:SHOWN]))
    assert not failed, (
        f"{case.name}: {len(failed)} of {len(found)} numbers differ ({comparison}), most of all\n  {worst}"
    )


@pytest.mark.slow
@pytest.mark.parametrize("played", PLAYS, ids=lambda played: played.name)
def test_agents_play_what_they_played(played):
    difference = compare_plays(PLAYED[played.name], frozen.play(played))
    assert difference is None, f"{played.name}: {difference}"


def test_the_table_and_the_files_hold_the_same_cases_and_every_change_has_a_reason():
    assert [case.name for case in CASES] == list(OLD)
    assert [played.name for played in PLAYS] == list(PLAYED)
    assert all(case.reason for case in CASES if case.comparison != "same")
    assert set(SIBLINGS) <= set(OLD)


# The comparison itself


@pytest.fixture
def answer():
    """An answer that is compared with a changed one."""
    return copy.deepcopy(OLD["swirl"])


def failures(comparison, old, new):
    return [difference.what for difference in compare(comparison, old, new) if difference.excess > 1.0]


@pytest.mark.parametrize("comparison", ["same", "error"])
def test_an_answer_agrees_with_itself(comparison):
    for old in OLD.values():
        assert failures(comparison, old, old) == []


def test_the_last_bits_may_differ_and_nothing_else(answer):
    new = copy.deepcopy(answer)
    for numbers in new["pairs"].values():
        numbers[:] = [number * (1 + 4e-16) for number in numbers]
    assert failures("same", answer, new) == []
    new["pairs"]["1,0 left"][0] += 1e-11
    new["pairs"]["1,1 left"][3] += 1e-10
    assert sorted(failures("same", answer, new)) == ["probability of 1,0 left", "second moment of value of 1,1 left"]
    assert failures("error", answer, new) == []


def test_the_worst_number_comes_first(answer):
    new = copy.deepcopy(answer)
    new["pairs"]["1,0 left"][0] += 1e-6
    new["pairs"]["2,0 right"][0] -= 1e-3
    worst = compare("same", answer, new)[0]
    assert worst.what == "probability of 2,0 right"
    assert "off by 0.001, allowed 1e-12" in str(worst)


def test_errors_of_rare_probabilities_are_not_compared(answer):
    new = copy.deepcopy(answer)
    assert 0 < answer["improper_mass"][0] < frozen.RARE
    new["improper_mass"][1] = 0.5
    assert failures("same", answer, new) == []
    new["improper_mass"] = [answer["improper_mass"][0] + 9e-4, 0.0]
    assert failures("error", answer, new) == []
    new["improper_mass"] = [0.01, 0.0]
    assert failures("error", answer, new) == ["improper_mass"]


def test_differences_are_measured_by_their_errors(answer):
    for times, failed in ((4.9, []), (5.1, ["probability of 1,0 left"])):
        new = copy.deepcopy(answer)
        probability, error, *_ = answer["pairs"]["1,0 left"]
        new["pairs"]["1,0 left"][0] = probability + times * 2**0.5 * error
        assert failures("error", answer, new) == failed


def test_larger_errors_excuse_nothing(answer):
    new = copy.deepcopy(answer)
    for numbers in new["pairs"].values():
        numbers[1] = 10 * numbers[1] + 0.01
    assert failures("error", answer, new) == ["largest standard error"]


@pytest.mark.parametrize(("entry", "share", "what"), [(2, 0.05, "mean"), (3, 0.1, "standard deviation")])
def test_moments_may_differ_by_what_the_errors_allow(answer, entry, share, what):
    new = copy.deepcopy(answer)
    deviation = answer["pairs"]["2,0 left"][3]
    new["pairs"]["2,0 left"][entry] += 0.001 * deviation
    assert failures("error", answer, new) == []
    new["pairs"]["2,0 left"][entry] += share * deviation
    assert failures("error", answer, new) == [f"{what} of value of 2,0 left"]


@pytest.mark.parametrize("comparison", ["same", "error"])
@pytest.mark.parametrize(("name", "value"), [("engine", "walk"), ("trustworthy", False), ("log_evidence", None)])
def test_what_is_not_a_number_must_be_equal(answer, comparison, name, value):
    assert failures(comparison, answer, {**answer, name: value})[0] == name


def test_the_dimension_is_an_engines_own_affair(answer):
    new = {**answer, "dimension": 3}
    assert failures("same", answer, new) == ["dimension"]
    assert failures("error", answer, new) == []


@pytest.mark.parametrize("comparison", ["same", "error"])
def test_equally_probable_routes_at_the_end_of_the_list_may_change_places(answer, comparison):
    routes = {f"route {k}": [0.04, 0.0001] for k in range(ROUTES)}
    old = {**answer, "routes": routes}
    other = {"another": [0.04, 0.0001], **dict(list(routes.items())[1:])}
    assert failures(comparison, old, {**answer, "routes": other}) == []
    likely = {"another": [0.2, 0.0001], **dict(list(routes.items())[1:])}
    assert failures(comparison, old, {**answer, "routes": likely}) == ["route another"]
    fewer = dict(list(routes.items())[1:])
    assert failures(comparison, old, {**answer, "routes": fewer})[0] == "route route 0"


def test_plays_are_compared_by_pairs_and_rewards():
    old = {"pairs": [[0, 1], [2]], "rewards": [[0.5, 1.0], [1.0]]}
    assert compare_plays(old, old) is None
    assert compare_plays(old, {**old, "pairs": [[0, 1], [3]]}) == "episode 2: pairs [2] became [3]"
    assert "episode 1: rewards" in compare_plays(old, {**old, "rewards": [[0.5, 1.1], [1.0]]})


# Files


def test_numbers_keep_all_their_digits(tmp_path):
    frozen.save(tmp_path / "a.json", OLD)
    assert json.loads((tmp_path / "a.json").read_text()) == OLD
    assert (tmp_path / "a.json").read_text() == (frozen.DIRECTORY / frozen.POSTERIORS).read_text()


def test_some_cases_are_frozen_again_and_the_others_kept(tmp_path):
    stale = {name: {} for name in OLD}
    frozen.save(tmp_path / frozen.POSTERIORS, stale)
    frozen.save(tmp_path / frozen.AGENTS, PLAYED)
    frozen.freeze(tmp_path, ["prior"])
    again = json.loads((tmp_path / frozen.POSTERIORS).read_text())
    assert again == {**stale, "prior": OLD["prior"]}
    assert json.loads((tmp_path / frozen.AGENTS).read_text()) == PLAYED
    with pytest.raises(SystemExit, match="no case is called unheard-of"):
        frozen.freeze(tmp_path, ["unheard-of"])
