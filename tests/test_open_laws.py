"""Open transition laws against quadrature, and their limits."""

from dataclasses import replace

import numpy as np
import pytest
from open_quadrature import ONE, TWO, inferred, landed, log_landings, one_state, open_model, two_states
from scipy import stats

import bellmanifold as bm
from bellmanifold import envs
from bellmanifold.agents.registry import make_agent
from bellmanifold.chart.batch import batch_chart
from bellmanifold.envs.building import Move, from_moves
from bellmanifold.errors import BadInputError, UnsupportedError
from bellmanifold.io.problem import from_json
from bellmanifold.learning.episodes import run_episodes
from bellmanifold.posteriors.budget import Budget
from bellmanifold.posteriors.choose import choose
from bellmanifold.posteriors.coordinates import Coordinates
from bellmanifold.posteriors.draws import posterior_draws
from bellmanifold.posteriors.estimated import effective_size
from bellmanifold.posteriors.laws import close_laws
from bellmanifold.posteriors.leaks import lacking_variance
from bellmanifold.posteriors.policies import action_probabilities
from bellmanifold.posteriors.target import relaxed_target
from bellmanifold.posteriors.walk import CHAINS, by_sparse_walk, by_walk, walker_of
from bellmanifold.problem.dataset import Dataset
from bellmanifold.problem.observation import Observation

ACCURACY = 1e-3


def near(found, se, exact, accuracy=ACCURACY):
    """Within the accuracy asked for, or 4.5 standard errors where these are larger."""
    assert abs(float(found) - float(exact)) <= max(accuracy, 4.5 * float(se)), (found, se, exact)


def check(target, result, exact, accuracy=ACCURACY):
    """Action probability, mean law, evidence (where the engine has one) and mean value against exact answers."""
    found = action_probabilities(target.model, result.table)
    near(found.value[0], found.se[0], exact.stay, accuracy)
    laws = result.laws.probability
    for landing, value, se in zip(target.laws.seen[1], laws.value, laws.se, strict=True):
        near(value, se, exact.law[landing], accuracy)
    if result.log_evidence is not None:
        near(result.log_evidence.value, result.log_evidence.se, exact.log_evidence, accuracy)
    if np.isfinite(exact.q):
        near(result.q_mean.value[0], result.q_mean.se[0], exact.q, accuracy)


def asked(model, data, **options):
    return bm.posterior(model, data, laws="dirichlet", **options)


EXACT = [
    # concentration, landings (stay, end), reward, prior means, prior sds
    (1.0, (1, 1), -1.0, (0.0, 0.0), (2.0, 2.0)),
    (0.1, (2, 1), 1.0, (0.0, 0.0), (2.0, 2.0)),
    (10.0, (5, 2), -0.3, (1.0, -1.0), (1.0, 3.0)),
    (0.01, (1, 4), 0.5, (-1.0, 0.0), (5.0, 5.0)),
    (1.0, (3, 2), 0.0, (0.0, 0.0), (2.0, 2.0)),
    (1.0, (3, 0), -1.0, (0.0, 0.0), (2.0, 2.0)),
    (0.01, (2, 0), -0.5, (0.0, 0.0), (3.0, 3.0)),
    (2.0, (0, 3), 0.3, (1.0, -1.0), (2.0, 1.0)),
    (1.0, (0, 0), -1.0, (0.0, 0.0), (1.0, 1.0)),
]


@pytest.mark.parametrize("case", EXACT)
def test_one_state_exact(case):
    """One action that may stay, one untried: action probability, mean law and evidence against quadrature.

    About 4 comparisons a case at 4.5 standard errors: a false-alarm rate below 1e-4 in all.
    """
    a, counts, reward, mean, sd = case
    exact = one_state(a, counts, reward, mean=mean, sd=sd)
    assert exact.log_evidence == pytest.approx(one_state(a, counts, reward, mean=mean, sd=sd, nodes=500).log_evidence)
    data = landed(ONE, reward, counts)
    found = asked(ONE, data, concentration=a, prior_scale=np.array(sd), prior_mean=np.array(mean))
    assert found.trustworthy
    assert found.result.laws.concentration == (pytest.approx(a), 0.0)
    check(found.target, found.result, exact)


