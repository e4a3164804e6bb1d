"""The ledger: verdicts follow from the numbers, whatever the numbers are; claims without runs are what they should be.

Runs are made up here: an agent learns after a number of episodes, or never. That is enough to see the verdict about
every claim that runs decide turn when the runs do, and no verdict be won with a single run.
"""

import io
import json
import math
import signal
from contextlib import redirect_stdout
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path

import numpy as np
import pytest
import xarray as xr
from scipy import integrate, stats

from bellmanifold.errors import BadInputError, StoppedError
from bellmanifold.io.models import load_model
from bellmanifold.posteriors.inference import posterior
from bellmanifold.problem.dataset import Dataset
from bellmanifold_paper import ledger, tables
from bellmanifold_paper.claims import deep_sea, hmc, published, pyramid, slippery, swirl, two_state
from bellmanifold_paper.claims.answers import chance, complete, counted, loop_mass
from bellmanifold_paper.example_1 import Plane
from bellmanifold_paper.ledger_file import Entry, JudgedClaim, Ledger, read_ledger, write_ledger
from bellmanifold_paper.paper_runs import DEEP_SEA, EPISODES, PYRAMID, SWIRL, Cell, PaperRuns
from bellmanifold_paper.route_chances import chances_given, final_chances, route_chances, routes_of
from bellmanifold_paper.verdicts import (
    Condition,
    Finding,
    Measurement,
    agreement,
    difference,
    equals,
    estimated,
    exactly,
    largest,
    mean_of,
    mean_share,
    nonnegative,
    one_more,
    share_of,
    total_variation,
)

BY_NAME = {claim.id: claim for claim in ledger.CLAIMS}


# From numbers to verdicts


def test_intervals_are_those_of_scipy(rng):
    first, second = rng.normal(3.0, 2.0, 10), rng.normal(1.0, 0.5, 7)
    own = stats.ttest_1samp(first, 0.0).confidence_interval(0.95)
    found = mean_of("x", first)
    np.testing.assert_allclose([found.low, found.high, found.sd], [own.low, own.high, first.std(ddof=1)])
    gap = stats.ttest_ind(first, second, equal_var=False).confidence_interval(0.95)
    found = difference("x", first, second)
    np.testing.assert_allclose([found.low, found.high], [gap.low, gap.high])
    share = stats.binomtest(7, 10).proportion_ci(0.95, method="exact")
    found = share_of("x", np.arange(10) < 7)
    np.testing.assert_allclose([found.low, found.high], [share.low, share.high])
    assert (share_of("x", np.ones(10, bool)).high, share_of("x", np.zeros(10, bool)).low) == (1.0, 0.0)


@pytest.mark.parametrize(
    ("value", "low", "high", "outcome"),
    [
        (1.0, 0.5, 1.5, "established"),
        (1.0, -0.5, 2.5, "likely"),
        (-1.0, -2.5, 0.5, "unlikely"),
        (-1.0, -1.5, -0.5, "refuted"),
        (0.0, 0.0, 0.0, "refuted"),
        (math.nan, math.nan, math.nan, "unlikely"),
    ],
)
def test_outcomes(value, low, high, outcome):
    assert Condition(Measurement("x", value, low, high), above=0.0).outcome == outcome


def test_verdicts():
    yes, maybe = exactly("yes", 1.0), Measurement("maybe", 1.0, -1.0, 3.0)
    no, hardly = exactly("no", -1.0), Measurement("hardly", -1.0, -3.0, 1.0)

    def verdict(*wanted, also=()):
        return Finding(tuple(Condition(m, 0.0) for m in wanted), tuple(Condition(m, 0.0) for m in also)).verdict

    assert verdict(yes, yes) == "holds"
    assert verdict(yes, maybe) == "holds with a remark"
    assert verdict(yes, also=(no,)) == "holds with a remark"
    assert verdict(yes, maybe, hardly) == verdict(yes, no) == "does not hold"


