"""Arguments of the wrong kind end in one line that says what they are and what to give, never in an AttributeError.

The calls run in a process of its own, without the checks of types that tests have.
"""

import json
import subprocess
import sys

import pytest

CALLS = {
    "posterior: list as data": 'bm.posterior(model, [("s1", "go")])',
    "posterior: dict as data": 'bm.posterior(model, {"s1": "go"})',
    "posterior: text as data": 'bm.posterior(model, "data.json")',
    "posterior: text as model": 'bm.posterior("env:two-state", data)',
    "posterior: environment as model": "bm.posterior(env, data)",
    "posterior: data and model exchanged": "bm.posterior(data, model)",
    "posterior: lambda as prior": "bm.posterior(model, data, prior=lambda q: 0.0)",
    "posterior: lambda as prior scale": "bm.posterior(model, data, prior_scale=lambda q: 0.0)",
    "posterior: text as epsilon": 'bm.posterior(model, data, epsilon="0.1")',
    "posterior: text as noise sd": 'bm.posterior(model, data, noise_sd="1")',
    "posterior: list as discount": "bm.posterior(model, data, discount=[0.9])",
    "posterior: text as seed": 'bm.posterior(model, data, seed="one")',
    "posterior: number as noise": "bm.posterior(model, data, noise=0.5, noise_sd=1.0)",
    "posterior: number as belief": "bm.posterior(model, data, reward_belief=-5.0)",
    "posterior: text as proper_only": 'bm.posterior(model, data, epsilon=1.0, proper_only="no")',
    "posterior: number as proper_only": "bm.posterior(model, data, epsilon=1.0, proper_only=1)",
    "posterior: text as costs_only": 'bm.posterior(model, data, reward_belief=(-5.0, 2.0), costs_only="yes")',
    "posterior: text as progress": 'bm.posterior(model, data, progress="yes")',
    "learn: text as progress": 'bm.learn(model, "q-learning", progress="yes")',
    "advise: text as progress": 'bm.advise(model, data, progress="yes")',
    "draw regret: a number": "bm.figures.draw_regret(3)",
    "draw regret: nothing": "bm.figures.draw_regret([])",
    "draw regret: text by label": 'bm.figures.draw_regret({"manifold": "text"})',
    "posterior: no seed": "bm.posterior(model, data, seed=None)",
    "posterior: three numbers as belief": "bm.posterior(model, data, reward_belief=(-5.0, 2.0, 1.0))",
    "posterior: impossible belief": "bm.posterior(model, data, reward_belief=(-5.0, 0.0))",
    "posterior: impossible sd of a pair": 'bm.posterior(model, data, prior={("s1", "go"): (0.0, -1.0)})',
    "evidence: text as scale": 'paper.evidence_curve(model, data, ["a"])',
    "evidence: negative scale": "paper.evidence_curve(model, data, [-1.0])",
    "belief: impossible": "data.with_belief(-5.0, 0.0)",
    "envs: half a row": "bm.envs.deep_sea(depth=2.5)",
    "envs: text as rows": 'bm.envs.deep_sea(depth="3")',
    "envs: text as rows of a swirl": 'bm.envs.swirl("3")',
    "envs: text as slip": 'bm.envs.grid(slip="0.1")',
    "envs: unknown convention": 'bm.envs.deep_sea(convention="mine")',
    "learn: agent made of nothing": "bm.learn(model, lambda: None)",
    "learn: policy without rng": "bm.learn(model, Silent())",
    "learn: text as replan": 'bm.learn(model, "manifold", replan="x")',
    "learn: name without prefix": 'bm.learn("deep-sea", "manifold")',
    "learn: environment without prefix": 'bm.learn("CliffWalking-v1", "manifold")',
    "learn: short policy": "bm.learn(bm.envs.deep_sea(3), Lost(), episodes=1, runs=1)",
    "solve: waiting is free": "bm.solve(gym_model)",
    "from_gymnasium: reference": 'bm.from_gymnasium("gym:CliffWalking-v1")',
    "parametrisation: exchanged": "Parametrisation(lambda theta: theta, 4)",
    "improper mass: numbers": "paper.identifiability.improper_mass_sweep(data, 0.1, 1.0, 1.0)",
    "from_arrays: text as discount": 'bm.from_arrays([[[1.0]]], [0.0], discount="0.9")',
    "from_arrays: number as name": "bm.from_arrays([[[1.0]]], [0.0], discount=0.9, states=[1])",
    "from_arrays: other first axis": 'bm.from_arrays([[[1.0]]], [0.0], discount=0.9, first="row")',
    "to_arrays: text as discount": 'model.to_arrays(discount="0.9")',
    "load_model: text as prune": 'bm.load_model("env:two-state", prune="yes")',
    "pruned: text as model": 'bm.pruned("env:two-state")',
    "posterior: half a point": "bm.posterior(model, data, samples=1.5)",
    "posterior: half a route": "bm.posterior(model, data, top=0.5)",
    "posterior: a seed between seeds": "bm.posterior(model, data, seed=0.5)",
    "chains: half a draw": "paper.sample_chains(model, data, Relaxed(0.5), draws=100.5)",
    "learn: half an episode": 'bm.learn(model, "q-learning", episodes=2.5)',
    "pairs: text as reward": 'bm.Dataset.from_pairs(model, [("s1", "go", "5")])',
    "pairs: text as sd": 'bm.Dataset.from_pairs(model, [bm.Observation("s1", "go", 1.0, "0.5")])',
    "posterior: number as engine": "bm.posterior(model, data, engine=3)",
    "advise: list as data": 'bm.advise(model, [("s1", "go")])',
    "advise: text as tolerance": 'bm.advise(model, data, tolerance="small")',
    "advise: text as the noise of a trial": 'bm.advise(model, data, trial_sd="small")',
    "evidence: number as scales": "paper.evidence_curve(model, data, 10.0)",
    "chains: list as data": "paper.sample_chains(model, [], Relaxed(0.5))",
    "chains: lambda as prior": "paper.sample_chains(model, data, Relaxed(0.5), prior=lambda theta: 0.0)",
    "chains: number as likelihood": "paper.sample_chains(model, data, 0.5)",
    "chains: lambda as family": "paper.sample_chains(model, data, Relaxed(0.5), lambda theta: theta)",
    "chains: text as chains": 'paper.sample_chains(model, data, Relaxed(0.5), chains="4")',
    "linear fit: list": "paper.identifiability.best_linear_fit([], np.ones((2, 1)))",
    "flat direction: text": 'paper.identifiability.flat_direction("data.json", np.array([0]))',
    "flat cones: data": "paper.identifiability.flat_cones(data)",
    "likelihood mass: list": "paper.identifiability.likelihood_mass([], np.array([0]), 1.0)",
    "improper mass: model": "paper.identifiability.improper_mass_sweep(model, [0.1], [1.0])",
    "manifold: model": "paper.hausdorff.tabular_manifold(model)",
    "check: text": 'bm.check("env:two-state")',
    "check: environment": "bm.check(env)",
    "solve: text": 'bm.solve("env:two-state")',
    "solve: list": "bm.solve([])",
    "solve: unknown method": 'bm.solve(model, "value")',
    "moves: tuple as move": 'bm.from_moves("x", {("A", "a"): (1.0, "goal")}, start="A")',
    "moves: text as successors": 'bm.from_moves("x", {("A", "a"): bm.Move(1.0, "goal")}, start="A")',
    "moves: text as reward": 'bm.from_moves("x", {("A", "a"): bm.Move("a", {"goal": 1.0})}, start="A")',
    "moves: no pair": 'bm.from_moves("x", {"A": bm.Move(1.0, {"goal": 1.0})}, start="A")',
    "moves: unknown start": 'bm.from_moves("x", {("A", "a"): bm.Move(1.0, {"goal": 1.0})}, start="C")',
    "moves: no name": 'bm.from_moves({("A", "a"): bm.Move(1.0, {"goal": 1.0})}, "A", "A")',
    "discounted: text": 'model.discounted("0.9")',
    "belief: text": 'data.with_belief("a", 1.0)',
    "draw: summary as problem": "bm.figures.draw(bm.posterior(model, data))",
    "draw: data as pies": "bm.figures.draw(model, data)",
    "draw advice: data as policy": "bm.figures.draw_advice(model, data)",
    "learn: class as environment": "bm.learn(type(env), 'q-learning')",
    "learn: an agent that names actions": "bm.learn(model, Naming())",
    "policy: a state is missing": "bm.posterior(model, data).policy_probability({})",
    "policy: unknown action": 'bm.posterior(model, data).policy_probability({"s1": "fly"})',
    "pairs: number as state": 'bm.Dataset.from_pairs(gym_model, [(0, "1")])',
    "pairs: number as action": 'bm.Dataset.from_pairs(gym_model, [("0", 1)])',
    "pairs: number as next": 'bm.Dataset.from_pairs(gym_model, [bm.Observation("0", "1", next=4)])',
    "pairs: list as state": 'bm.Dataset.from_pairs(model, [(["s1"], "go")])',
    "pairs: text as observation": 'bm.Dataset.from_pairs(model, ["go"])',
    "pairs: number as observation": "bm.Dataset.from_pairs(model, [3])",
    "pairs: number as observations": "bm.Dataset.from_pairs(model, 3)",
    "pairs: no model": 'bm.Dataset.from_pairs([("s1", "go")], [])',
    "data: lists": "bm.Dataset(model, [0], [-1.0])",
    "data: text as model": 'bm.Dataset("m", np.array([0]), np.array([-1.0]))',
    "complete: text": 'bm.Dataset.complete("env:two-state")',
    "learn: number as environment": 'bm.learn(3, "manifold")',
    "learn: list as environment": 'bm.learn([], "manifold")',
    "learn: unknown text as environment": 'bm.learn("FrozenLake", "manifold")',
    "learn: number as agent": "bm.learn(model, 3)",
    "learn: object without methods as agent": "bm.learn(model, object())",
    "learn: agent that makes nothing": "bm.learn(model, lambda model: None)",
    "learn: text as episodes": 'bm.learn(model, "q-learning", episodes="ten")',
    "learn: own agent with an option": "bm.learn(model, Lazy(model), epsilon=0.1)",
    "learn: policy of another state": "bm.learn(bm.envs.deep_sea(2), Lost(), episodes=1, runs=1)",
    "from_gymnasium: text": 'bm.from_gymnasium("FrozenLake-v1")',
    "from_gymnasium: model": "bm.from_gymnasium(model)",
    "to_gymnasium: text": 'bm.to_gymnasium("env:two-state")',
    "from_networkx: number as cost": "bm.from_networkx(model.to_networkx(), cost=3)",
    "from_networkx: number as name": "bm.from_networkx(model.to_networkx(), cost='cost', name=3)",
    "load_model: environment": "bm.load_model(env)",
    "load_model: number": "bm.load_model(3)",
    "load_data: exchanged": 'bm.load_data(model, "data.json")',
    "load_data: no model": 'bm.load_data("data.json", "model.json")',
    "write_data: model": 'bm.write_data(model, "out.json")',
    "write_problem: data": 'bm.write_problem(data, "out.json")',
    "write_problem: number": "bm.write_problem(model, 3)",
}

