"""Open problems and what observations may say: own sds, exact rewards, beliefs, landings."""

from dataclasses import replace

import numpy as np
import pytest
from problems import random_problem
from toy_agents import Toy

import bellmanifold as bm
import bellmanifold_paper as paper
from bellmanifold import envs, figures
from bellmanifold.agents.memory import Memory
from bellmanifold.envs.building import with_action_order
from bellmanifold.errors import BadInputError
from bellmanifold.learning.episodes import run_episodes
from bellmanifold.learning.run_settings import digest
from bellmanifold.mdp.graph import end_components, reach_goal, reach_probability
from bellmanifold.problem.builder import assemble
from bellmanifold.problem.dataset import Dataset, Visits
from bellmanifold.problem.observation import Observation
from bellmanifold.problem.ssp import Description, StatedPrior, require_closed

NAN = float("nan")


def description(**changes):
    """Two states: (a, x) is known, (a, y) leads nobody knows where, (b, x) pays nobody knows what, (b, y) both."""
    fields = {
        "state_names": ["a", "b", "goal"],
        "action_names": ["x", "y"],
        "goals": [2],
        "initial_state": [0],
        "initial_prob": [1.0],
        "pair_state": [0, 0, 1, 1],
        "pair_action": [0, 1, 0, 1],
        "reward": [-1.0, -2.0, NAN, NAN],
        "next_start": [0, 2, 2, 3, 3],
        "next_state": [0, 1, 2],
        "next_prob": [0.25, 0.75, 1.0],
        "may_be_open": True,
    }
    return Description(**{**fields, **changes})


MODEL = assemble(description())


def opened(model, rng):
    """A problem with some of its rewards and laws left open, and a prior stated for some pairs."""
    unknown = rng.random((4, model.n_pairs)) < 0.4
    rows = np.flatnonzero(unknown[0])
    nothing = np.zeros(len(rows) + 1, dtype=np.int64), np.zeros(0, dtype=np.int64), np.zeros(0)
    prior = StatedPrior(
        None if rng.random() < 0.5 else -3.0,
        None if rng.random() < 0.5 else 2.0,
        np.where(unknown[2], NAN, rng.normal(size=model.n_pairs)),
        np.where(unknown[3], NAN, 1.0 + rng.random(model.n_pairs)),
    )
    return replace(model.with_rows(rows, *nothing), reward=np.where(unknown[1], NAN, model.reward), prior=prior)


def test_what_is_open():
    assert MODEL.open_law.tolist() == [False, True, False, True]
    assert MODEL.open_reward.tolist() == [False, False, True, True]
    assert MODEL.is_open
    assert not MODEL.is_deterministic
    assert repr(MODEL) == 'SSP("", 2 states, 4 pairs, 3 of them open)'
    assert not envs.two_state().is_open
    assert envs.two_state().is_deterministic
    assert assemble(description()) == MODEL, "NaN equals NaN"
    assert hash(MODEL) != hash(assemble(description()))


def test_one_successor_on_average_is_not_deterministic():
    """As many successors as pairs, but one pair has two of them and another none."""
    model = assemble(description(next_start=[0, 2, 2, 3, 4], next_state=[0, 1, 2, 2], next_prob=[0.25, 0.75, 1.0, 1.0]))
    assert len(model.next_state) == model.n_pairs
    assert not model.is_deterministic


def test_descriptions_that_are_not_said_to_be_open_are_refused():
    with pytest.raises(BadInputError, match=r'pair \("b", "x"\): reward is nan'):
        assemble(description(may_be_open=False))
    with pytest.raises(BadInputError, match=r'pair \("a", "y"\): probabilities sum to 0'):
        assemble(description(may_be_open=False, reward=[-1.0, -2.0, 0.0, 0.0]))
    with pytest.raises(BadInputError, match=r'pair \("a", "x"\): probabilities sum to 0:'):
        assemble(description(next_prob=[0.0, 0.0, 1.0]))
    with pytest.raises(BadInputError, match=r'pair \("b", "y"\): reward is inf'):
        assemble(description(reward=[-1.0, -2.0, NAN, np.inf]))


