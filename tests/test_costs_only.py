"""`--costs-only`: payments are normals truncated at 0, so the answers are those of plain draws and shortest paths."""

import json

import jax.numpy as jnp
import numpy as np
import pytest
from scipy.stats import truncnorm

import bellmanifold as bm
from bellmanifold import envs
from bellmanifold.envs.building import Move, from_moves
from bellmanifold.errors import BadInputError, UnsupportedError
from bellmanifold.posteriors.costs_only import below


def triangle(slip=0.3):
    """Three junctions; the driver may miss the turn, and to and fro between a and b is a loop."""
    ways = {"a": ("b", "c"), "b": ("a", "goal"), "c": ("a", "goal", "b")}
    moves = {}
    for here, after in ways.items():
        for there in after:
            others = [other for other in after if other != there]
            ends = {there: 1.0 - slip} | {other: slip / len(others) for other in others}
            moves[here, there] = Move(-5.0, ends)
    return from_moves("triangle", moves, start="a")


def lingering():
    """One state: staying is left once in 50 moves, and is cheaper than going."""
    return from_moves(
        "lingering",
        {("s", "stay"): Move(-1.0, {"s": 0.98, "goal": 0.02}), ("s", "go"): Move(-9.0, {"goal": 1.0})},
        start="s",
    )


def plain_answers(model, mean, sd, draws, seed):
    """Truncated normal payments, then value iteration from 0 (an upper bound) in every draw: q, mean and error."""
    law = np.zeros((model.n_pairs, model.n_states + 1))
    for pair in range(model.n_pairs):
        own = slice(model.next_start[pair], model.next_start[pair + 1])
        np.add.at(law[pair], model.next_state[own], model.next_prob[own])
    rng = np.random.default_rng(seed)
    payment = truncnorm.rvs(-np.inf, -mean / sd, size=(draws, model.n_pairs), random_state=rng) * sd + mean
    value = np.zeros((draws, model.n_states))
    while True:
        q = payment + value @ law[:, :-1].T
        after = np.maximum.reduceat(q, model.pair_start[:-1], axis=1)
        change, value = np.abs(after - value).max(), after
        if change < 1e-10:
            return q


def agree(summary, q, times):
    """Means, standard deviations and probabilities within some standard errors."""
    model, draws = summary.target.model, len(q)
    best = np.maximum.reduceat(q, model.pair_start[:-1], axis=1)[:, model.pair_state]
    won = (q >= best).mean(axis=0)
    sd = q.std(axis=0)
    kurtosis = ((q - q.mean(axis=0)) ** 4).mean(axis=0) / sd**4
    for found, value, se in (
        (summary.q_mean, q.mean(axis=0), sd / np.sqrt(draws)),
        (summary.q_sd, sd, sd * np.sqrt((kurtosis - 1.0) / (4.0 * draws))),
        (summary.action_probability, won, np.sqrt(won * (1.0 - won) / draws) + 3.0 / draws),
    ):
        assert (np.abs(found.value - value) <= times * np.hypot(found.se, se)).all()


@pytest.mark.parametrize(
    ("model", "belief"),
    [
        pytest.param(triangle(), (-2.0, 1.5), id="triangle"),
        pytest.param(lingering(), (-1.0, 2.0), id="lingering"),
        pytest.param(envs.roads(slip=0.2), (-5.0, 2.0), id="roads", marks=pytest.mark.slow),
    ],
)
def test_against_plain_draws_and_shortest_paths(model, belief):
    """At most 396 numbers, each within 5 standard errors (those of the library have 31 degrees of freedom).

    False-alarm rate: at most 0.01 for the roads, 5e-4 for the others.
    """
    draws = 1500 if model.name == "roads" else 40000
    data = bm.Dataset.from_pairs(model, [])
    summary = bm.posterior(model, data, reward_belief=belief, costs_only=True, samples=2**15)
    assert summary.trustworthy
    assert (summary.q_mean.value < 0).all()
    assert summary.improper_mass.value == 0
    agree(summary, plain_answers(model, *belief, draws, seed=1), 5.0)


def test_noisy_trials_are_combined_and_truncated():
    """A trial of 0.4 +- 1 beside a belief of -2 +- 1.5; 5 standard errors of 23 numbers: false-alarm rate 3e-4."""
    model = triangle()
    data = bm.Dataset(model, np.array([0]), np.array([0.4]), np.array([1.0]), np.array([-1]))
    summary = bm.posterior(model, data, cost_belief=(2.0, 1.5), costs_only=True, samples=2**15)
    precision = np.full(model.n_pairs, 1 / 1.5**2)
    mean = np.full(model.n_pairs, -2.0)
    precision[0] += 1.0
    mean[0] = (-2.0 / 1.5**2 + 0.4) / precision[0]
    agree(summary, plain_answers(model, mean, precision**-0.5, 40000, seed=2), 5.0)