PROGRAM = """
import json, sys
import gymnasium, numpy as np
import bellmanifold as bm
import bellmanifold_paper as paper
from bellmanifold.errors import BellmanifoldError
from bellmanifold_paper.parametrisation import Parametrisation
from bellmanifold_paper.engines.gradient import Relaxed

class Lazy:
    def __init__(self, model):
        self.first = model.pair_start[:-1]
    def policy(self, rng):
        return self.first
    def observe(self, pairs, rewards):
        pass

class Lost(Lazy):
    def __init__(self):
        self.first = [5, 5, 5]

class Silent(Lazy):
    def __init__(self):
        pass
    def policy(self):
        return []

class Naming(Lazy):
    def __init__(self):
        self.first = {"s1": "go"}

model, env = bm.envs.two_state(), gymnasium.make("FrozenLake-v1")
gym_model, data = bm.from_gymnasium(env), bm.Dataset.complete(bm.envs.two_state())
said = {}
for name, call in json.load(sys.stdin).items():
    try:
        eval(call)
        said[name] = ["nothing", ""]
    except BellmanifoldError as error:
        said[name] = ["clear", str(error)]
    except Exception as error:
        said[name] = [type(error).__name__, str(error)]
print(json.dumps(said))
"""


@pytest.fixture(scope="module")
def said(tmp_path_factory):
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        input=json.dumps(CALLS),
        capture_output=True,
        text=True,
        check=True,
        cwd=tmp_path_factory.mktemp("wrong"),
    )
    return json.loads(done.stdout)