def test_a_problem_may_be_open_altogether():
    nothing = {"next_start": [0] * 5, "next_state": np.zeros(0, dtype=int), "next_prob": [], "reward": [NAN] * 4}
    model = assemble(description(**nothing))
    assert model.open_law.all()
    assert model.open_reward.all()
    assert np.isnan(model.expected_next(np.ones(2))).all()
    assert model.discounted(0.5).open_discount == 0.5


def test_expected_next_of_open_pairs_is_unknown(rng):
    """... and that of the others what it is without them, wherever the empty rows lie."""
    found = 0
    for _ in range(50):
        whole = random_problem(rng, states=int(rng.integers(1, 7)))
        model, value = opened(whole, rng), rng.normal(size=(3, whole.n_states))
        expected = np.where(model.open_law, NAN, whole.expected_next(value))
        np.testing.assert_array_equal(model.expected_next(value), expected)
        np.testing.assert_array_equal(model.expected_next(value[0]), expected[0])
        found += model.open_law.any()
    assert found > 30


def test_describe_and_assemble_are_inverse(rng):
    for _ in range(50):
        model = opened(random_problem(rng, states=int(rng.integers(1, 8))), rng)
        assert assemble(model.describe()) == model
        discounted = model.discounted(0.75)
        assert assemble(discounted.describe()) == discounted


def test_with_rows_replaces_laws(rng):
    for _ in range(50):
        model = random_problem(rng, states=int(rng.integers(1, 8)))
        hidden = opened(model, rng)
        pairs = np.flatnonzero(hidden.open_law)
        entries = np.concatenate([np.arange(0), *(np.arange(*model.next_start[i : i + 2]) for i in pairs)]).astype(int)
        start = np.append(0, np.cumsum(np.diff(model.next_start)[pairs]))
        filled = hidden.with_rows(pairs, start, model.next_state[entries], model.next_prob[entries])
        assert filled == replace(hidden, **{f: getattr(model, f) for f in ("next_start", "next_state", "next_prob")})
        assert assemble(filled.describe()) == filled


def test_a_discount_waits_for_laws_that_are_open():
    """Discounting and filling in commute; rows that are given hold their discount already."""
    rows = np.array([1, 3]), np.array([0, 1, 3]), np.array([0, 1, 2]), np.array([1.0, 0.5, 0.5])
    first, then = MODEL.discounted(0.9).with_rows(*rows), MODEL.with_rows(*rows).discounted(0.9)
    assert MODEL.discounted(0.9).open_discount == 0.9
    assert MODEL.discounted(0.9).discounted(0.5).open_discount == 0.45
    assert first.open_discount == then.open_discount == 1.0
    np.testing.assert_array_equal(first.next_state, then.next_state)
    np.testing.assert_allclose(first.next_prob, then.next_prob, rtol=1e-15)
    assert MODEL.discounted(0.9).open_law.tolist() == MODEL.open_law.tolist()


def test_closed_at_goal():
    closed = MODEL.closed_at_goal()
    assert not closed.is_open
    assert closed.reward.tolist() == [-1.0, -2.0, 0.0, 0.0]
    assert closed.next_start.tolist() == [0, 2, 3, 4, 5]
    assert closed.next_state.tolist() == [0, 1, 2, 2, 2]
    assert MODEL.discounted(0.5).closed_at_goal().next_prob[-3:].tolist() == [1.0, 1.0, 1.0]
    model = envs.two_state()
    assert model.closed_at_goal() is model


def test_a_subproblem_keeps_what_is_open_and_stated():
    stated = StatedPrior(1.0, None, np.array([NAN, 2.0, 3.0, 4.0]), np.array([1.0, NAN, 3.0, 4.0]))
    model = replace(MODEL, prior=stated).subproblem(np.array([False, False, True, True]), start=1)
    assert model.states == ("b",)
    assert model.open_law.tolist() == [False, True]
    assert model.prior == StatedPrior(1.0, None, np.array([3.0, 4.0]), np.array([3.0, 4.0]))
    assert assemble(model.describe()) == model