def test_remarks_say_what_was_not_established():
    found = Finding((Condition(Measurement("gap", 1.0, -1.0, 3.0), 0.0), Condition(exactly("rest", 1.0), 0.0)))
    assert found.remarks() == "gap above 0: not established by these runs."


def test_one_run_tells_nothing():
    for found in (mean_of("x", np.ones(1)), difference("x", np.ones(1), np.zeros(10))):
        assert (found.low, found.high) == (-math.inf, math.inf)
    assert one_more("x", np.ones(1), 1.0).outcome == "likely"
    assert agreement("x", np.ones(1), 1.0, 1.0, 10).outcome == "likely"


def test_a_further_run_is_placed_by_its_prediction_interval(rng):
    """2,000 times ten normal numbers and one more: it is typical in 95% of them, within 4 standard errors (a false
    alarm in 6e-5 of all seeds)."""
    values = rng.normal(size=(2000, 11))
    typical = [one_more("x", row[:10], float(row[10])).outcome == "established" for row in values]
    assert abs(np.mean(typical) - 0.95) < 4 * math.sqrt(0.95 * 0.05 / 2000)


def test_a_further_run_beside_runs_that_all_agree():
    assert one_more("x", np.full(10, 7.0), 7.0).outcome == "established"
    assert one_more("x", np.full(10, 7.0), 8.0).outcome == "refuted"


def test_intervals_of_probabilities_stay_between_0_and_1():
    found = mean_share("x", np.array([1.0, 1.0, 0.9]))
    assert found.high == 1.0
    assert found.low == mean_of("x", np.array([1.0, 1.0, 0.9])).low
    assert (estimated("x", 0.01, 0.1, probability=True).low, estimated("x", 0.01, 0.1).low < 0) == (0.0, True)
    assert math.isinf(mean_share("x", np.ones(1)).high), "what is unknown stays unknown"


@pytest.mark.parametrize(
    ("distance", "truth", "together"),
    [
        pytest.param(distance, *case, marks=[pytest.mark.slow] if distance is largest and case != (0.02, False) else [])
        for distance in (largest, total_variation)
        for case in product((0.0, 0.02, 0.4), (True, False))
    ],
)
def test_intervals_of_distances_cover(rng, distance, truth, together):
    """2,000 times eight differences whose errors come from 16 replicates, all errors alike or independent, with a true
    distance of 0, of the size of the errors, or large: 95% of the intervals or more hold it, within 4 standard errors
    (a false alarm in 3e-5 of all seeds if exactly 95% do)."""
    gap = truth * np.linspace(-1.0, 1.0, 8)
    wanted = np.abs(gap).max() if distance is largest else 0.5 * np.abs(gap).sum()
    noise = rng.normal(scale=0.1, size=(2000, 16, 1 if together else 8)) * np.ones(8)
    value, se = gap + noise.mean(axis=1), noise.std(axis=1, ddof=1) / 4.0
    found = [distance("x", *row) for row in zip(value, se, strict=True)]
    assert min(one.low for one in found) >= 0.0
    covered = np.mean([one.low <= wanted <= one.high for one in found])
    assert covered > 0.95 - 4 * math.sqrt(0.95 * 0.05 / 2000)


def test_what_cannot_be_negative_has_no_negative_interval():
    found = nonnegative(mean_of("x", np.array([0.0, 0.0, 1.0])))
    assert (found.low, found.high) == (0.0, mean_of("x", np.array([0.0, 0.0, 1.0])).high)
    assert math.isinf(nonnegative(mean_of("x", np.ones(1))).low), "what is unknown stays unknown"


def test_a_posterior_that_is_not_trusted_decides_nothing():
    sure = complete(DEEP_SEA, 0.0)
    summary = replace(sure, result=sure.result.doubted("by hand"))
    routes = routes_of(DEEP_SEA)
    likely = Condition(chance("P", summary, routes, routes.is_optimal), 0.9)
    assert likely.outcome == "likely"
    assert "not to trust" in likely.measurement.what
    assert Condition(loop_mass("mass", summary), 0.5).outcome == "unlikely"
    assert equals(counted("routes", 3, summary), 3).outcome == "likely"
    assert np.isinf(route_chances(summary, routes).se).all()


