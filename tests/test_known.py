"""Everything known: the solver's answer against the engines, ties included."""

import numpy as np
import pytest
from scipy import stats
from scipy.integrate import quad

import bellmanifold as bm
from bellmanifold import envs
from bellmanifold.envs.building import Move, from_moves
from bellmanifold.errors import UnsupportedError
from bellmanifold.posteriors.budget import Budget
from bellmanifold.posteriors.choose import choose
from bellmanifold.posteriors.inference import posterior_of
from bellmanifold.posteriors.known import MOST_TIED
from bellmanifold.posteriors.target import relaxed_target
from bellmanifold.posteriors.tie_split import tie_problem
from bellmanifold.problem.dataset import Dataset
from bellmanifold.problem.observation import Observation

THREE_WAYS = from_moves(
    "three-ways",
    {
        ("s", "a"): Move(-1.0, {"u": 1.0}),
        ("s", "b"): Move(-2.0, {"goal": 1.0}),
        ("s", "c"): Move(-1.0, {"v": 1.0}),
        ("s", "d"): Move(-5.0, {"goal": 1.0}),
        ("u", "x"): Move(-1.0, {"goal": 1.0}),
        ("u", "y"): Move(-1.0, {"goal": 1.0}),
        ("v", "x"): Move(-1.0, {"goal": 1.0}),
    },
    start="s",
)
"""Three tied actions, one of them with two good ways to go on, and one that is worse."""
COIN = from_moves(
    "coin",
    {
        ("s", "slow"): Move(-1.0, {"s": 0.75, "goal": 0.25}),
        ("s", "fast"): Move(-4.0, {"goal": 1.0}),
        ("t", "on"): Move(-1.0, {"s": 0.5, "t": 0.5}),
        ("t", "off"): Move(-6.0, {"goal": 1.0}),
    },
    start="t",
)
"""Both states tie, and a policy's chain leaves at its own pace: determinants differ."""


def both(model, **options):
    data = Dataset.complete(model)
    return (bm.posterior(model, data, engine=engine, **options) for engine in ("auto", "chart"))


@pytest.mark.parametrize(
    "model",
    [
        envs.deep_sea(4),
        *(pytest.param(envs.grid(2, 3, slip=slip), marks=pytest.mark.slow) for slip in (0.2, 0.0)),
        envs.two_state(),
        THREE_WAYS,
        COIN,
    ],
    ids=lambda model: model.name,
)
def test_answers_are_those_of_the_chart(model):
    """All probabilities within 5 joint standard errors: a false alarm in 2e-5 of runs (40 of them)."""
    solver, chart = both(model)
    assert (solver.engine, chart.engine) == ("solver", "chart")
    assert solver.trustworthy
    assert solver.dimension == 0
    np.testing.assert_allclose(solver.q_mean, chart.q_mean, rtol=1e-6, atol=1e-6)
    assert not solver.q_sd.value.any()
    assert not solver.result.q_mean.se.any()
    ours, theirs = solver.action_probability, chart.action_probability
    assert (np.abs(ours.value - theirs.value) <= 5.0 * np.hypot(ours.se, theirs.se) + 1e-12).all()
    assert ours.se.max() <= 1e-3
    gap = abs(float(solver.log_evidence.value - chart.log_evidence.value))
    assert gap <= 5.0 * float(np.hypot(solver.log_evidence.se, chart.log_evidence.se)) + 1e-6
    assert solver.improper_mass_model.value == 0.0
    if solver.routes is not None:
        found = {route.pairs: route for route in chart.routes}
        for route in solver.routes:
            other = found[route.pairs]
            assert abs(route.probability - other.probability) <= 5.0 * np.hypot(route.se, other.se) + 1e-12


def test_errors_are_zero_where_nothing_ties():
    model = envs.deep_sea(4)
    summary = bm.posterior(model, Dataset.complete(model))
    best = bm.solve(model).optimal
    assert (summary.action_probability.value == best).all()
    assert not summary.action_probability.se.any()
    assert float(summary.log_evidence.se) == 0.0
    assert summary.effective_sample_size is None
    assert [(route.probability, route.se) for route in summary.routes] == [(1.0, 0.0)]
    assert summary.to_dict()["diagnostics"] == {"points": 0, "ties_split": []}