def test_stated_priors_follow_their_pairs():
    """Pairs are sorted by state; what is stated about them goes along, and nothing stated is no prior."""
    order = [2, 0, 1, 3]
    plain = description()
    shuffled = {f: np.asarray(getattr(plain, f))[order] for f in ("pair_state", "pair_action", "reward")}
    prior = StatedPrior(None, 2.0, np.array([2.0, 0.0, 1.0, 3.0]), np.array([NAN, NAN, 1.5, NAN]))
    rows = {"next_start": [0, 1, 3, 3, 3], "next_state": [2, 0, 1], "next_prob": [1.0, 0.25, 0.75]}
    model = assemble(description(**shuffled, **rows, prior=prior))
    assert model.states == ("b", "a")
    assert model.prior == StatedPrior(None, 2.0, np.array([2.0, 3.0, 0.0, 1.0]), np.array([NAN, NAN, NAN, 1.5]))
    nothing = StatedPrior(None, None, np.full(4, NAN), np.full(4, NAN))
    assert assemble(description(prior=nothing)).prior is None
    assert model != assemble(description(**shuffled, **rows))
    assert prior != "prior"


@pytest.mark.parametrize(
    ("prior", "message"),
    [
        (lambda: StatedPrior(np.inf, None, np.zeros(4), np.ones(4)), "prior: mean is inf"),
        (lambda: StatedPrior(None, 0.0, np.zeros(4), np.ones(4)), "prior: sd is 0"),
        (lambda: StatedPrior(None, None, np.zeros(4), np.array([1, 1, 0.0, 1])), r'\("b", "x"\): prior: sd is 0'),
        (lambda: StatedPrior(None, None, np.array([1, 1, np.inf, 1]), np.ones(4)), r'\("b", "x"\): prior: mean is inf'),
        (lambda: StatedPrior(None, None, np.zeros(3), np.ones(3)), "one entry per pair"),
    ],
)
def test_priors_that_are_none(prior, message):
    with pytest.raises(BadInputError, match=message):
        assemble(description(prior=prior()))


def test_open_discount_must_be_one():
    with pytest.raises(BadInputError, match="open_discount is 0"):
        assemble(description(open_discount=0.0))


def test_what_is_lacking_is_named():
    with pytest.raises(
        BadInputError,
        match=r'solve needs the whole problem, but pair \("a", "y"\) lacks next, \("b", "x"\) lacks reward, '
        r'\("b", "y"\) lacks reward and next: give',
    ):
        require_closed(MODEL, "solve")
    wide = assemble(
        description(
            action_names=list("vwxyz"),
            pair_state=[0, 0, 0, 0, 1],
            pair_action=[0, 1, 2, 3, 4],
            reward=[NAN] * 5,
            next_start=np.arange(6),
            next_state=[2] * 5,
            next_prob=[1.0] * 5,
        )
    )
    with pytest.raises(BadInputError, match=r'\("a", "x"\) lacks reward and 2 more pairs'):
        require_closed(wide, "check")
    require_closed(envs.two_state(), "solve")


SEEN = [
    ("a", "x"),
    Observation("a", "x", -3.0),
    {"state": "a", "action": "x", "reward": -4.0, "sd": 2.0, "next": "b"},
    Observation("a", "x", -1.0, sd=1.0, next="a"),
    Observation("b", "y", 5.0, sd=0.0),
    Observation("b", "y", 4.0, sd=0.5),
    Observation("b", "y", next="goal"),
    Observation("b", "x", next="goal"),
    Observation("a", "y", sd=2.0, next="b"),
    Observation("a", "y", -7.0, sd=2.0, next="b"),
]