RELAXED = [
    (1.0, (1, 1), -1.0, 0.5, (0.0, 0.0), (2.0, 2.0)),
    (0.1, (2, 1), 1.0, 0.1, (0.0, 0.0), (2.0, 2.0)),
    (2.0, (3, 1), 0.3, 1.0, (1.0, -1.0), (2.0, 1.0)),
    (1.0, (3, 0), -1.0, 1.0, (0.0, 0.0), (2.0, 2.0)),
    (0.01, (3, 0), 0.5, 0.5, (0.0, 0.0), (3.0, 3.0)),
    (0.01, (30, 0), -0.5, 0.5, (0.0, 0.0), (3.0, 3.0)),
    (0.01, (2, 0), 0.0, 0.2, (0.0, 0.0), (3.0, 3.0)),
    (0.01, (0, 0), -0.5, 0.5, (0.0, 0.0), (3.0, 3.0)),
]


@pytest.mark.parametrize("case", [*RELAXED[:3], *(pytest.param(case, marks=pytest.mark.slow) for case in RELAXED[3:])])
def test_one_state_relaxed(case):
    """A tolerance, about as large as the reward or smaller, where the pair may stay for ever in effect.

    About 5 comparisons a case at 4.5 standard errors: a false-alarm rate below 1e-4 in all.
    """
    a, counts, reward, tau, mean, sd = case
    exact = one_state(a, counts, reward, tau, mean, sd)
    data = landed(ONE, reward, counts)
    found = asked(ONE, data, concentration=a, epsilon=tau, prior_scale=np.array(sd), prior_mean=np.array(mean))
    assert found.trustworthy
    check(found.target, found.result, exact)


@pytest.mark.slow
def test_means_of_values_have_errors():
    """A loop that pays next to nothing and may be left rarely: few points hold much of the mean, so more are taken.

    A false-alarm rate below 1e-4.
    """
    exact, _ = inferred(lambda a: one_state(a, (3, 1), 0.0, 0.05, sd=(10.0, 10.0)))
    found = asked(ONE, landed(ONE, 0.0, (3, 1)), noise_sd=0.1)
    told = found.to_dict()
    mean, se = told["q_mean"]["s"]["stay"], told["q_mean_se"]["s"]["stay"]
    assert 0 < se < 0.012 * told["q_sd"]["s"]["stay"]
    near(mean, se, exact.q)


def test_one_state_noisy():
    """Repeats with noise: their mean and its sd are what a tolerance is, up to the density of their scatter.

    A false-alarm rate below 1e-4.
    """
    data = landed(ONE, 0.0, (2, 1))
    data = replace(data, reward=np.array([-1.0, -0.5, -1.2]))
    exact = one_state(0.5, (2, 1), -0.9, 0.5 / np.sqrt(3))
    noise = asked(ONE, data, concentration=0.5, noise_sd=0.5, prior_scale=2.0)
    scatter = ((data.reward + 0.9) ** 2).sum()
    exact.log_evidence += -np.log(2 * np.pi * 0.25) - 0.5 * np.log(3) - scatter / 2 / 0.25
    check(noise.target, noise.result, exact)
    own = asked(ONE, replace(data, sd=np.full(3, 0.5)), concentration=0.5, prior_scale=2.0)
    check(own.target, own.result, exact)


@pytest.mark.parametrize("counts", [(1, 1), (5, 1), (4, 4)])
def test_inferred_concentration(counts):
    """A log-uniform prior over it, integrated over as well.

    A false-alarm rate below 1e-4.
    """
    exact, (mean, sd) = inferred(lambda a: one_state(a, counts, -1.0))
    found = asked(ONE, landed(ONE, -1.0, counts), prior_scale=2.0)
    check(found.target, found.result, exact)
    assert found.result.laws.concentration == (pytest.approx(mean, rel=0.02), pytest.approx(sd, rel=0.02))
    told = found.to_dict()
    assert told["concentration"] == {
        "mean": found.result.laws.concentration[0],
        "sd": found.result.laws.concentration[1],
    }
    assert told["improper_mass_model"] is None
    assert "routes" not in told
    assert found.dimension == 3, "a law, a concentration, an untried value"
    (stay,) = (told["laws"]["s"]["stay"][name]["mean"] for name in ["s"])
    assert stay == pytest.approx(exact.law[0], abs=5e-3)


