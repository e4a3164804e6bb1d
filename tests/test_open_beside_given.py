"""Open laws beside loops of given laws: improper policies have their share of the posterior, and advice refuses them.

In the first example s has two actions. "stay" stays (its law is given), "go" is open and was once seen to end. Both
paid -1 with noise of sd 1. A policy that plays "stay" never arrives. With theta = (x, y), and p = P(go leads back),

    x >= y:  g_stay = x - x = 0,  g_go = y - p x,        x < y:  g_stay = x - y,  g_go = (1 - p) y,

so for every p the weights are those of Gaussians, and the improper mass is a sum over a grid of x, y and nodes in p.
The other problems are random, and compared with draws from the prior, weighed by the likelihood.
"""

import json

import numpy as np
import pytest
from open_quadrature import beta_nodes, open_model
from scipy.stats import norm

import bellmanifold as bm
from bellmanifold.errors import UnsupportedError
from bellmanifold.posteriors.budget import Budget
from bellmanifold.posteriors.inference import posterior_of
from bellmanifold.problem.dataset import Dataset

NAN = float("nan")
OPTIONS = {"noise_sd": 1.0, "laws": "dirichlet", "concentration": 1.0, "prior_scale": 3.0}
FLAGS = ("--noise-sd", "1", "--laws", "dirichlet", "--concentration", "1", "--prior-scale", "3")
STAYS = open_model(["s"], [("s", "go"), ("s", "stay")], [(("s", "stay"), {"s": 1.0})])
SEEN = Dataset(STAYS, np.array([1, 0]), np.array([-1.0, -1.0]), np.full(2, NAN), np.array([-1, 1]))


def exact_mass(width=1.0, scale=3.0, concentration=1.0, grid=801):
    """The improper mass of the first example."""
    t = np.linspace(-8 * scale, 8 * scale, grid)
    x, y = t[:, None, None], t[None, :, None]
    p, _, share = beta_nodes(concentration / 2, 1 + concentration / 2, 40)
    best = np.maximum(x, y)
    weight = norm.pdf(x / scale) * norm.pdf(y / scale) * norm.pdf(x - best, -1, width)
    weight = weight * norm.pdf(y - p * best, -1, width) @ share
    stays = np.where(x >= y, 1.0, 0.0)[:, :, 0] * np.where(x == y, 0.5, 1.0)[:, :, 0]
    return float((weight * stays).sum() / weight.sum())


def test_the_improper_mass_of_a_given_loop_beside_an_open_law():
    """A standard error of 4 bounds the difference: false-alarm rate 6e-5 at most; the seed is fixed."""
    summary = bm.posterior(STAYS, SEEN, samples=2**16, **OPTIONS)
    exact = exact_mass()
    assert exact == pytest.approx(0.614, abs=1e-3)
    assert summary.trustworthy
    assert abs(float(summary.improper_mass.value) - exact) < 4 * float(summary.improper_mass.se)
    assert summary.improper_mass.value == summary.action_probability["s", "stay"].value
    assert any("proper_only=True excludes them" in text for text in summary.warnings)


@pytest.mark.slow
def test_the_same_under_a_tolerance_and_by_chains():
    """Chains have standard errors of about 0.005; 5 of them, so a false alarm has a probability below 1e-4."""
    options = OPTIONS | {"noise_sd": None, "epsilon": 0.5}
    summary = bm.posterior(STAYS, SEEN, **options)
    exact = exact_mass(width=0.5)
    assert abs(float(summary.improper_mass.value) - exact) < 4 * float(summary.improper_mass.se)
    walked = posterior_of(summary.target, Budget(cut=0, rounds=1))
    assert "chains" in walked.reason
    assert abs(float(walked.improper_mass.value) - exact) < 5 * float(walked.improper_mass.se)
    assert walked.improper_mass.se < 0.02


def random_problem(seed):
    """Pairs of one or two states: given laws (the first pair's may be a loop), open ones, and pairs never tried."""
    rng = np.random.default_rng(seed)
    states = ["s", "t"][: int(rng.integers(1, 3))]
    pairs = [(state, f"a{k}") for state in states for k in range(int(rng.integers(2, 4)))]
    kinds = rng.choice(["given", "open", "unseen"], len(pairs), p=[0.5, 0.3, 0.2])
    kinds[0], kinds[-1] = "given", "open"
    names, laws, seen = [*states, "goal"], {}, []
    for pair, kind in zip(pairs, kinds, strict=True):
        if kind == "given" and (rng.random() < 0.7 or pair == pairs[0]):
            at_once = rng.random() < 0.6 or len(states) == 1
            laws[pair] = {str(rng.choice(states)): 1.0} if at_once else {"s": 0.5, "t": 0.5}
        elif kind == "given":
            laws[pair] = {"goal": 0.4, pair[0]: 0.6}
        for _ in range(0 if kind == "unseen" else int(rng.integers(1, 3))):
            own = laws.get(pair)
            landing = rng.choice(list(own), p=list(own.values())) if own else rng.choice(names)
            seen.append((pairs.index(pair), float(rng.normal(-0.5, 1.0)), names.index(str(landing))))
    model = open_model(states, pairs, laws.items())
    pair, reward, landing = (np.array(column) for column in zip(*seen, strict=True))
    return Dataset(model, pair, reward, np.full(len(pair), NAN), landing), laws