def test_what_observations_say():
    data = Dataset.from_pairs(MODEL, SEEN)
    np.testing.assert_array_equal(data.reward, [-1, -3, -4, -1, 5, 4, NAN, NAN, -2, -7])
    np.testing.assert_array_equal(data.sd, [NAN, NAN, 2, 1, 0, 0.5, NAN, NAN, 2, 2])
    assert data.next.tolist() == [-1, -1, 1, 0, -1, -1, 2, 2, 1, 1]
    assert data.count.tolist() == [2, 0, 0, 0]
    assert data.mean_reward.tolist() == [-2.0, 0.0, 0.0, 0.0]
    assert data.scatter.tolist() == [2.0, 0.0, 0.0, 0.0]
    assert data.own_count.tolist() == [2, 2, 0, 1]
    assert data.own_precision.tolist() == [1.25, 0.5, 0.0, 4.0]
    np.testing.assert_allclose(data.own_mean, [-1.6, -4.5, 0.0, 4.0])
    np.testing.assert_allclose(data.own_scatter, [2.4**2 / 4 + 0.6**2, 2 * 2.5**2 / 4, 0.0, 0.0])
    np.testing.assert_allclose(data.own_log_sd, [np.log(2), np.log(4), 0.0, np.log(0.5)])
    assert data.exact.tolist() == [False, False, False, True]
    assert data.exact_reward.tolist() == [0.0, 0.0, 0.0, 5.0]
    assert data.observed.tolist() == [True, True, False, True], "a landing alone says nothing about a reward"
    assert data.landing_counts.toarray().tolist() == [[1, 1, 0], [0, 2, 0], [0, 0, 1], [0, 0, 1]]
    assert data.landing_counts.dtype == np.int64


def test_own_rewards_give_their_density(rng):
    """The sufficient numbers reproduce the normal density of all rewards at any mean."""
    sd, x = rng.uniform(0.1, 3.0, 20), rng.normal(size=20)
    data = Dataset(envs.two_state(), np.ones(20, dtype=np.int64), x, sd)
    for mean in (-1.0, 0.3):
        direct = np.sum(-0.5 * ((x - mean) / sd) ** 2 - np.log(sd))
        shape = data.own_scatter[1] + data.own_precision[1] * (data.own_mean[1] - mean) ** 2
        assert -0.5 * shape - data.own_log_sd[1] == pytest.approx(direct, rel=1e-12)


def test_equal_own_rewards_have_exactly_that_mean():
    data = Dataset(envs.two_state(), np.zeros(3, dtype=np.int64), np.full(3, 0.1), np.array([0.3, 0.7, 1.1]))
    assert data.own_mean[0] == 0.1
    assert data.own_scatter[0] == 0.0


def test_plain_data_say_what_they_said():
    data = Dataset(envs.two_state(), np.array([0, 1, 1]), np.array([-1.0, -2.0, -4.0]))
    assert np.isnan(data.sd).all()
    assert data.next.tolist() == [-1, -1, -1]
    assert data.count.tolist() == [1, 2]
    assert data.own_precision.tolist() == data.own_mean.tolist() == data.own_scatter.tolist() == [0.0, 0.0]
    assert not data.exact.any()
    assert data.landing_counts.nnz == 0
    empty = Dataset.from_pairs(envs.two_state(), [])
    assert not empty.observed.any()
    assert empty.landing_counts.shape == (2, 2)
    assert len(empty.extended(data.pair, data.reward)) == 3


def test_a_belief_about_every_pair_that_has_a_law():
    data = Dataset.from_pairs(MODEL, [("a", "x", -3.0)]).with_belief(-5.0, 2.0)
    assert data.own_count.tolist() == [1, 0, 1, 0]
    assert data.own_mean.tolist() == [-5.0, 0.0, -5.0, 0.0]
    assert data.count.tolist() == [1, 0, 0, 0]
    assert data.observed.tolist() == [True, False, True, False]
    assert data.landing_counts.nnz == 0
    for mean, sd in ((NAN, 1.0), (0.0, 0.0), (0.0, -1.0), (0.0, NAN), (0.0, np.inf)):
        with pytest.raises(BadInputError, match=r"^(mean|sd) is "):
            data.with_belief(mean, sd)