@pytest.mark.parametrize(
    ("a", "counts", "reward", "mean", "sd"),
    [
        (1.0, (1, 1, 1), -1.0, (0.0, 0.0, 0.0), (2.0, 2.0, 2.0)),
        (0.3, (2, 3, 1), 1.0, (1.0, 0.0, -1.0), (2.0, 1.0, 3.0)),
        pytest.param(3.0, (4, 1, 2), -0.2, (0.0, 0.0, 0.0), (1.0, 1.0, 1.0), marks=pytest.mark.slow),
    ],
)
def test_two_states(a, counts, reward, mean, sd):
    """The same where the open pair may also lead to another state.

    A false-alarm rate below 1e-4.
    """
    exact = two_states(a, counts, reward, mean, sd)
    assert exact.log_evidence == pytest.approx(two_states(a, counts, reward, mean, sd, nodes=80).log_evidence, abs=1e-5)
    data = landed(TWO, reward, counts)
    found = asked(TWO, data, concentration=a, prior_scale=np.array(sd), prior_mean=np.array(mean))
    check(found.target, found.result, exact)


def test_a_discount_of_open_laws():
    """Laws are multiplied by it, the rest leads to the goal; they are reported without.

    A false-alarm rate below 1e-4.
    """
    for counts, reward in (((2, 1), -1.0), ((3, 1), 0.0)):
        exact = one_state(0.5, counts, reward, discount=0.9)
        found = asked(ONE, landed(ONE, reward, counts), concentration=0.5, prior_scale=2.0, discount=0.9)
        assert found.trustworthy
        check(found.target, found.result, exact)


@pytest.mark.slow
def test_batch_walk():
    """Chains that propose laws, the concentration drawn given these.

    A false-alarm rate below 1e-4: 6 comparisons at 4.5 standard errors.
    """
    exact, (mean, _) = inferred(lambda a: one_state(a, (3, 1), -1.0))
    target = asked(ONE, landed(ONE, -1.0, (3, 1)), prior_scale=2.0, samples=1024).target
    coordinates, rng = Coordinates(target), np.random.default_rng(1)
    walker = walker_of(coordinates, batch_chart(target.model), rng, CHAINS)
    walker.record(rng, 100)
    trace = walker.record(rng, 400)
    laws = trace.moments.laws(target)
    found = action_probabilities(target.model, trace.table(target.coupled, coordinates.stand_in, 1e4))
    near(found.value[0], found.se[0], exact.stay)
    for value, se, probability in zip(laws.probability.value, laws.probability.se, exact.law, strict=True):
        near(value, se, probability)
    assert laws.concentration[0] == pytest.approx(mean, rel=0.1)


def test_chains_that_only_advance():
    """Agents play the ends of chains that nobody records: their concentrations and laws are the posterior's, too.

    Landings alone say 0.46, the reward makes it 3.8. Ends of 256 chains are independent: a false-alarm rate below 1e-4.
    """
    exact, (mean, sd) = inferred(lambda a: one_state(a, (4, 0), 1.0, sd=(1.0, 1.0)))
    target = asked(ONE, landed(ONE, 1.0, (4, 0)), prior_scale=1.0, samples=1024).target
    assert target.laws.moments[0] < 0.5
    rng = np.random.default_rng(1)
    walker = walker_of(Coordinates(target), batch_chart(target.model), rng, CHAINS)
    walker.advance(rng, 200)
    ends = walker.ends().laws
    concentration, stays = np.asarray(ends.concentration)[0], np.exp(np.asarray(ends.log_law))[0, 0]
    near(concentration.mean(), sd / np.sqrt(CHAINS), mean)
    near(stays.mean(), stays.std() / np.sqrt(CHAINS), exact.law[0])