def test_final_chances_are_the_posterior_given_what_was_seen_before_the_last_episode():
    """Two episodes of deep sea of depth 3; the second one's moves do not count, nor does a repeated pair twice."""
    model = load_model("env:deep-sea?depth=3")
    right = [model.pair_index[f"{k},{k}", "right"] for k in range(3)]
    left = [model.pair_index[f"{k},0", "left"] for k in range(3)]

    class Two(PaperRuns):
        def separately(self, cell):
            first, second = (xr.Dataset({"pair": ("move", moves)}) for moves in ([*right, *right, *left], [*left] * 3))
            return [first.assign(moves=("episode", [3, 3, 3])), second.assign(moves=("episode", [3, 3, 3]))]

    found = final_chances(Two(Path(), 2), Cell("env:deep-sea?depth=3", "bayes-br", 0.1))
    routes = routes_of("env:deep-sea?depth=3")
    for row, seen in zip(found, (right, left), strict=True):
        data = Dataset.from_pairs(model, [model.pair_name(pair) for pair in seen])
        summary = posterior(model, data, epsilon=0.1, engine="mixture")
        np.testing.assert_allclose(row, route_chances(summary, routes).value, atol=5e-3)
    assert chances_given.cache_info().currsize >= 2


# Claims about runs, on made-up runs


@dataclass(frozen=True)
class MadeUp(PaperRuns):
    """Runs that never happened: every agent explores, and learns, after a number of episodes."""

    learns_after: dict = None
    probability: float = 0.98
    asked: set = None
    alter: object = None  # a function of cell and data that changes the data

    def cell(self, cell: Cell) -> xr.Dataset:
        if self.asked is not None:
            self.asked.add(cell)
        rng = np.random.default_rng(list(str(cell).encode()))
        known = ((cell.agent, cell.tuning), (cell.agent, f"prior {cell.prior_scale:g}"), cell.agent)
        after = next((self.learns_after[key] for key in known if key in self.learns_after), 30)
        last = np.clip(after + rng.integers(-3, 4, self.runs), 0, EPISODES)[:, None]
        late = np.arange(EPISODES) >= last
        data = {
            "regret": (("run", "episode"), np.where(late, 0.0, 0.85)),
            "expected_regret": (("run", "episode"), np.where(late, 0.0, 0.5)),
            "optimal": (("run", "episode"), late),
            "goal_reached": (("run", "episode"), late),
            "coverage": (("run", "episode"), np.where(late, 1.0, 0.5 + 0.4 * np.arange(EPISODES) / EPISODES)),
            "diagnostic_acceptance": (
                ("run", "episode"),
                0.7 + rng.uniform(-1, 1, (self.runs, EPISODES)) * min(0.3, 0.02 / (cell.epsilon or 1.0)),
            ),
        }
        if cell.model in (DEEP_SEA, SWIRL, PYRAMID):
            routes = routes_of(cell.model)
            best = routes.is_optimal / routes.is_optimal.sum()
            other = (swirl.loops_in_second_row() if cell.model == SWIRL else ~routes.is_optimal).astype(float)
            sure = np.where(late, self.probability, 0.0)[:, :, None]
            data["route_probability"] = (("run", "episode", "r"), sure * best + (1 - sure) * other / other.sum())
        if self.alter is not None:
            self.alter(cell, data)
        return xr.Dataset(data)

    def separately(self, cell: Cell) -> list[xr.Dataset]:
        both = self.cell(cell)
        shown = {"moves": ("episode", np.ones(EPISODES, int)), "pair": ("move", np.zeros(EPISODES, int))}
        return [xr.Dataset({**shown, "optimal": both["optimal"][run]}) for run in range(self.runs)]