def test_later_observations_keep_their_sds_and_landings():
    first, second = Dataset.from_pairs(MODEL, SEEN[:4]), Dataset.from_pairs(MODEL, SEEN[4:])
    both, at_once = first.extended(second.pair, second.reward, second.sd, second.next), Dataset.from_pairs(MODEL, SEEN)
    for part in ("pair", "reward", "sd", "next"):
        np.testing.assert_array_equal(getattr(both, part), getattr(at_once, part))


def test_deterministic_rewards_are_the_plain_and_the_exact_ones():
    model = envs.two_state()
    data = Dataset.from_pairs(
        model, [Observation("s1", "go", -5.0, sd=1.0), ("s1", "go"), Observation("s1", "go", -1, 0)]
    )
    assert data.deterministic_reward().tolist() == [0.0, -1.0]
    with pytest.raises(BadInputError, match=r"observations\[2\].*paid -2 but -1 before: deterministic"):
        Dataset.from_pairs(model, [("s1", "stay"), ("s1", "go"), Observation("s1", "go", -2, 0)]).deterministic_reward()


@pytest.mark.parametrize(
    ("observation", "message"),
    [
        (Observation("a", "x", next="c"), 'next state "c" is not a goal and has no pair'),
        (
            Observation("a", "x", next="goal"),
            r'pair \("a", "x"\) led to "goal", which its law in the problem makes imp',
        ),
        (Observation("a", "x", sd=-1.0), "sd is -1.0: give a finite number that is not negative"),
        (Observation("a", "x", sd=np.inf), "sd is inf"),
        (Observation("a", "x", sd=NAN), "sd is nan"),
        (Observation("a", "x", sd=1e-200), "sd is 1e-200: give 0 for an exact reward"),
        (Observation("a", "x", reward=NAN), "reward is nan"),
        (Observation("a", "x", reward="much"), 'reward is the string "much"'),
        (("b", "x"), r'pair \("b", "x"\) has no reward and no next, and the problem leaves its reward open'),
        (Observation("b", "x", sd=1.0, next="goal"), r'pair \("b", "x"\) has an sd but no reward'),
        (("a", "x", -1.0, "b"), "has 4 entries"),
        (
            {"state": "a", "action": "x", "colour": "red"},
            'unknown key "colour": it takes state, action, reward, sd, next',
        ),
        ({"state": "a"}, '"action" is missing'),
    ],
)
def test_wrong_observations_are_named(observation, message):
    with pytest.raises(BadInputError, match=r"observations\[1\]: .*" + message):
        Dataset.from_pairs(MODEL, [("a", "x"), observation])


def test_exact_rewards_must_agree():
    near = [Observation("b", "y", 1e6, 0.0), Observation("b", "y", 1e6 + 5e-4, 0.0)]
    assert Dataset.from_pairs(MODEL, near).exact_reward[3] == 1e6
    far = [Observation("b", "y", 1.0, 0.0), Observation("b", "y", 9.0), Observation("b", "y", 1.1, 0.0)]
    with pytest.raises(
        BadInputError, match=r'observations\[2\]: pair \("b", "y"\) paid 1.1 but 1 before: exact rewards'
    ):
        Dataset.from_pairs(MODEL, far)


def test_arrays_of_other_lengths_are_refused():
    data = Dataset.from_pairs(MODEL, SEEN)
    object.__setattr__(data, "sd", np.ones(3))  # the shapes of arguments are checked in tests, not for users
    with pytest.raises(BadInputError, match="one entry per observation"):
        data.__post_init__()
    with pytest.raises(BadInputError, match="next is 3: give the number of a state"):
        Dataset(MODEL, np.array([1]), np.array([1.0]), next=np.array([3]))


def test_complete_data_need_a_whole_problem():
    with pytest.raises(BadInputError, match=r"Dataset\.complete needs the whole problem"):
        Dataset.complete(MODEL)


def test_public_names_and_protocol():
    assert bm.Observation is Observation
    assert isinstance(Memory(envs.two_state()), Visits)
    assert isinstance(Dataset.from_pairs(MODEL, SEEN), Visits)