@pytest.mark.slow
@pytest.mark.parametrize("case", [*RELAXED[:6]])
def test_batch_walk_relaxed(case):
    """In centred coordinates where laws were only seen to stay.

    A false-alarm rate below 1e-3: 6 cases, 4 comparisons at 4.5 standard errors.
    """
    a, counts, reward, tau, mean, sd = case
    data, prior = landed(ONE, reward, counts), {"prior_scale": np.array(sd), "prior_mean": np.array(mean)}
    target = asked(ONE, data, concentration=a, epsilon=tau, samples=1024, **prior).target
    result = by_walk(target, Budget(), "asked for")
    assert result.trustworthy
    check(target, result, one_state(a, counts, reward, tau, mean, sd))


@pytest.mark.slow
@pytest.mark.parametrize("relaxed", [0.0, 0.5])
def test_sparse_walk(relaxed):
    """Chains whose laws have few landings.

    A false-alarm rate below 3e-3: errors of 4 chains have a t-distribution with 3 degrees of freedom, so 15 standard
    errors are asked for, twice.
    """
    exact, (mean, _) = inferred(lambda a: one_state(a, (3, 1), -1.0, relaxed), nodes=24)
    data = landed(ONE, -1.0, (3, 1))
    target = asked(ONE, data, prior_scale=2.0, epsilon=relaxed, samples=1024).target
    result = by_sparse_walk(target, Budget(samples=2000), "asked for")
    found, laws = action_probabilities(target.model, result.table), result.laws
    assert abs(found.value[0] - exact.stay) < 15 * found.se[0] < 0.5
    assert abs(laws.probability.value[0] - exact.law[0]) < 15 * laws.probability.se[0] < 0.5
    assert laws.concentration[0] == pytest.approx(mean, rel=0.3)


# --- limits ---------------------------------------------------------------------------------------------------------


def test_many_landings_are_a_known_law():
    """A false-alarm rate below 1e-4."""
    known = open_model(["s"], [("s", "stay"), ("s", "exit")], [(("s", "stay"), {"s": 0.75, "goal": 0.25})])
    exact = bm.posterior(known, Dataset.from_pairs(known, [("s", "stay", -1.0)]), prior_scale=2.0)
    found = asked(ONE, landed(ONE, -1.0, (750_000, 250_000)), prior_scale=2.0, concentration=1.0)
    near(found.action_probability.value[0], found.action_probability.se[0], exact.action_probability.value[0], 2e-3)
    near(found.q_mean.value[0], found.result.q_mean.se[0], exact.q_mean.value[0], 1e-2)
    laws = found.result.laws.probability
    assert laws.value.tolist() == pytest.approx([0.75, 0.25], abs=2e-3)


def played(model, pairs):
    """Observations of a deterministic problem with where each led."""
    after = model.next_state[model.next_start[pairs]]
    return Dataset(model.opened(), pairs, model.reward[pairs], np.full(len(pairs), np.nan), after)


@pytest.mark.parametrize("epsilon", [0.0, 0.1])
def test_deterministic_laws_are_known_laws(epsilon):
    """Bit for bit, but for what follows the laws of pairs nobody tried."""
    model = envs.deep_sea(3)
    pairs = np.array([0, 1, 2, 5, 5, 6])
    known = bm.posterior(model, Dataset(model, pairs, model.reward[pairs]), epsilon=epsilon).to_dict()
    data = played(model, pairs)
    found = bm.posterior(data.model, data, epsilon=epsilon, laws="deterministic").to_dict()
    for name in ("routes", "improper_mass_model", "largest_error"):  # the last may be that of a route
        known.pop(name)
    routes, no_mass, _ = (found.pop(name) for name in ("routes", "improper_mass_model", "largest_error"))
    assert found == known
    assert no_mass is None
    assert {route["ends"] for route in routes} <= {"goal", "open"}
    assert sum(route["probability"] for route in routes) == pytest.approx(1.0)


@pytest.mark.slow
@pytest.mark.parametrize("agent", ["manifold", "bayes-br"])
def test_agents_with_deterministic_laws(agent):
    """They play what they play when they are shown the laws, bit for bit."""
    runs = [
        bm.learn(envs.deep_sea(3), agent=agent, episodes=12, runs=1, laws=laws).runs[0]
        for laws in ("known", "deterministic")
    ]
    for one, other in zip(runs[0].played, runs[1].played, strict=True):
        np.testing.assert_array_equal(one.pairs, other.pairs)
        np.testing.assert_array_equal(one.rewards, other.rewards)