GOOD, BAD = 20, 100
FLIPS = [
    ("deep-sea-br-beats-td", {"bayes-br": GOOD, "bayes-td": BAD, "bayes-td-en": 60, "bayes-td-max": 40}, "bayes-br"),
    ("deep-sea-td-is-the-worst-td", {"bayes-td": BAD, "bayes-td-en": GOOD, "bayes-td-max": 40}, "bayes-td"),
    ("deep-sea-all-fail-at-large-tolerance", dict.fromkeys(("bayes-br", *deep_sea.TD_AGENTS), BAD), "bayes-td-max"),
    ("deep-sea-td-max-at-0.02", {"bayes-td-max": GOOD, "bayes-br": 60}, "bayes-br"),
    ("deep-sea-small-tolerance-concentrates", {"bayes-br": GOOD}, "bayes-br"),
    ("deep-sea-close-to-one", {"bayes-br": GOOD}, "bayes-br"),
    ("deep-sea-large-tolerance-fails", {"bayes-br": BAD + 10}, "bayes-br"),
    ("hmc-unreliable-at-0.01", {"bayes-br-hmc": BAD, "bayes-br": GOOD}, "bayes-br-hmc"),
    ("hmc-slow-at-0.1", {"bayes-br-hmc": 60, "bayes-br": GOOD}, "bayes-br"),
    ("pyramid-br-beats-td-en-and-td-max", {"bayes-br": GOOD, "bayes-td-en": 60, "bayes-td-max": 50}, "bayes-br"),
    ("pyramid-td-flattens-earlier", {"bayes-td": 10, "bayes-br": 40}, "bayes-td"),
    ("swirl-td-is-the-best-td", {"bayes-td": GOOD, "bayes-td-en": BAD, "bayes-td-max": BAD}, "bayes-td"),
    ("swirl-order-reverts", {"bayes-td": BAD, "bayes-td-en": GOOD, "bayes-td-max": GOOD}, "bayes-td"),
    ("swirl-optimum-lost", {"bayes-br": BAD + 10}, "bayes-br"),
    ("swirl-mass-on-two-loops", {"bayes-br": BAD + 10}, "bayes-br"),
    ("swirl-exact-finds-the-optimum", {"manifold": GOOD}, "manifold"),
    ("swirl-exact-beats-relaxed", {"manifold": GOOD, "bayes-br": BAD}, "manifold"),
    ("slippery-br-is-robust", {"bayes-br": GOOD, **dict.fromkeys(deep_sea.TD_AGENTS, BAD)}, "bayes-br"),
    ("swirl-0.01-does-not-isolate", {"bayes-br": BAD + 10}, "bayes-br"),
    ("swirl-td-stops-exploring", {"bayes-td": BAD + 10}, "bayes-td"),
    ("deep-sea-3-eight-episodes", {"bayes-br": 7}, "bayes-br"),
    ("pyramid-21-episodes", {"bayes-br": 20}, "bayes-br"),
    ("swirl-36-episodes", {"bayes-br": 35}, "bayes-br"),
    ("published-code-depth-3", {"bayes-br": 6, "bayes-td": 25, "bayes-td-max": 10}, "bayes-br"),
    ("published-code-depth-3-visits", {"bayes-br": GOOD, "bayes-td": BAD + 10, "bayes-td-max": GOOD}, "bayes-td"),
]


@pytest.mark.parametrize(("name", "learning", "agent"), FLIPS, ids=[flip[0] for flip in FLIPS])
def test_verdicts_turn_with_the_runs(name, learning, agent):
    """As claimed: holds. With the named agent learning late instead of early, or the reverse: does not hold."""
    claimed = ledger.judge(BY_NAME[name], MadeUp(Path(), 10, learning))
    assert claimed.verdict == "holds", claimed.remark
    turned = {**learning, agent: BAD + 10 if learning[agent] < 50 else GOOD - 10}
    assert ledger.judge(BY_NAME[name], MadeUp(Path(), 10, turned)).verdict == "does not hold"
    assert ledger.judge(BY_NAME[name], MadeUp(Path(), 1, learning)).verdict != "holds"