@pytest.mark.parametrize(
    ("call", "what"),
    [
        (bm.solve, "solve"),
        (bm.check, "check"),
        (lambda model: bm.learn(model, "q-learning", episodes=1, runs=1), "learn"),
        (lambda model: run_episodes(model, Toy(envs.two_state(), 0.0), 1, 0), "simulation"),
        (bm.to_gymnasium, "simulation"),
        (paper.identifiability.flat_cones, "identifiability.flat_cones"),
        (lambda model: paper.identifiability.flat_direction(seen(model), POLICY), "identifiability.flat_direction"),
        (
            lambda model: paper.identifiability.likelihood_mass(seen(model), POLICY, 1.0),
            "identifiability.likelihood_mass",
        ),
        (
            lambda model: paper.identifiability.best_linear_fit(seen(model), np.ones((4, 1))),
            "identifiability.best_linear_fit",
        ),
        (
            lambda model: paper.identifiability.improper_mass_sweep(seen(model), [1.0], [1.0]),
            "identifiability.improper_mass_sweep",
        ),
        (lambda model: paper.hausdorff.tabular_manifold(seen(model)), "hausdorff.manifold"),
    ],
)
def test_what_needs_a_whole_problem_says_so(call, what):
    with pytest.raises(BadInputError, match=rf"^{what} needs the whole problem, but pair \(\"a\", \"y\"\) lacks next"):
        call(MODEL)


POLICY = np.array([0, 2])


def seen(model):
    return Dataset.from_pairs(model, [("a", "x")])


@pytest.mark.parametrize(
    "call",
    [
        lambda data: paper.identifiability.likelihood_mass(data, np.array([1]), 1.0),
        lambda data: paper.identifiability.best_linear_fit(data, np.ones((2, 1))),
        lambda data: paper.identifiability.improper_mass_sweep(data, [1.0], [1.0]),
        paper.hausdorff.tabular_manifold,
    ],
)
def test_methods_that_know_no_own_sds_refuse_them(call):
    data = Dataset.from_pairs(envs.two_state(), [("s1", "go"), Observation("s1", "stay", sd=0.5)])
    with pytest.raises(BadInputError, match=r"observations\[1\]: has an sd of its own, which .* does not take: leave"):
        call(data)


def test_graphs_take_open_laws_for_unknown(rng):
    """Pairs that may be played and are known answer as they do without the others, wherever the empty rows lie."""
    found = 0
    for _ in range(60):
        whole = random_problem(rng, states=int(rng.integers(2, 9)))
        model = opened(whole, rng)
        known = ~model.open_law
        for one, other in zip(end_components(model), end_components(whole, known), strict=True):
            np.testing.assert_array_equal(one.states, other.states)
            np.testing.assert_array_equal(one.pairs, other.pairs)
            found += 1
        for one, other in zip(reach_goal(model), reach_goal(whole, known), strict=True):
            np.testing.assert_array_equal(one, other)
        start = rng.random(model.n_states) < 0.5
        probable, without = (reach_probability(m, start, known)[known] for m in (model, whole))
        np.testing.assert_array_equal(probable, without)
    assert found > 20


def test_open_problems_are_drawn():
    figures.draw(MODEL)


def test_the_order_of_actions_takes_the_prior_along():
    stated = StatedPrior(None, 1.0, np.arange(12.0), np.where(np.arange(12) % 2, NAN, 1.0 + np.arange(12)))
    model = replace(envs.deep_sea(3), prior=stated)
    other = with_action_order(model, 3)
    number = other.numbers_in(model)
    assert (number != np.arange(12)).any()
    np.testing.assert_array_equal(other.prior.pair_mean, stated.pair_mean[number])
    np.testing.assert_array_equal(other.prior.pair_sd, stated.pair_sd[number])
    assert digest(model) != digest(replace(model, prior=None)) == digest(envs.deep_sea(3))
    assert digest(model) != digest(replace(model, prior=replace(stated, sd=2.0)))
