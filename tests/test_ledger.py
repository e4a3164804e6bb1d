"""The ledger: verdicts follow from the numbers, whatever the numbers are; claims without runs are what they should be.

Runs are made up here: an agent learns after a number of episodes, or never. That is enough to see every verdict turn
when the agents change places, and no verdict be won with a single run.
"""

import io
import json
import math
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import xarray as xr
from scipy import integrate, stats

from bellmanifold.data import Dataset
from bellmanifold.errors import BadInputError
from bellmanifold.models import load_model
from bellmanifold.posteriors.inference import posterior
from bellmanifold.reproduction import ledger, tables
from bellmanifold.reproduction.claims import deep_sea, hmc, published, pyramid, slippery, swirl, theory, two_state
from bellmanifold.reproduction.claims.questions import routes_of
from bellmanifold.reproduction.runs import DEEP_SEA, EPISODES, PYRAMID, SWIRL, Cell, PaperRuns
from bellmanifold.reproduction.verdicts import (
    Condition,
    Finding,
    Measurement,
    agreement,
    difference,
    exactly,
    mean_of,
    one_more,
    share_of,
)

BY_NAME = {asked.id: asked for asked in ledger.QUESTIONS}


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
    """20,000 times ten normal numbers and one more: it is typical in 95% of them, within 4 standard errors."""
    values = rng.normal(size=(20_000, 11))
    typical = [one_more("x", row[:10], float(row[10])).outcome == "established" for row in values[:2000]]
    assert abs(np.mean(typical) - 0.95) < 4 * math.sqrt(0.95 * 0.05 / 2000)


# Claims about runs, on made-up runs


@dataclass(frozen=True)
class MadeUp(PaperRuns):
    """Runs that never happened: every agent explores, and learns, after a number of episodes."""

    learns_after: dict = None
    probability: float = 0.98
    asked: set = None

    def cell(self, cell: Cell) -> xr.Dataset:
        if self.asked is not None:
            self.asked.add(cell)
        rng = np.random.default_rng(list(str(cell).encode()))
        after = self.learns_after.get((cell.agent, cell.epsilon), self.learns_after.get(cell.agent, 30))
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
            other = (routes.in_second_row if routes.in_second_row.any() else ~routes.is_optimal).astype(float)
            sure = np.where(late, self.probability, 0.0)[:, :, None]
            data["route_probability"] = (("run", "episode", "r"), sure * best + (1 - sure) * other / other.sum())
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
]


@pytest.mark.parametrize(("name", "learning", "agent"), FLIPS, ids=[flip[0] for flip in FLIPS])
def test_verdicts_turn_with_the_runs(name, learning, agent):
    """As claimed: holds. With the named agent learning late instead of early, or the reverse: does not hold."""
    claimed = ledger.judge(BY_NAME[name], MadeUp(Path(), 10, learning))
    assert claimed.verdict == "holds", claimed.remark
    turned = {**learning, agent: BAD + 10 if learning[agent] < 50 else GOOD - 10}
    assert ledger.judge(BY_NAME[name], MadeUp(Path(), 10, turned)).verdict == "does not hold"
    assert ledger.judge(BY_NAME[name], MadeUp(Path(), 1, learning)).verdict != "holds"


def test_more_scatter_at_small_tolerances_is_seen():
    assert ledger.judge(BY_NAME["hmc-acceptance-varies"], MadeUp(Path(), 10, {})).verdict == "holds"


def test_questions_declare_the_runs_they_ask_for(monkeypatch):
    monkeypatch.setattr(published, "MORE_RUNS", 2)
    monkeypatch.setattr(pyramid, "_eight", lambda epsilon: (exactly("gap", 0.0), exactly("sum", 1.0)))
    for asked in ledger.QUESTIONS:
        if asked.cells:
            runs = MadeUp(Path(), 3, {}, asked=set())
            ledger.judge(asked, runs)
            assert runs.asked <= set(asked.cells), asked.id
            assert set(asked.cells) <= set(ledger.CELLS)


def test_names_are_unique_and_stated_in_full():
    assert len(BY_NAME) == len(ledger.QUESTIONS)
    for asked in ledger.QUESTIONS:
        assert all(text.strip().endswith((".", ")")) for text in (asked.statement, asked.criterion)), asked.id


# Claims without runs


@pytest.mark.parametrize(("epsilon", "prior_scale"), [(2.0, 10.0), (0.5, 10.0), (0.1, 1.0)])
def test_the_two_state_plane_against_the_library(epsilon, prior_scale):
    plane = two_state.Plane(prior_scale, epsilon, epsilon)
    model = load_model("env:two-state")
    summary = posterior(model, Dataset.complete(model), epsilon=epsilon, prior_scale=prior_scale, engine="mixture")
    assert plane.improper == pytest.approx(float(summary.improper_mass.value), abs=1e-4)
    np.testing.assert_allclose(plane.mean(plane.q), summary.q_mean, atol=0.02 * prior_scale)


def test_the_two_state_plane_against_quadrature():
    def density(q1, q2):
        stay, leave = q1 - max(q1, q2) + 1, q2 + 1
        return math.exp(-0.5 * (q1**2 + q2**2) / 9.0 - 0.5 * (stay**2 + leave**2))

    options = {"epsabs": 1e-9, "epsrel": 1e-9}
    proper, _ = integrate.dblquad(density, -20, 20, lambda q2: -20, lambda q2: q2, **options)
    improper, _ = integrate.dblquad(density, -20, 20, lambda q2: q2, lambda q2: 20, **options)
    assert two_state.Plane(3.0, 1.0, 1.0).improper == pytest.approx(improper / (proper + improper), abs=1e-6)