@pytest.mark.slow
def test_a_tiny_concentration_is_a_deterministic_law():
    """Without loops, after one visit.

    A false-alarm rate below 1e-4: 12 pairs at 4.5 standard errors.
    """
    model = envs.deep_sea(3)
    data = played(model, np.array([0, 1, 2, 5, 6]))
    options = {"prior_scale": 2.0}
    exact = bm.posterior(data.model, data, laws="deterministic", **options)
    found = asked(data.model, data, concentration=1e-9, **options)
    assert found.trustworthy
    for k in range(model.n_pairs):
        here, there = found.action_probability, exact.action_probability
        near(here.value[k], np.hypot(here.se[k], there.se[k]), there.value[k])
        near(
            found.q_mean.value[k],
            np.hypot(found.result.q_mean.se[k], exact.result.q_mean.se[k]),
            exact.q_mean.value[k],
            5e-3,
        )


def target_of(data, concentration=None):
    """The exact posterior."""
    whole, laws, no_law = close_laws(data, "dirichlet", concentration)
    return replace(relaxed_target(replace(data, model=whole), 0.0, 2.0), laws=laws, no_law=no_law)


@pytest.mark.slow
def test_what_was_left_once_is_not_trusted():
    """Its posterior exists, but chains do not find enough of it: P(stay) is 0.9986, they say 0.97."""
    found = asked(ONE, landed(ONE, 0.0, (3, 1)), concentration=0.01, prior_scale=2.0)
    assert not found.trustworthy
    assert "was left once" in found.warnings[0]


def test_a_loop_leaks_to_every_state_outside_it():
    """Of three next states two leave: w = 2 a / 3 has to be above 1 for a posterior, and above 2 for a variance."""
    never = landed(TWO, 0.0, (3, 0, 0))
    with pytest.raises(UnsupportedError, match="does not exist"):
        choose(target_of(never, 1.49), "auto", Budget())
    for concentration, doubted in ((1.51, True), (2.99, True), (3.01, False)):
        assert bool(choose(target_of(never, concentration), "auto", Budget()).doubt) == doubted


@pytest.mark.parametrize(("concentration", "doubted"), [(1.49, True), (1.51, False)])
def test_one_exit_that_was_seen_counts_one(concentration, doubted):
    """Left once, to one of two states outside: w = 1 + 2 a / 3 has to be above 2 for a variance."""
    assert bool(lacking_variance(target_of(landed(TWO, 0.0, (3, 1, 0)), concentration))) == doubted


def test_landings_of_a_given_law_say_nothing_about_open_ones():
    """The second pair is known to end, however often it was seen to."""
    model = open_model(["s"], [("s", "stay"), ("s", "exit")], [(("s", "exit"), {"goal": 1.0})])
    stays = [Observation("s", "stay", reward=-1.0, next=name) for name in ("s", "s", "goal")]
    data = Dataset.from_pairs(model, [*stays, *[Observation("s", "exit", reward=-2.0, next="goal")] * 3])
    laws = close_laws(data, "dirichlet", 0.7)[1]
    assert laws.landed.toarray().tolist() == [[2.0, 1.0]]
    assert laws.log_evidence == pytest.approx(log_landings(0.7, (2, 1)))


def test_loops_that_pay_nothing(cli, tmp_path):
    """Too little leak weight is refused with the reason; what was left once is not trusted; other things help."""
    never, once = landed(ONE, 0.0, (3, 0)), landed(ONE, 0.0, (3, 1))
    with pytest.raises(UnsupportedError, match=r"may stay in s pay nothing on average.*does not exist.*epsilon above"):
        asked(ONE, never)
    with pytest.raises(UnsupportedError, match="does not exist"):
        asked(ONE, never, concentration=2.0)
    with pytest.raises(UnsupportedError, match="does not exist"):
        asked(ONE, landed(ONE, 0.0, (0, 0)), concentration=1.0)
    for data, a in ((once, None), (once, 1.0), (never, 3.0)):
        choice = choose(target_of(data, a), "auto", Budget())
        assert choice.engine == "walk"
        assert "infinite variance" in choice.doubt
    for data, a in ((landed(ONE, 0.0, (3, 2)), None), (never, 5.0), (landed(ONE, -0.5, (3, 0)), None)):
        assert choose(target_of(data, a), "auto", Budget()).engine == "importance"
    assert not choose(target_of(landed(ONE, 0.0, (0, 1))), "auto", Budget()).doubt, "no loop was seen"
    for options in ({"discount": 0.9}, {"epsilon": 0.5}, {"noise_sd": 0.5}):
        assert asked(ONE, never, **options).trustworthy, options
    problem, seen = tmp_path / "one.json", tmp_path / "data.json"
    bm.write_problem(ONE, problem)
    bm.write_data(never, seen)
    code, out, err = cli("posterior", str(problem), str(seen), "--laws", "dirichlet", "--json")
    assert (code, out) == (3, "")
    assert "does not exist" in err