def accepting(share):
    """Sets the acceptance of a cell to a function of it, up to a little noise."""

    def alter(cell, data):
        dimensions, values = data["diagnostic_acceptance"]
        noise = np.random.default_rng(0).uniform(-0.02, 0.02, values.shape)
        data["diagnostic_acceptance"] = dimensions, share(cell) + noise

    return alter


def explored_late(cell, data):
    data["coverage"] = data["coverage"][0], np.minimum(data["coverage"][1], np.where(np.arange(EPISODES) < 90, 0.9, 1))


def sometimes_wrong(cell, data):
    dimensions, optimal = data["optimal"]
    data["optimal"] = dimensions, optimal & (np.random.default_rng(1).uniform(size=optimal.shape) < 0.7)


def subset(cell, data):
    dimensions, chances = data["route_probability"]
    few = np.cumsum(routes_of(PYRAMID).is_optimal) <= 3
    data["route_probability"] = dimensions, chances * few
    data["coverage"] = dimensions[:2], 0.8 * data["coverage"][1]


HMC, RETUNED, NARROW = "bayes-br-hmc", ("bayes-br-hmc", "retuned"), ("bayes-br", "prior 1")
TURNS = [
    ("hmc-acceptance-varies", {}, {"alter": accepting(lambda cell: 0.7)}),
    (
        "hmc-retuning-accepts-more",
        {"alter": accepting(lambda cell: 0.8 if cell.tuning == "retuned" else 0.7)},
        {"alter": accepting(lambda cell: 0.6 if cell.tuning == "retuned" else 0.7)},
    ),
    (
        "hmc-retuning-does-not-help",
        {"learns_after": {HMC: 60, RETUNED: 60}},
        {"learns_after": {HMC: 60, RETUNED: GOOD}},
    ),
    ("published-code-hmc-shift", {"learns_after": {HMC: 4}}, {"learns_after": {HMC: 30}}),
    ("deep-sea-explored-early", {}, {"alter": explored_late}),
    ("deep-sea-suboptimal-play-continues", {"alter": sometimes_wrong}, {}),
    ("pyramid-td-settles-on-a-subset", {"alter": subset}, {}),
    (
        "swirl-narrow-prior-mitigates",
        {"learns_after": {"bayes-br": BAD + 10, NARROW: GOOD}},
        {"learns_after": {"bayes-br": BAD + 10}},
    ),
]
NOT_TURNED = {
    "pyramid-equal-at-all-tolerances",  # posteriors decide it; runs only qualify it
    "td-en-start",  # two updates decide it; runs are only shown
}


@pytest.mark.parametrize(("name", "claimed", "turned"), TURNS, ids=[turn[0] for turn in TURNS])
def test_verdicts_turn_with_other_properties_of_runs(name, claimed, turned):
    def verdict(runs, change):
        return ledger.judge(BY_NAME[name], MadeUp(Path(), runs, **({"learns_after": {}} | change))).verdict

    assert verdict(10, claimed) == "holds"
    assert verdict(10, turned) == "does not hold"
    assert verdict(1, claimed) != "holds"


def test_every_claim_that_runs_decide_is_turned():
    turned = {"hmc-calibrated", *(name for name, *_ in (*FLIPS, *TURNS))}
    assert turned | NOT_TURNED == {claim.id for claim in ledger.CLAIMS if claim.cells}


def test_calibration_is_judged_by_the_last_window(monkeypatch):
    """Acceptance that falls from 1 to the target, or stays above it; runs that accept nothing are mentioned."""

    def two_stuck(cell, data):
        if cell.epsilon == 0.01:
            data["diagnostic_acceptance"][1][:2, 1] = 0.0

    def judged(end, runs=10):
        falling = np.linspace(1.0, end, 10) + np.random.default_rng(0).uniform(-0.02, 0.02, (runs, 1))
        monkeypatch.setattr(hmc, "_windows", lambda runs, cell: falling)
        return ledger.judge(BY_NAME["hmc-calibrated"], MadeUp(Path(), runs, {}, alter=two_stuck))

    assert judged(0.7).verdict == "holds"
    assert judged(0.7, runs=1).verdict != "holds"
    assert judged(0.9).verdict == "does not hold"
    assert "After the first warm-up 2 of 10 runs of HMC at 0.01 accept next to nothing" in judged(0.7).remark