def test_a_tie_of_two_is_a_half_without_error():
    model = from_moves("two", {("s", "a"): Move(-1.0, {"goal": 1.0}), ("s", "b"): Move(-1.0, {"goal": 1.0})}, start="s")
    found = bm.posterior(model, Dataset.complete(model)).action_probability
    assert found.value.tolist() == [0.5, 0.5]
    assert found.se.tolist() == [0.0, 0.0]


def test_beaten_actions_of_tied_states_have_no_error():
    summary = bm.posterior(THREE_WAYS, Dataset.complete(THREE_WAYS))
    worse, tied = (THREE_WAYS.pair_index[("s", action)] for action in "da")
    assert summary.action_probability.value[worse] == 0.0
    assert summary.action_probability.se[worse] == 0.0
    assert summary.action_probability.se[tied] > 0.0
    assert summary.action_probability.value[tied] > 0.4, "two ways to go on"


def test_policies_weigh_one_over_their_determinant():
    """Two tied actions, one of which stays with probability 3/4: both win half of the points, and weigh 4 to 1."""
    model = from_moves(
        "stay",
        {("s", "slow"): Move(-1.0, {"s": 0.75, "goal": 0.25}), ("s", "fast"): Move(-4.0, {"goal": 1.0})},
        start="s",
    )
    summary = bm.posterior(model, Dataset.complete(model))
    found = summary.action_probability
    assert found.value[model.pair_index[("s", "slow")]] == pytest.approx(0.8, abs=5e-3)


def test_states_that_the_data_do_not_touch_keep_their_prior():
    model = envs.deep_sea(3)
    below = [name for name in map(model.pair_name, range(model.n_pairs)) if name[0].startswith("2,")]
    summary = bm.posterior(model, Dataset.from_pairs(model, below), prior_scale=3.0)
    assert summary.engine == "solver"
    start = slice(*model.pair_start[:2])
    assert summary.action_probability.value[start].tolist() == [0.5, 0.5]
    assert summary.q_sd.value[start].tolist() == [3.0, 3.0]


def test_near_ties_are_told_apart():
    """Actions that differ by 1e-9 of the rewards: the engines cannot tell them from ties, the solver can."""
    moves = {("s", "a"): Move(-1.0, {"goal": 1.0}), ("s", "b"): Move(-1.0 - 1e-9, {"goal": 1.0})}
    model = from_moves("near", moves, start="s")
    solver, chart = both(model)
    assert not chart.trustworthy
    assert solver.trustworthy
    assert solver.action_probability.value.tolist() == [1.0, 0.0]


@pytest.mark.parametrize("options", [{"epsilon": 0.1}, {"noise_sd": 0.5}, {"infer_noise": True}])
def test_relaxed_and_noisy_posteriors_go_to_engines(options):
    model = envs.two_state()
    assert bm.posterior(model, Dataset.complete(model), **options).engine != "solver"


def test_what_is_free_goes_to_engines():
    model = envs.deep_sea(3)
    data = Dataset.from_pairs(model, [model.pair_name(i) for i in range(model.n_pairs - 1)])
    assert choose(relaxed_target(data, 0.0, 10.0), "auto", Budget()).engine == "importance"


def test_refusals_are_the_engines():
    trap = from_moves("trap", {("s", "on"): Move(-1.0, {"t": 1.0}), ("t", "stay"): Move(-1.0, {"t": 1.0})}, start="s")
    with pytest.raises(UnsupportedError, match="the observed pairs trap"):
        bm.posterior(trap, Dataset.complete(trap))


def test_too_many_ties_for_memory_are_left_to_walks():
    model = envs.grid(3, 4, slip=0.0)
    target = relaxed_target(Dataset.complete(model), 0.0, 10.0)
    assert choose(target, "auto", Budget()).engine == "solver"
    assert choose(target, "auto", Budget(held=2**15)).engine != "solver"
    large = envs.grid(40, 40, slip=0.0)
    assert large.n_states > MOST_TIED // 2
    assert choose(relaxed_target(Dataset.complete(large), 0.0, 10.0), "auto", Budget()).engine != "solver"