@pytest.mark.parametrize(
    ("asked", "verdict"),
    [
        *((asked, "holds") for asked in two_state.CLAIMS if asked.id != "two-state-contracts"),
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
def test_claims_without_runs(asked, verdict, tmp_path):
    assert ledger.judge(asked, PaperRuns(tmp_path, 10)).verdict == verdict


def test_claims_without_runs_depend_on_the_problem(monkeypatch, tmp_path):
    """Other problems in their places: dearer moves have a margin of 0.06, more slip less success, no ties no fault."""
    runs = PaperRuns(tmp_path, 10)
    monkeypatch.setattr(swirl, "SWIRL", "env:swirl?depth=5&move_cost=0.06")
    assert ledger.judge(BY_NAME["swirl-margin"], runs).verdict == "holds"
    monkeypatch.setattr(slippery, "SLIPPERY", "env:deep-sea?depth=4&slip=0.2")
    assert ledger.judge(BY_NAME["slippery-success"], runs).verdict == "does not hold"
    monkeypatch.setattr(slippery, "SLIPPERY", "env:deep-sea?depth=4")
    assert ledger.judge(BY_NAME["slippery-regret-reference"], runs).verdict == "holds"
    monkeypatch.setattr(theory, "PYRAMID", DEEP_SEA)
    assert ledger.judge(BY_NAME["ties-break-the-formula"], runs).verdict == "holds"


# The file and the table


@pytest.fixture
def claims():
    entries = (
        ledger.Entry(Measurement("gap", 1.5, -math.inf, math.inf, None, 1), "above 0", "likely"),
        ledger.Entry(Measurement("nothing", math.nan, math.nan, math.nan)),
        ledger.Entry(exactly("count", 3.0), "equal to 3", "established"),
    )
    first = ledger.Claim("one", "section 1", "It is so.", "It is.", entries, "holds with a remark", "Barely.")
    return [first, ledger.Claim("two", "section 2", "It is not.", "It is.", entries[2:], "does not hold", "")]


def test_round_trip(claims, tmp_path):
    path = tmp_path / "claims.json"
    ledger.write_claims(path, claims, 10)
    raw = json.loads(path.read_text(), parse_constant=lambda name: pytest.fail(f"{name} is not JSON"))
    assert (raw["format"], raw["runs"]) == ("bellmanifold.claims/1", 10)
    assert raw["claims"][0]["measured"][0]["low"] is None
    again, runs = ledger.read_claims(path)
    assert runs == 10
    assert repr(again[1]) == repr(claims[1])
    assert again[0].measured[0] == claims[0].measured[0]
    assert math.isnan(again[0].measured[1].measurement.value)
    ledger.write_claims(tmp_path / "again.json", again, runs)
    assert (tmp_path / "again.json").read_bytes() == path.read_bytes()


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
        ledger.read_claims(path)
    assert str(caught.value).startswith(f"{path}: {complaint}")


def test_an_unknown_verdict_is_refused(claims, tmp_path):
    path = tmp_path / "claims.json"
    ledger.write_claims(path, claims, 10)
    path.write_text(path.read_text().replace("does not hold", "who knows"))
    with pytest.raises(BadInputError, match='unknown verdict "who knows"'):
        ledger.read_claims(path)


def test_tables(claims, monkeypatch):
    class Terminal(io.StringIO):
        def isatty(self):
            return True

    for out in (io.StringIO(), Terminal()):
        monkeypatch.setattr("sys.stdout", out)
        tables.print_claims(claims)
        shown = out.getvalue()
        assert shown.endswith("2 claims: 0 hold, 1 hold with a remark, 1 do not hold\n")
        assert all(words in shown.replace("\n", " ") for words in ("one", "Barely.", "equal to 3"))
    page = tables.page(claims, 10)
    assert "| [one](#one) | section 1 | holds with a remark |" in page
    assert "| gap | 1.5 (interval unknown) |  | 1 | above 0 | likely |" in page


@pytest.mark.slow
def test_the_whole_ledger_on_one_run_a_cell(tmp_path):
    """Every claim can be measured from what the runner writes, and none about runs holds by a single run alone."""
    from bellmanifold.experiments.runner import require_success, sweep
    from bellmanifold.experiments.workers import play_in_processes
    from bellmanifold.reproduction.runs import plan_cells

    require_success(sweep(plan_cells(ledger.CELLS, 1), tmp_path, lambda units: play_in_processes(units, workers=2)))
    told = []
    found = ledger.measure_claims(PaperRuns(tmp_path, 1), told.append)
    assert told == [claim.id for claim in found] == list(BY_NAME)
    assert {claim.verdict for claim in found} == {"holds", "holds with a remark", "does not hold"}
    learning = (*deep_sea.CLAIMS[1:], *hmc.CLAIMS, *swirl.CLAIMS[2:], slippery.CLAIMS[1])
    verdicts = {claim.id: claim.verdict for claim in found}
    assert not [asked.id for asked in learning if verdicts[asked.id] == "holds"]


def test_the_page_in_the_documentation_is_about_these_claims():
    text = (Path(__file__).parent.parent / "docs" / "ledger.md").read_text(encoding="utf-8")
    for asked in ledger.QUESTIONS:
        assert f"## {asked.id}\n" in text, f"{asked.id} is missing: make docs/ledger.md again (examples/ledger_page.py)"
        assert asked.statement in text, f"{asked.id} is stale: make docs/ledger.md again (examples/ledger_page.py)"
        assert f"Criterion: {asked.criterion}" in text, f"{asked.id} is stale: make docs/ledger.md again"