def test_windows_are_those_of_chains_that_saw_the_first_episode():
    """A step far too small for the tolerance is accepted always at first."""
    found = hmc._windows(MadeUp(Path(), 2, {}), Cell(DEEP_SEA, "bayes-br-hmc", 5.0))
    assert found.shape == (2, 10)
    assert (found[:, 0] > 0.99).all()
    assert (found[:, -1] < found[:, 0]).all()


def test_help_that_is_likely_is_not_passed_over_for_lack_of_evidence():
    """Regret falls by half on average, with such scatter that 0 stays within the interval: the claim is not won."""

    def scattered(cell, data):
        if cell.tuning == "retuned":
            dimensions, regret = data["regret"]
            data["regret"] = dimensions, regret * np.where(np.arange(10) < 6, 0.0, 1.2)[:, None]

    found = ledger.judge(BY_NAME["hmc-retuning-does-not-help"], MadeUp(Path(), 10, {HMC: 60}, alter=scattered))
    assert found.verdict == "does not hold"
    assert "not so" in found.remark


def test_questions_declare_the_runs_they_ask_for(monkeypatch):
    monkeypatch.setattr(published, "MORE_RUNS", 2)
    monkeypatch.setattr(hmc, "_windows", lambda runs, cell: np.full((3, 10), float(runs.cell(cell)["regret"].size)))
    monkeypatch.setattr(pyramid, "_eight", lambda epsilon: (exactly("gap", 0.0), exactly("sum", 1.0)))
    for claim in ledger.CLAIMS:
        if claim.cells:
            runs = MadeUp(Path(), 3, {}, asked=set())
            ledger.judge(claim, runs)
            assert runs.asked <= set(claim.cells), claim.id
            assert set(claim.cells) <= set(ledger.CELLS)


def test_names_are_unique_and_stated_in_full():
    assert len(BY_NAME) == len(ledger.CLAIMS)
    for claim in ledger.CLAIMS:
        assert all(text.strip().endswith((".", ")")) for text in (claim.statement, claim.criterion)), claim.id


# Claims without runs


@pytest.mark.parametrize(("epsilon", "prior_scale"), [(2.0, 10.0), (0.5, 10.0), (0.1, 1.0)])
def test_the_two_state_plane_against_the_library(epsilon, prior_scale):
    plane = Plane(epsilon, prior_scale=prior_scale)
    model = load_model("env:two-state")
    summary = posterior(model, Dataset.complete(model), epsilon=epsilon, prior_scale=prior_scale, engine="mixture")
    assert plane.improper == pytest.approx(float(summary.improper_mass.value), abs=1e-4)
    np.testing.assert_allclose(plane.mean(plane.q), summary.q_mean.value, atol=0.02 * prior_scale)


def test_the_two_state_plane_against_quadrature():
    def density(q1, q2):
        stay, leave = q1 - max(q1, q2) + 1, q2 + 1
        return math.exp(-0.5 * (q1**2 + q2**2) / 9.0 - 0.5 * (stay**2 + leave**2))

    options = {"epsabs": 1e-9, "epsrel": 1e-9}
    proper, _ = integrate.dblquad(density, -20, 20, lambda q2: -20, lambda q2: q2, **options)
    improper, _ = integrate.dblquad(density, -20, 20, lambda q2: q2, lambda q2: 20, **options)
    assert Plane(1.0, prior_scale=3.0).improper == pytest.approx(improper / (proper + improper), abs=1e-6)