def test_draws_and_advice_are_those_of_the_truncated_posterior():
    model = triangle()
    summary = bm.posterior(model, bm.Dataset.from_pairs(model, []), cost_belief=(2.0, 1.5), costs_only=True)
    assert (summary.draws.q.values < 0).all()
    assert summary.to_dict()["costs_only"] is True
    assert summary.log_evidence is None
    advice = bm.advise(model, bm.Dataset.from_pairs(model, []), cost_belief=(2.0, 1.5), costs_only=True)
    assert -100 < float(advice.decision.value) < 0
    assert 0 < float(advice.expected_loss) < 100
    assert advice.gain is None, "the closed form is that of Gaussians that are not truncated"
    assert all(trial["gain"] is None for trial in advice.to_dict()["trials"])
    assert "rewards are truncated at 0" in " ".join(advice.sentences())
    assert "Next" not in " ".join(advice.sentences())


def test_truncated_normals_keep_their_digits():
    """Quantiles against SciPy's, far out and where nearly nothing, or nearly everything, is cut off."""
    x = np.array([-30.0, -8.0, -1.0, 0.0, 1e-9, 1.0, 6.0, 8.0])
    for most in (-5.0, -1.0, 0.0, 2.5, 7.0):
        found = np.asarray(below(jnp.asarray(x[None]), jnp.array([[most]])))[0]
        exact = truncnorm.ppf(0.5, -np.inf, most)
        assert found[3] == pytest.approx(exact, rel=1e-9, abs=1e-12)
        assert (np.diff(found) >= 0).all()
        assert found[-1] <= most
        assert found[0] == pytest.approx(x[0], abs=0.6)
    unbounded = below(jnp.asarray(x[None]), jnp.array([[np.inf]]))
    assert np.array_equal(np.asarray(unbounded)[0], x), "without a bound nothing changes"


def refusals():
    model = triangle()
    nothing = bm.Dataset.from_pairs(model, [])
    paid = bm.Dataset(model, np.array([0]), np.array([0.5]), np.array([0.0]), np.array([-1]))
    belief = {"cost_belief": (2.0, 1.5)}
    yield "exact", (model, paid), belief, BadInputError, 'reward of pair ."a", "b". is 0.5.*leave costs_only out'
    yield "sign", (model, nothing), {"cost_belief": (-50.0, 1.0)}, BadInputError, "50 with sd 1, leaves nothing at or"
    yield "scale", (model, nothing), {"prior_scale": 3.0}, UnsupportedError, 'prior_scale="flat" or cost_belief'
    yield "infer", (model, nothing), belief | {"infer_noise": True}, UnsupportedError, "inferred: give noise_sd"
    laplace = {"prior_scale": "flat", "noise_sd": 1.0, "noise": "laplace"}
    yield "noise", (model, bm.Dataset.complete(model)), laplace, UnsupportedError, "not laplace noise: use gaussian"
    yield "epsilon", (model, nothing), belief | {"epsilon": 0.1}, UnsupportedError, "no tolerance: leave epsilon out"
    yield "engine", (model, nothing), belief | {"engine": "nuts"}, UnsupportedError, "engine"
    both = {"cost_belief": (2.0, 1.5), "reward_belief": (-2.0, 1.5)}
    yield "both", (model, nothing), both, BadInputError, "opposite signs: leave one of the two out"


@pytest.mark.parametrize(
    ("arguments", "options", "kind", "told"), [pytest.param(*rest, id=name) for name, *rest in refusals()]
)
def test_refusals(arguments, options, kind, told):
    with pytest.raises(kind, match=told):
        bm.posterior(*arguments, costs_only=True, **options)


def test_the_command_line(cli, tmp_path):
    data = tmp_path / "data.json"
    data.write_text('{"format": "bellmanifold.data/1", "observations": []}')
    model = "env:grid?rows=2&columns=2&slip=0.3"
    shared = (model, str(data), "--samples", "32768")
    code, out, _ = cli("posterior", *shared, "--cost-belief", "5,2", "--costs-only", "--json")
    assert code == 0
    found = json.loads(out)
    assert found["costs_only"] is True
    code, out, _ = cli("posterior", *shared, "--reward-belief", "-5,2", "--costs-only", "--json")
    of_rewards = json.loads(out) | {"reason": found["reason"]}
    assert of_rewards == found, "the same belief in the other sign"
    code, out, _ = cli("posterior", *shared, "--cost-belief", "5,2", "--costs-only")
    assert "flat prior over costs, no move pays, proper policies only" in out
    code, out, err = cli("posterior", *shared, "--cost-belief", "5,2", "--reward-belief", "-5,2")
    assert (code, out) == (2, "")
    assert "--reward-belief and --cost-belief say the same" in err
    code, out, err = cli("posterior", *shared, "--cost-belief", "5")
    assert (code, out) == (2, "")
    assert "--cost-belief is" in err
    assert "such as 5,2" in err
    code, out, err = cli("posterior", *shared, "--cost-belief", "5,0")
    assert (code, out) == (2, "")
    assert "sd is 0.0: give a positive number" in err
    code, out, err = cli("posterior", *shared, "--prior-scale", "3", "--costs-only")
    assert (code, out) == (3, "")
    assert "--cost-belief" in err