def weighed_prior(data, laws, seed, draws=2**17, batches=8):
    """The improper mass from draws of theta and p from their prior, weighed by the likelihood; with its error."""
    rng, model = np.random.default_rng([seed, 1]), data.model
    states, start = model.n_states, model.pair_start
    names = [model.state_name(k) for k in range(states + 1)]
    sums = np.zeros((batches, 2))
    for batch in range(batches):
        theta = 3.0 * rng.standard_normal((draws, model.n_pairs))
        greedy = np.stack([start[k] + theta[:, start[k] : start[k + 1]].argmax(axis=1) for k in range(states)], axis=1)
        value = np.append(np.take_along_axis(theta, greedy, axis=1), np.zeros((draws, 1)), axis=1)
        log_weight, leads = np.zeros(draws), np.ones((model.n_pairs, states + 1), dtype=bool)
        for pair in np.unique(data.pair):
            seen = data.pair == pair
            if (law := laws.get(model.pair_name(pair))) is not None:
                prob = np.array([law.get(name, 0.0) for name in names])
                leads[pair] = prob > 0
            else:
                count = np.bincount(data.next[seen], minlength=states + 1)
                prob = rng.dirichlet(count + 1.0 / (states + 1), draws)
            gap = theta[:, pair] - (value * prob).sum(axis=1)
            log_weight -= 0.5 * ((gap[:, None] - data.reward[seen]) ** 2).sum(axis=1)
        arrives = np.zeros((draws, states + 1), dtype=bool)
        arrives[:, -1] = True
        for _ in range(states):
            arrives[:, :-1] |= (leads[greedy] & arrives[:, None]).any(axis=2)
        weight = np.exp(log_weight)
        sums[batch] = weight.sum(), (weight * ~arrives.all(axis=1)).sum()
    share = sums[:, 1] / sums[:, 0]
    return float(share.mean()), float(share.std(ddof=1) / np.sqrt(batches))


@pytest.mark.parametrize("seed", [1, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(2, 22))])
def test_random_problems_agree_with_weighed_draws_from_the_prior(seed):
    """5 standard errors (those of the oracle have 7 degrees of freedom): false-alarm rate at most 0.002 a problem."""
    data, laws = random_problem(seed)
    summary = bm.posterior(data.model, data, samples=2**16, **OPTIONS)
    mass, se = weighed_prior(data, laws, seed)
    away = abs(float(summary.improper_mass.value) - mass)
    assert away <= 5 * float(np.hypot(se, summary.improper_mass.se))


def test_advice_refuses_policies_that_never_arrive(cli, tmp_path):
    problem, observed = tmp_path / "problem.json", tmp_path / "data.json"
    pairs = [
        {"state": "s", "action": "stay", "reward": -1, "next": {"s": 1.0}},
        {"state": "s", "action": "go", "reward": -1},
    ]
    whole = {"format": "bellmanifold.ssp/2", "goals": ["goal"], "initial": {"s": 1.0}, "pairs": pairs}
    problem.write_text(json.dumps(whole))
    seen = [{"state": "s", "action": "stay"}, {"state": "s", "action": "go", "next": "goal"}]
    observed.write_text(
        json.dumps({"format": "bellmanifold.data/2", "observations": [{**one, "reward": -1} for one in seen]})
    )
    for flags in ((), ("--json",)):
        code, out, err = cli("advise", str(problem), str(observed), *FLAGS, *flags)
        assert (code, out) == (3, "")
        assert "never reach the goal" in err
        assert "--proper-only" in err
    code, out, _ = cli("advise", str(problem), str(observed), *FLAGS, "--proper-only", "--json")
    found = json.loads(out)
    assert code == 0
    assert found["best"]["policy"] == {"s": "go"}
    assert found["best"]["value"]["mean"] < 0


def test_advice_in_python_refuses_it_too():
    with pytest.raises(UnsupportedError, match="proper_only=True"):
        bm.advise(STAYS, SEEN, tolerance=0.1, **OPTIONS)