def test_agents_refuse_loops_that_pay_nothing():
    """What the posterior refuses the agent refuses, as soon as it has seen to stay where nothing is paid."""
    moves = {("a", "x"): Move(0.0, {"a": 0.9, "goal": 0.1}), ("a", "y"): Move(0.0, {"goal": 1.0})}
    model = from_moves("lake", moves, start="a")
    for laws in ("deterministic", "dirichlet"):
        agent = make_agent("manifold", model, {"laws": laws})
        agent.moved(0, 0.0, 0, np.array([0, 1]))
        agent.observe(np.array([0]), np.zeros(1))
        with pytest.raises(UnsupportedError, match="use the agent bayes-br"):
            agent.policy(np.random.default_rng(0))


def test_draws_hold_laws():
    """Draws weigh as the summary does.

    A false-alarm rate below 1e-4.
    """
    found = asked(ONE, landed(ONE, -1.0, (1, 1)), concentration=1.0, prior_scale=2.0)
    draws = found.weighted_draws
    weight = draws.weight.values
    exact = one_state(1.0, (1, 1), -1.0)
    near(weight @ draws.law.values[:, 0], 2.0 / np.sqrt(8192), exact.law[0])
    assert [label.split(" -> ")[1] for label in draws.landing.values] == ["s", "goal"]
    assert draws.concentration.values.tolist() == [1.0] * len(weight)
    q, p = draws.q.values, draws.law.values[:, 0]
    np.testing.assert_allclose(q[:, 0], -1.0 + p * q.max(axis=1), rtol=1e-9)
    effective = effective_size(weight)
    demanding = Budget(enough=effective + 1.0, kept=2 * 8192)
    pooled = posterior_draws(found.target, demanding)
    assert effective_size(pooled.weight.values) > 10 * effective, "sixteen such batches are worth more"
    near(pooled.weight.values @ pooled.law.values[:, 0], 0.5 / np.sqrt(10 * effective), exact.law[0])


def test_engines_that_take_given_laws_only():
    data = landed(ONE, -1.0, (1, 1))
    for engine in ("mixture", "hmc", "nuts", "rejection"):
        with pytest.raises(UnsupportedError, match=f"the {engine} engine takes given transition laws only"):
            asked(ONE, data, engine=engine, epsilon=0.1)
    with pytest.raises(BadInputError, match="its transition law is unknown"):
        bm.posterior(ONE, data)
    with pytest.raises(BadInputError, match='is not deterministic: use laws="dirichlet"'):
        bm.posterior(ONE, data, laws="deterministic")
    with pytest.raises(BadInputError, match="not where it led"):
        bm.posterior(ONE, landed(ONE, -1.0, (0, 0)), laws="deterministic")
    with pytest.raises(BadInputError, match="concentration is that of a Dirichlet prior"):
        bm.posterior(ONE, data, laws="deterministic", concentration=1.0)
    with pytest.raises(BadInputError, match="concentration is 0: give a number from 1e-12 to"):
        asked(ONE, data, concentration=0)
    known = bm.envs.two_state()
    for number in (0.0, float("nan"), 1e13):  # where it would have no effect, too
        with pytest.raises(BadInputError, match="give a number from 1e-12 to"):
            bm.posterior(known, bm.Dataset.complete(known), laws="dirichlet", concentration=number)