@pytest.mark.parametrize("name", CALLS)
def test_wrong_kinds_end_in_one_clear_line(said, name):
    kind, message = said[name]
    assert kind == "clear", f"{CALLS[name]}: {kind}: {message}"
    assert "\n" not in message
    assert len(message) < 300
    assert ":" in message, "what is wrong, and the remedy"


def test_they_name_the_remedy(said):
    assert "bm.Dataset.from_pairs(model, [...])" in said["posterior: list as data"][1]
    assert said["from_arrays: text as discount"][1] == 'from_arrays: discount is the string "0.9": give a number'
    assert said["from_arrays: number as name"][1] == "from_arrays: states[0] is the number 1: names are strings"
    assert said["from_arrays: other first axis"][1].endswith('first is the string "row": give "action" or "state"')
    assert said["load_model: text as prune"][1] == 'prune is the string "yes": give True or False'
    assert said["pairs: number as state"][1] == 'observations[0]: state is the number 0: names are strings, write "0"'
    assert 'gymnasium.make("FrozenLake-v1")' in said["from_gymnasium: text"][1]
    assert "bm.load_model" in said["solve: text"][1]
    assert said["posterior: text as proper_only"][1] == 'proper_only is the string "no": give True or False'
    assert said["posterior: no seed"][1] == "seed is None: give a whole number"
    assert said["posterior: three numbers as belief"][1] == "reward_belief has 3 numbers: give (mean, sd), two numbers"
    assert said["posterior: impossible belief"][1].startswith("reward_belief: sd is 0.0: give a positive number")
    assert said["belief: impossible"][1].startswith("sd is 0.0: give a positive number")
    assert said["posterior: impossible sd of a pair"][1].startswith('prior: the sd of ("s1", "go") is -1.0: ')
    assert said["evidence: text as scale"][1] == 'prior_scales[0] is the string "a": give a number'
    assert said["envs: half a row"][1] == "depth is 2.5: give a whole number"
    assert "policy(rng)" in said["learn: policy without rng"][1]
    assert said["learn: text as replan"][1] == 'replan is "x": give True or False'
    assert said["learn: name without prefix"][1].endswith("write env:deep-sea")
    assert said["learn: environment without prefix"][1].endswith("write gym:CliffWalking-v1")
    assert "has 3 entries for 6 states" in said["learn: short policy"][1]
    assert "(bm.check says more; discount=0.99 solves" in said["solve: waiting is free"][1]
    assert 'gymnasium.make("CliffWalking-v1")' in said["from_gymnasium: reference"][1]
    assert "log_density and draw" in said["chains: lambda as prior"][1]