@pytest.mark.parametrize(
    ("claim", "verdict"),
    [
        *((claim, "holds") for claim in two_state.CLAIMS if claim.id != "two-state-contracts"),
        (BY_NAME["two-state-contracts"], "holds with a remark"),
        (BY_NAME["likelihood-flat-along-u"], "holds"),
        (BY_NAME["likelihood-mass"], "holds"),
        (BY_NAME["manifold-dimension"], "holds"),
        (BY_NAME["deep-sea-optimum"], "holds"),
        (BY_NAME["pyramid-optimum"], "holds"),
        (BY_NAME["swirl-optimum"], "holds"),
        (BY_NAME["swirl-margin"], "does not hold"),
        (BY_NAME["slippery-success"], "holds"),
        (BY_NAME["slippery-regret-reference"], "does not hold"),
    ],
    ids=lambda value: getattr(value, "id", ""),
)
def test_claims_without_runs(claim, verdict, tmp_path):
    assert ledger.judge(claim, PaperRuns(tmp_path, 10)).verdict == verdict


@pytest.mark.parametrize(
    ("name", "problem", "verdict"),
    [
        ("swirl-margin", "env:swirl?depth=5&move_cost=0.06", "holds"),
        ("slippery-success", "env:deep-sea?depth=4&slip=0.2", "does not hold"),
        ("slippery-regret-reference", "env:deep-sea?depth=4", "holds"),
        ("ties-break-the-formula", DEEP_SEA, "holds"),
    ],
)
def test_claims_without_runs_depend_on_the_problem(name, problem, verdict, tmp_path):
    """Other problems in their places: dearer moves have a margin of 0.06, more slip less success, no ties no fault."""
    assert BY_NAME[name].measure(PaperRuns(tmp_path, 10), problem).verdict == verdict


# The file and the table


@pytest.fixture
def claims():
    entries = (
        Entry(Measurement("gap", 1.5, -math.inf, math.inf, None, 1), "above 0", "likely"),
        Entry(Measurement("nothing", math.nan, math.nan, math.nan)),
        Entry(exactly("count", 3.0), "equal to 3", "established"),
    )
    first = JudgedClaim("one", "section 1", "It is so.", "It is.", entries, "holds with a remark", "Barely.")
    return [first, JudgedClaim("two", "section 2", "It is not.", "It is.", entries[2:], "does not hold", "")]


@pytest.fixture
def kept(claims):
    return Ledger(tuple(claims), 10, "0.1", "abc", "2026-01-02")


def test_round_trip(kept, tmp_path):
    path = tmp_path / "claims.json"
    write_ledger(path, kept)
    raw = json.loads(path.read_text(), parse_constant=lambda name: pytest.fail(f"{name} is not JSON"))
    assert [raw[name] for name in ("format", "runs", "commit")] == ["bellmanifold.claims/1", 10, "abc"]
    assert raw["claims"][0]["measured"][0]["low"] is None
    again = read_ledger(path)
    assert (again.runs, again.version, again.commit, again.date) == (10, "0.1", "abc", "2026-01-02")
    assert repr(again.claims[1]) == repr(kept.claims[1])
    assert again.claims[0].measured[0] == kept.claims[0].measured[0]
    assert math.isnan(again.claims[0].measured[1].measurement.value)
    write_ledger(tmp_path / "again.json", again)
    assert (tmp_path / "again.json").read_bytes() == path.read_bytes()
    del raw["version"], raw["commit"], raw["date"]
    path.write_text(json.dumps(raw))
    assert read_ledger(path).date == "", "the first ledgers did not say"


def test_a_ledger_says_what_measured_it(tmp_path):
    found = ledger.measure_claims(PaperRuns(tmp_path, 3), claims=[BY_NAME["two-state-values"]])
    assert [claim.id for claim in found.claims] == ["two-state-values"]
    assert found.runs == 3
    assert found.version
    assert len(found.date) == 10