@pytest.mark.slow
@pytest.mark.parametrize("gap", [0.0, 1e-9])
def test_near_ties_beside_noise_and_open_laws(gap):
    """Exact ties are split; what differs by less than the residuals that split them is not trusted."""
    ends = [(("s", name), {"goal": 1.0}) for name in "ab"]
    model = open_model(["s", "t"], [("s", "a"), ("s", "b"), ("t", "c")], [*ends, (("t", "c"), {"goal": 1.0})])
    noisy = [("s", "a", -1.0), ("s", "b", -1.0 - gap), Observation("t", "c", -1.0, 0.5)]
    found = bm.posterior(model, Dataset.from_pairs(model, noisy))
    assert found.trustworthy == (gap == 0.0)
    assert found.action_probability.value[0] == pytest.approx(0.5, abs=0.1)
    lost = open_model(["s", "t"], [("s", "a"), ("s", "b"), ("t", "c")], ends)
    seen = [("s", "a", -1.0), ("s", "b", -1.0 - gap), Observation("t", "c", -1.0, None, "goal")]
    again = asked(lost, Dataset.from_pairs(lost, seen), concentration=1.0)
    assert again.trustworthy == (gap == 0.0)


def test_large_problems_take_few_landings():
    """A law of a large problem is drawn as few landings, which a large concentration does not have."""
    target = asked(ONE, landed(ONE, -1.0, (3, 1)), concentration=100.0, samples=1024).target
    with pytest.raises(UnsupportedError, match=r"concentration is 100.*give at most 40"):
        by_sparse_walk(target, Budget(samples=8), "asked for")


@pytest.mark.slow
@pytest.mark.parametrize(("slip", "least", "most"), [(0.0, 0.0, 0.02), (0.1, 0.02, 1.0)])
def test_how_random_a_world_is(slip, least, most):
    """The inferred concentration after 100 episodes of deep sea 5 tells a deterministic world from a slippery one."""
    model = envs.deep_sea(5, slip=slip)
    agent = make_agent("manifold", model, {"laws": "dirichlet"})
    run_episodes(model, agent, 100, 0)
    _, laws, _ = close_laws(agent.memory, "dirichlet", all_rows=True)
    assert least < laws.moments[0] < most


def landing_only():
    """One state; `k` pays -1 and ends, of `n` only a landing is known."""
    pairs = [{"state": "a", "action": "k", "reward": -1.0, "next": {"g": 1.0}}, {"state": "a", "action": "n"}]
    problem = {"format": "bellmanifold.ssp/2", "goals": ["g"], "initial": {"a": 1.0}, "pairs": pairs}
    model = from_json(problem)
    return model, Dataset.from_pairs(model, [Observation("a", "k"), Observation("a", "n", next="g")])


@pytest.mark.parametrize("laws", ["deterministic", "dirichlet"])
def test_a_landing_without_a_reward_leaves_the_pair_free(laws):
    """Found by a user: the open reward was taken for 0, exactly. Then P(n) = P(theta > -1) = Phi(0.1)."""
    model, data = landing_only()
    summary = bm.posterior(model, data, laws=laws)
    free = model.pair_index["a", "n"]
    assert not summary.target.observed[free]
    assert summary.q_sd.value[free] == pytest.approx(10.0, rel=0.05)
    assert summary.action_probability.value[free] == pytest.approx(stats.norm.cdf(0.1), abs=4e-3)


def test_landings_without_any_reward_keep_their_evidence():
    """Nothing is solved, and still they say how random the world is: the Dirichlet-multinomial, and its posterior."""
    data = Dataset.from_pairs(ONE, [Observation("s", "stay", next=name) for name in ("s", "s", "goal")])
    found = asked(ONE, data)
    rows = np.geomspace(1e-3, 10.0, 20001)
    log_density = np.array([log_landings(a, (2, 1)) for a in rows])
    share = np.exp(log_density) * np.where(np.isin(np.arange(20001), (0, 20000)), 0.5, 1.0) / 20000
    mean = share @ rows / share.sum()
    assert float(found.log_evidence.value) == pytest.approx(np.log(share.sum()), abs=1e-3)
    assert found.to_dict()["concentration"]["mean"] == pytest.approx(mean, rel=1e-3)
    assert found.to_dict()["concentration"]["sd"] == pytest.approx(
        np.sqrt(share @ (rows - mean) ** 2 / share.sum()), rel=1e-2
    )
    paid = Observation("s", "exit", reward=-1.0, next="goal")
    both = asked(ONE, Dataset.from_pairs(ONE, [paid]), concentration=1.0).log_evidence
    more = asked(
        ONE,
        Dataset(
            ONE,
            *(np.append(getattr(data, n), v) for n, v in (("pair", 1), ("reward", -1.0), ("sd", np.nan), ("next", 1))),
        ),
        concentration=1.0,
    )
    assert float(more.log_evidence.value - both.value) == pytest.approx(log_landings(1.0, (2, 1)), abs=1e-3)
    alone = asked(ONE, data, concentration=1.0)
    assert float(alone.log_evidence.value) == pytest.approx(log_landings(1.0, (2, 1)))
    assert alone.to_dict()["concentration"] == {"mean": 1.0, "sd": 0.0}