def test_flat_priors_have_no_evidence():
    model = envs.two_state()
    summary = bm.posterior(model, Dataset.complete(model), prior_scale="flat")
    assert summary.engine == "solver"
    assert summary.log_evidence is None


def test_number_of_points():
    summary = bm.posterior(THREE_WAYS, Dataset.complete(THREE_WAYS), samples=2**13)
    assert summary.diagnostics["points"] == 2**13
    assert summary.reason.endswith("ties of 2 states are split at 8192 points")


def test_many_ties_are_coded_in_several_words():
    rows = 70
    moves = {(f"s{k}", action): Move(-1.0, {"goal": 1.0}) for k in range(rows) for action in "ab"}
    model = from_moves("many", moves, start="s0")
    target = relaxed_target(Dataset.complete(model), 0.0, 10.0)
    summary = posterior_of(target, Budget(samples=2**12))
    assert summary.action_probability.value.tolist() == [0.5] * (2 * rows)
    ties = tie_problem(model, np.arange(2 * rows), np.zeros(0, dtype=np.int64))
    assert ties.code(np.stack([np.arange(0, 2 * rows, 2)] * 3)).shape == (3, 2)


def test_as_many_ties_as_one_word_holds():
    """63 ties of two are numbers below 2^63: the first actions are 0, the last state's second one adds 1, and so on."""
    model = from_moves(
        "word", {(f"s{k:02}", action): Move(-1.0, {"goal": 1.0}) for k in range(63) for action in "ab"}, start="s00"
    )
    ties = tie_problem(model, np.arange(126), np.zeros(0, dtype=np.int64))
    first = np.arange(0, 126, 2)
    last = first + (first == 124)
    assert ties.code(np.stack([first, last, first + 1])).tolist() == [0, 1, 2**63 - 1]


def test_points_are_doubled_until_a_split_is_accurate():
    """Three tied actions, one of which stays with probability 3/4: it wins where 4 y, y normal, is above two others.

    Its points weigh 4. 2^17 points, of 32 nets and mirrored, are too few for 1e-4. Three comparisons at 5 standard
    errors, t with 31 degrees of freedom: a false-alarm rate of 6e-5.
    """
    moves = {("s", "slow"): Move(-1.0, {"s": 0.75, "goal": 0.25})}
    moves |= {("s", action): Move(-4.0, {"goal": 1.0}) for action in ("t", "u")}
    model = from_moves("stay", moves, start="s")
    found = posterior_of(relaxed_target(Dataset.complete(model), 0.0, 10.0), Budget(accuracy=1e-4))
    assert found.diagnostics["points"] in (2**18, 2**19, 2**20)
    wins, _ = quad(lambda y: stats.norm.pdf(y) * stats.norm.cdf(4.0 * y) ** 2, -10.0, 10.0)
    slow = 4.0 * wins / (1.0 + 3.0 * wins)
    assert found.action_probability.value == pytest.approx([slow, *[0.5 * (1.0 - slow)] * 2], abs=5e-4)


def test_rewards_beside_exact_ones_add_to_the_evidence():
    """An exact reward of -1 and another of -1.4 with an sd of 0.5: its density, and the prior's of both values."""
    model = from_moves("two", {("s", "a"): Move(-1.0, {"goal": 1.0}), ("s", "b"): Move(-2.0, {"goal": 1.0})}, start="s")
    seen = [Observation("s", "a", -1.0), Observation("s", "b", -2.0), Observation("s", "a", -1.4, 0.5)]
    found = bm.posterior(model, Dataset.from_pairs(model, seen), prior_scale=3.0)
    assert found.engine == "solver"
    density = stats.norm.logpdf([-1.0, -2.0], scale=3.0).sum() + stats.norm.logpdf(-1.4, -1.0, 0.5)
    assert float(found.log_evidence.value) == pytest.approx(density)