def test_an_interrupted_measurement_is_dropped(tmp_path):
    def swallow(runs):
        try:
            signal.raise_signal(signal.SIGINT)
        except KeyboardInterrupt:
            return Finding(())

    claim = replace(BY_NAME["two-state-values"], measure=swallow)
    with pytest.raises(StoppedError, match="run the same command again"):
        ledger.measure_claims(PaperRuns(tmp_path, 3), claims=[claim])


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        ("{}", "not a ledger"),
        ('{"format": "bellmanifold.claims/1"}', "runs is null"),
        ('{"format": "bellmanifold.claims/1", "runs": 1, "claims": 3}', "claims is a number"),
        ('{"format": "bellmanifold.claims/1", "runs": 1, "claims": [{}]}', 'claims[0]: "id" is missing'),
    ],
)
def test_other_files_are_refused(content, complaint, tmp_path):
    path = tmp_path / "claims.json"
    path.write_text(content)
    with pytest.raises(BadInputError) as caught:
        read_ledger(path)
    assert str(caught.value).startswith(f"{path}: {complaint}")


def test_an_unknown_verdict_is_refused(kept, tmp_path):
    path = tmp_path / "claims.json"
    write_ledger(path, kept)
    path.write_text(path.read_text().replace("does not hold", "who knows"))
    with pytest.raises(BadInputError, match='unknown verdict "who knows"'):
        read_ledger(path)


def test_tables(kept):
    class Terminal(io.StringIO):
        def isatty(self):
            return True

    for out in (io.StringIO(), Terminal()):
        with redirect_stdout(out):
            tables.print_claims(kept)
        shown = out.getvalue()
        assert shown.endswith("2 claims: 0 hold, 1 hold with a remark, 1 do not hold, from 10 runs per cell\n")
        assert all(words in shown.replace("\n", " ") for words in ("one", "Barely.", "equal to 3"))
    page = tables.page(kept)
    assert page.startswith("Measured on 2026-01-02 by bellmanifold 0.1, commit abc. 2 claims: ")
    assert "| [one](#one) | section 1 | holds with a remark |" in page
    assert "| gap | 1.5 (interval unknown) |  | 1 | above 0 | likely |" in page
    assert tables.page(replace(kept, date="")).lstrip().startswith("2 claims: "), "an unknown origin is not told"


def test_few_runs_are_called_few(kept, capsys):
    tables.print_claims(replace(kept, runs=2))
    assert "do not hold, from 2 runs per cell (so few runs decide little" in capsys.readouterr().out
    assert "from 1 run per cell (so few" in tables.page(replace(kept, runs=1))


@pytest.mark.slow
def test_the_whole_ledger_on_one_run_a_cell(tmp_path):
    """Every claim can be measured from what the runner writes, and none about runs holds by a single run alone."""
    from bellmanifold_lab.sweeps.plan import plan_runs
    from bellmanifold_lab.sweeps.runner import require_success, sweep
    from bellmanifold_lab.sweeps.workers import play_in_processes

    plan = plan_runs([settings for cell in ledger.CELLS for settings in cell.settings(1)])
    require_success(sweep(plan, tmp_path, lambda units: play_in_processes(units, workers=2)))
    told = []
    found = ledger.measure_claims(PaperRuns(tmp_path, 1), told.append).claims
    assert told == [claim.id for claim in found] == list(BY_NAME)
    assert {claim.verdict for claim in found} == {"holds", "holds with a remark", "does not hold"}
    learning = (*deep_sea.CLAIMS[1:], *hmc.CLAIMS, *swirl.CLAIMS[2:], slippery.CLAIMS[1])
    verdicts = {claim.id: claim.verdict for claim in found}
    assert not [claim.id for claim in learning if verdicts[claim.id] == "holds"]


def test_the_page_in_the_documentation_is_about_these_claims():
    text = (Path(__file__).parent.parent / "docs" / "ledger.md").read_text(encoding="utf-8")
    for claim in ledger.CLAIMS:
        assert f"## {claim.id}\n" in text, f"{claim.id} is missing: make docs/ledger.md again (examples/ledger_page.py)"
        assert claim.statement in text, f"{claim.id} is stale: make docs/ledger.md again (examples/ledger_page.py)"
        assert f"Criterion: {claim.criterion}" in text, f"{claim.id} is stale: make docs/ledger.md again"