def test_values_without_moments_are_told():
    """Under a prior that is flat over rewards a loop that may pay, and was never or once left, has heavy tails."""
    belief = [Observation("s", "exit", -1.0, 0.3, "goal")] * 3

    def warnings(reward, landings, **options):
        seen = [Observation("s", "stay", reward, 0.3, name) for name in landings]
        summary = asked(ONE, Dataset.from_pairs(ONE, seen + belief), samples=32768, **options)
        return " ".join(summary.warnings)

    assert "in s have no mean" in warnings(0.0, ["s"], prior_scale="flat")
    assert "in s have no standard deviation" in warnings(0.0, ["s", "goal"], prior_scale="flat")
    assert "have no" not in warnings(0.0, ["s", "goal", "goal", "goal"], prior_scale="flat")
    assert "have no" not in warnings(-5.0, ["s", "goal"], prior_scale="flat"), "it costs, whatever the noise"
    assert "have no" not in warnings(0.0, ["s"], prior_scale=10.0)
    assert "have no" not in warnings(0.0, ["s"], prior_scale="flat", discount=0.9)


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"prior_mean": 3.0, "prior_scale": "flat"}, ["prior_mean has no effect: the prior is flat over rewards"]),
        ({"epsilon": 0.1}, ["epsilon has no effect: every reward has an sd of its own"]),
        ({"noise_sd": 0.1}, ["noise_sd has no effect: every reward has an sd of its own"]),
        (
            {"laws": "dirichlet", "concentration": 1.0},
            [
                "laws has no effect: the problem leaves no law open",
                "concentration has no effect: no open law was observed",
            ],
        ),
        ({"epsilon": 0.0, "prior_mean": 1.0}, []),
    ],
)
def test_options_without_effect_are_told(options, told):
    model = envs.two_state()
    data = Dataset.from_pairs(model, [Observation("s1", action, -1.0, 0.5) for action in ("stay", "go")])
    options = {"proper_only": True} | options
    assert [w for w in bm.posterior(model, data, samples=1024, **options).warnings if "no effect" in w] == told


def test_a_kernel_without_a_tolerance_is_told():
    model = envs.two_state()
    found = bm.posterior(model, Dataset.complete(model), kernel="uniform")
    assert "kernel has no effect: epsilon is 0, so no equation is relaxed" in found.warnings


def test_concentrations_have_one_range():
    for end in (1e-12, 1e12):
        assert close_laws(landed(ONE, -1.0, (1, 1)), "dirichlet", end)[1].concentration.tolist() == [end]
    for found in ({"laws": "dirichlet", "concentration": 1e13}, {"laws": "dirichlet", "concentration": 1e-13}):
        with pytest.raises(BadInputError, match=r"give a number from 1e-12 to 1e\+12"):
            asked(ONE, landed(ONE, -1.0, (1, 1)), concentration=found["concentration"])
        with pytest.raises(BadInputError, match=r"give a number from 1e-12 to 1e\+12"):
            make_agent("manifold", envs.two_state(), found)


def test_repeats_under_other_noise_refuse_open_laws():
    """Their chains take given laws only; the mean law used to be taken for the law, without a word."""
    data = landed(ONE, -1.0, (2, 1))
    with pytest.raises(UnsupportedError, match="repeats under laplace noise need chains that take given transition"):
        asked(ONE, data, noise="laplace", noise_sd=0.1)
