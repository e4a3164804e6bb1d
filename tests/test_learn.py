"""Measures on episodes made by hand, several runs together, and the command."""

import itertools
import json
import os
import subprocess
import sys

import gymnasium
import numpy as np
import pytest
from problems import all_policies, chain, random_problem
from test_agents import Masked
from toy_agents import PlainSettings

import bellmanifold as bm
from bellmanifold import envs
from bellmanifold.agents.registry import AgentKind, find_agent
from bellmanifold.envs.building import Move, from_moves, with_action_order
from bellmanifold.errors import BadInputError, UnsupportedError
from bellmanifold.learning.episodes import run_episodes
from bellmanifold.learning.metrics import Evaluator, find_optimum, first_episode, no_optimum, solved_episode, spread
from bellmanifold.learning.run import play_run, play_seed
from bellmanifold.mdp.checks import assumption_2
from bellmanifold.mdp.graph import is_proper
from bellmanifold.mdp.solver import solve


class Script:
    """Plays given policies one after the other."""

    def __init__(self, policies):
        self.policies = itertools.cycle(policies)

    def policy(self, rng):
        return next(self.policies)

    def observe(self, pairs, rewards):
        pass


class Anything:
    """Plays any policy."""

    def __init__(self, model):
        self.model = model

    def policy(self, rng):
        return rng.integers(self.model.pair_start[:-1], self.model.pair_start[1:])

    def observe(self, pairs, rewards):
        pass


def scripted(*named):
    """An agent that plays, in turn, the same action in every state: an AgentKind for `play_run`."""

    def make(model, settings):
        index = model.pair_index
        return Script([np.array([index[(state, choose(state))] for state in model.states]) for choose in named])

    return AgentKind("script", "plays what it is told", PlainSettings, make)


def left(state):
    return "left"


def right(state):
    return "right"


def test_regret_of_episodes_made_by_hand():
    """Deep sea of depth 3: right forever is optimal, 0.85; left forever earns 3 times 0.05."""
    found = play_run(envs.deep_sea(3), scripted(left, right, left), 4, seed=0)
    assert found.optimal_value == pytest.approx(0.85)
    np.testing.assert_allclose(found.regret, [0.7, 0.0, 0.7, 0.7], atol=1e-12)
    np.testing.assert_allclose(found.expected_regret, found.regret, atol=1e-12)
    assert found.optimal.tolist() == [False, True, False, False]
    assert found.first_optimal_episode == 2
    assert found.reached_goal.all()
    np.testing.assert_allclose(found.coverage, np.array([3, 6, 6, 6]) / 12)
    assert found.all_pairs_episode is None
    assert found.solved_episode is None
    assert found.moves.tolist() == [3, 3, 3, 3]


def test_regret_of_a_loop_is_what_was_collected_and_its_expectation_is_undefined():
    """Two-state problem: staying pays -1 and repeats; the optimum is -1, so the empirical regret is 0.

    Completed, the episode goes on from where it stopped and pays another -1.
    """
    found = play_run(envs.two_state(), scripted(lambda s: "stay", lambda s: "go"), 2, seed=0)
    np.testing.assert_allclose(found.regret, [0.0, 0.0])
    np.testing.assert_allclose(found.completed_regret, [1.0, 0.0])
    assert np.isnan(found.expected_regret[0])
    assert found.expected_regret[1] == 0.0
    assert found.reached_goal.tolist() == [False, True]
    assert found.optimal.tolist() == [False, True]
    assert found.all_pairs_episode == 2


def test_giving_up_does_not_pay(rng):
    """Random policies on deterministic problems: completed regret is the sum of what each move loses, never negative.

    V*(first) - sum of rewards - V*(last) = sum of (V*(s) - r - V*(next)); only the start is random.
    """
    tried = 0
    for _ in range(20):
        model = random_problem(rng, states=5, actions=2, successors=1)
        best = find_optimum(model)
        if best.reason is not None:
            continue
        script = AgentKind("script", "plays any policy", PlainSettings, lambda m, s: Anything(m))
        found = play_run(model, script, 30, seed=0)
        tried += 1
        first = best.value[[model.pair_state[episode.pairs[0]] for episode in found.played]]
        assert (found.completed_regret + first - best.at_start > -1e-12).all()
        np.testing.assert_allclose(
            found.completed_regret[found.reached_goal], found.regret[found.reached_goal], atol=1e-12
        )
    assert tried >= 3


def test_completed_regret_of_episodes_that_are_cut_off():
    """A policy that walks into the wall of CliffWalking: the loop ends the episode after one move at -1."""
    learning = bm.learn("gym:CliffWalking-v1", "psrl", episodes=5, runs=2)
    answer = learning.to_dict()
    assert answer["cumulative_completed_regret_mean"][-1] >= answer["cumulative_regret_mean"][-1] - 1e-9
    assert all(x >= 0 for x in answer["cumulative_completed_regret_mean"])
    assert len(answer["cumulative_completed_regret_sd"]) == 5


def test_expected_regret_averages_the_empirical_one():
    """2,000 slippery episodes of right but for the first move: within 5 standard errors (false alarm 6e-7)."""
    choose = scripted(lambda state: "left" if state == "0,0" else "right")
    found = play_run(envs.deep_sea(3, slip=0.2), choose, 2000, seed=0)
    error = found.regret.std() / np.sqrt(2000)
    assert abs(found.regret.mean() - found.expected_regret[0]) < 5 * error
    assert found.expected_regret[0] > 0


def test_values_of_policies_against_the_dense_chain(rng):
    finite = 0
    for _ in range(25):
        model = random_problem(rng, states=4, actions=2)
        evaluator = Evaluator(model, no_optimum(model, "not asked for"))
        for policy in all_policies(model):
            matrix = chain(model, policy)
            arrives = np.linalg.matrix_power(matrix, 4000)[:-1, -1]
            start = np.flatnonzero(model.initial)
            if (arrives[start] > 1 - 1e-6).all():
                inner = matrix[:-1, :-1]
                keep = np.flatnonzero(arrives > 1 - 1e-6)
                reward = model.reward[policy][keep]
                value = np.linalg.solve(np.eye(len(keep)) - inner[np.ix_(keep, keep)], reward)
                assert evaluator.value(policy) == pytest.approx(model.initial[keep] @ value, abs=1e-8)
                finite += 1
            else:
                assert evaluator.value(policy) == -np.inf
    assert finite > 50


def test_only_what_the_policy_visits_counts():
    """Always right, but in the swirl's far corner in circles: the value is finite, the start never comes there."""
    model = envs.swirl(5)
    policy = np.array([model.pair_index[(s, "right")] for s in model.states])
    policy[model.state_index["4,1"]] = model.pair_index[("4,1", "left")]
    assert not is_proper(model, policy)
    evaluator = Evaluator(model)
    assert evaluator.value(policy) == pytest.approx(0.85)
    policy[[model.state_index[s] for s in ("0,0", "1,0", "2,0", "3,0")]] -= 1
    assert [model.pair_name(i)[1] for i in policy[:2]] == ["left", "left"]
    assert evaluator.value(policy) == -np.inf


def test_optimality_tolerates_rounding_only():
    evaluator = Evaluator(envs.deep_sea(5))
    best = evaluator.optimum.at_start
    assert evaluator.is_optimal(best - 1e-10)
    assert not evaluator.is_optimal(best - 1e-8)
    assert not evaluator.is_optimal(-np.inf)
    free = from_moves("free", {("a", "x"): Move(1.0, {"b": 1.0}), ("b", "y"): Move(-1.0, {"goal": 1.0})}, "a")
    assert Evaluator(free).is_optimal(-1e-16)


def test_pairs_that_cannot_be_reached_do_not_count():
    moves = {("a", "x"): Move(-1.0, {"goal": 1.0}), ("island", "y"): Move(-1.0, {"goal": 1.0})}
    moves |= {("island", "stay"): Move(0.0, {"island": 1.0})}
    model = from_moves("island", moves, start="a")
    assert not assumption_2(model).holds
    best = find_optimum(model)
    assert (best.at_start, best.reason) == (-1.0, None)
    np.testing.assert_array_equal(best.value, [-1.0, np.nan, 0.0])
    found = play_run(model, "bayes-td", 3, seed=0)
    assert found.all_pairs_episode == 1
    assert found.coverage.tolist() == [1.0] * 3


def test_a_problem_without_an_optimum_is_learnt_all_the_same():
    learning = bm.learn(bm.load_model("gym:FrozenLake-v1"), "q-learning", episodes=3, runs=2)
    answer = learning.to_dict()
    assert answer["optimal_value"] is None
    assert answer["cumulative_regret_mean"] == [None] * 3
    assert answer["cumulative_completed_regret_mean"] == [None] * 3
    assert answer["first_optimal_episode"] == [None, None]
    assert answer["optimal_mean"] == [None] * 3
    assert "there is no optimum to compare with: wandering" in answer["messages"][0]


def test_without_an_optimum_nothing_is_said_about_it(cli):
    code, out, _ = cli("learn", "gym:FrozenLake-v1", "--agent", "q-learning", "--episodes", "3", "--runs", "1")
    assert code == 0
    assert [line.split()[-1] for line in out.splitlines()[-4:-1]] == ["unknown"] * 3


def test_first_and_solved_episodes():
    assert first_episode(np.array([False, False])) is None
    assert solved_episode(np.array([False])) == 1
    assert solved_episode(np.array([True] * 9 + [False])) is None, "9 of 10 is not fewer than 90%"
    assert solved_episode(np.array([True] * 9 + [False] * 2)) == 11
    assert solved_episode(np.array([True] * 100)) is None


def test_bad_episodes_are_those_that_leave_the_diagonal():
    """bsuite counts a left move on the diagonal; after 2 bad and 1 good episodes fewer than 90% are bad."""
    model = envs.deep_sea(4, convention="bsuite")

    def late(state):
        return "left" if state == "3,3" else "right"

    def after(state):
        return "left" if state in ("1,0", "2,1", "3,2") else "right"

    found = play_run(model, scripted(left, late, after), 3, seed=0)
    assert found.solved_episode == 3
    assert play_run(model, scripted(left, late), 3, seed=0).solved_episode is None
    assert play_run(envs.deep_sea(4), scripted(right), 3, seed=0).solved_episode is None, "another problem"


def test_spread_over_runs():
    """The 2.5% point of 1,000 resamples lies between the 0.5% and the 6% point of 20,000 others (false alarm 1e-5)."""
    values = np.random.default_rng(3).normal(size=(12, 5)) + np.arange(5)
    found = spread(values)
    np.testing.assert_allclose(found.mean, values.mean(axis=0))
    np.testing.assert_allclose(found.sd, values.std(axis=0, ddof=1))
    np.testing.assert_allclose(found.interquartile_mean, np.sort(values, axis=0)[3:9].mean(axis=0))
    again = values[np.random.default_rng(4).integers(12, size=(20_000, 12))]
    middle = np.sort(again, axis=1)[:, 3:9].mean(axis=1)
    ends = (*found.interval, again.mean(axis=1))
    for low, high, resampled in (ends, (*found.interquartile_interval, middle)):
        near, far = np.quantile(resampled, [0.005, 0.06], axis=0), np.quantile(resampled, [0.94, 0.995], axis=0)
        assert np.all((near[0] < low) & (low < near[1]))
        assert np.all((far[0] < high) & (high < far[1]))
    two = spread(np.array([[1.0], [4.0]]))
    assert two.interval[:, 0].tolist() == [1.0, 4.0], "a quarter of the resamples is (1, 1)"
    same = spread(np.ones((4, 3)))
    assert same.interval.tolist() == [[1.0] * 3] * 2
    assert np.isnan(spread(np.ones((1, 3))).interval).all()
    assert spread(np.ones((1, 3))).sd.tolist() == [0.0] * 3


# --- several runs


def test_learn_is_the_contract():
    answer = bm.learn(envs.deep_sea(3), agent="bayes-td-max", episodes=40, runs=3, seed=5).to_dict()
    assert answer["agent"] == "bayes-td-max"
    assert (answer["episodes"], answer["runs"], answer["seeds"]) == (40, 3, [5, 6, 7])
    assert answer["optimal_value"] == pytest.approx(0.85)
    for key in ("cumulative_regret_mean", "cumulative_regret_sd", "coverage_mean", "goal_reached_mean"):
        assert len(answer[key]) == 40
    for key in ("first_optimal_episode", "all_pairs_episode", "solved_episode"):
        assert len(answer[key]) == 3
    assert answer["out"] is None
    json.dumps(answer, allow_nan=False)


def test_runs_have_seeds_of_their_own():
    """Run i of `learn` with seed K is the run with seed K + i, on the actions' order that it draws."""
    model = envs.deep_sea(3)
    seen = []
    learning = bm.learn(model, "bayes-td-en", episodes=6, runs=2, seed=3, after_run=seen.append)
    assert tuple(seen) == learning.runs
    alone = play_run(model, "bayes-td-en", 6, seed=4)
    np.testing.assert_array_equal(alone.regret, learning.runs[1].regret)
    assert alone.model == with_action_order(model, 4)
    again = run_episodes(with_action_order(model, 4), find_agent("bayes-td-en").build(alone.model, {}), 6, play_seed(4))
    for mine, theirs in zip(alone.played, again, strict=True):
        np.testing.assert_array_equal(mine.pairs, theirs.pairs)


def test_cumulative_regret_adds_up():
    learning = bm.learn(envs.deep_sea(3), "rlsvi", episodes=5, runs=4)
    total = np.sum([run.regret.sum() for run in learning.runs]) / 4
    assert learning.to_dict()["cumulative_regret_mean"][-1] == pytest.approx(total)


def test_an_environment_with_a_table_is_stepped_and_measured():
    env = gymnasium.make("CliffWalking-v1")
    learning = bm.learn(env, "q-learning", episodes=150, runs=2)
    assert learning.to_dict()["optimal_value"] == -13.0
    for one in learning.runs:
        reached = one.played[-1]
        assert one.regret[-1] == pytest.approx(-13.0 - reached.rewards.sum())
        assert one.first_optimal_episode is not None
    assert learning.runs[0].model.states == bm.from_gymnasium(env).states
    repeated = bm.learn(env, "q-learning", episodes=20, runs=1).runs[0]
    np.testing.assert_array_equal(repeated.regret, learning.runs[0].regret[:20])


def test_an_environment_without_a_table_has_no_regret():
    answer = bm.learn(Masked(), "q-learning", episodes=5, runs=2).to_dict()
    assert answer["cumulative_regret_mean"] == [None] * 5
    assert answer["optimal_value"] is None
    assert answer["goal_reached_mean"] == [1.0] * 5
    with pytest.raises(UnsupportedError, match="needs the transition laws"):
        bm.learn(Masked(), "bayes-td")


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"runs": 0}, "runs is 0"),
        ({"episodes": 0}, "episodes is 0"),
        ({"seed": -1}, "seed is -1"),
        ({"seed": 2**63 - 5}, "seed is 9223372036854775812: give a whole number between 0 and"),
        ({"epsilon": -0.1}, "epsilon is -0.1: give a number that is not negative"),
        ({"optimism": 8}, 'bayes-td has no option "optimism"'),
        ({"members": 3}, 'bayes-td has no option "members"'),
    ],
)
def test_bad_settings_are_refused(settings, message):
    with pytest.raises(BadInputError, match=message):
        bm.learn(envs.two_state(), "bayes-td", **settings)


# --- the command


def test_command_prints_the_same_object(cli):
    given = (
        "learn",
        "env:deep-sea?depth=3",
        "--agent",
        "bayes-td",
        "--epsilon",
        "0.1",
        "--episodes",
        "8",
        "--runs",
        "2",
    )
    code, out, err = cli(*given, "--seed", "9", "--json")
    assert code == 0
    assert not err
    answer = json.loads(out)
    expected = bm.learn(envs.deep_sea(3), "bayes-td", episodes=8, runs=2, seed=9, epsilon=0.1).to_dict()
    assert answer.pop("seconds") > 0
    expected.pop("seconds")
    assert answer == expected


def test_command_prints_a_table_and_draws(cli, tmp_path):
    place = tmp_path / "regret.png"
    model = "env:deep-sea?depth=3&convention=bsuite"
    code, out, _ = cli(
        "learn", model, "--agent", "bayes-td-max", "--episodes", "30", "--runs", "3", "--picture", str(place)
    )
    assert code == 0
    assert "3 runs of 30 episodes, optimal value 0.99" in out
    assert "solved by bsuite's rule: 3 of 3 runs" in out
    assert place.stat().st_size > 5000


def test_the_median_lies_between_two_runs(cli):
    given = ("learn", "env:deep-sea?depth=3", "--agent", "bayes-td-max", "--episodes", "60", "--runs", "2")
    first, second = json.loads(cli(*given, "--json")[1])["first_optimal_episode"]
    assert first != second, "the seed was meant to show this"
    assert f"first optimal policy: 2 of 2 runs, median: after {(first + second) / 2:g} episodes" in cli(*given)[1]


@pytest.mark.slow
def test_compiled_programs_are_kept(tmp_path):
    """A command in a process of its own leaves what it compiled where the next one looks for it."""
    environment = {k: v for k, v in os.environ.items() if not k.startswith("JAX_")} | {"XDG_CACHE_HOME": str(tmp_path)}
    given = ("learn", "env:two-state", "--agent", "manifold", "--episodes", "3", "--runs", "1")
    subprocess.run([sys.executable, "-m", "bellmanifold", *given], env=environment, check=True, capture_output=True)
    assert list((tmp_path / "bellmanifold" / "jax").iterdir())


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (("env:two-state", "--agent", "nobody"), 2, "choose from "),
        (("env:two-state",), 2, "--agent"),
        (("env:two-state", "--agent", "q-learning", "--epsilon", "0.1"), 2, 'has no option "epsilon"'),
        (("env:two-state", "--agent", "psrl", "--prior-scale", "2"), 2, 'has no option "prior_scale"'),
        (("env:two-state", "--agent", "bayes-td", "--infer-noise"), 2, 'has no option "infer_noise"'),
        (("env:two-state", "--agent", "bayes-td", "--epsilon", "1", "--noise-sd", "1"), 2, "exclude each other"),
        (("env:two-state", "--agent", "bayes-td", "--picture", "x.txt"), 2, "a picture ends in"),
        (("gym:CartPole-v1", "--agent", "q-learning"), 3, "must be whole numbers"),
        (("no-such-file.json", "--agent", "bayes-td"), 2, "no such file"),
    ],
)
def test_command_refuses_with_one_line(cli, arguments, code, message):
    found, out, err = cli("learn", *arguments)
    assert found == code
    assert not out
    assert err.startswith("bellmanifold: ")
    assert message in err
    assert len(err.splitlines()) == 1


def test_command_steps_an_environment_without_a_table(cli):
    gymnasium.register(id="MaskedCorridor-v0", entry_point=Masked)
    try:
        given = ("learn", "gym:MaskedCorridor-v0", "--episodes", "5", "--runs", "2", "--agent")
        code, out, _ = cli(*given, "q-learning")
        assert code == 0
        assert "optimal value unknown" in out
        code, out, err = cli(*given, "bayes-td")
        assert code == 3
        assert not out
        assert '"MaskedCorridor-v0" has no table P: use psrl, rlsvi, q-learning' in err
    finally:
        gymnasium.registry.pop("MaskedCorridor-v0")


def test_help_has_an_example(cli):
    code, out, _ = cli("learn", "--help")
    assert code == 0
    assert "Example: bellmanifold learn" in out


def test_solved_problems_agree_with_the_solver():
    for model in (envs.deep_sea(4, slip=0.1), envs.swirl(4), envs.grid(3, 4, slip=0.1)):
        solution = solve(model)
        evaluator = Evaluator(model)
        assert evaluator.is_optimal(evaluator.value(model.greedy(solution.q)))


def test_extreme_options_are_refused(cli):
    for agent, option, value in (
        ("bayes-td", "--prior-scale", "1e160"),
        ("bayes-td-max", "--epsilon", "1e200"),
        ("psrl", "--noise-sd", "1e-200"),
        ("rlsvi", "--prior-scale", "1e8"),
    ):
        code, out, err = cli("learn", "env:two-state", "--agent", agent, option, value, "--episodes", "2", "--json")
        assert (code, out) == (2, "")
        assert err.startswith("bellmanifold: ")


def test_a_refused_agent_claims_no_directory(cli, tmp_path):
    model = "env:deep-sea?depth=3&convention=bsuite&stochastic=true"
    code, _, _ = cli("learn", model, "--agent", "manifold", "--out", str(tmp_path / "x"))
    assert code == 3
    assert not (tmp_path / "x").exists()


def test_problems_by_name():
    assert bm.learn("env:two-state", "bayes-td", episodes=2, runs=1).to_dict()["optimal_value"] == -1.0


def test_agents_keep_their_runs_side_by_side(cli, tmp_path):
    """A loop that pays breaks Assumption 2, which `manifold` finds out on the way; other agents may go there."""
    loop = {"state": "s", "action": "stay", "reward": 1.0, "next": {"s": 1.0}}
    leave = {"state": "s", "action": "go", "reward": 0.0, "next": {"goal": 1.0}}
    problem = {"format": "bellmanifold.ssp/1", "name": "x", "goals": ["goal"], "initial": {"s": 1.0}}
    (tmp_path / "x.json").write_text(json.dumps(problem | {"pairs": [loop, leave]}))
    given = ("learn", str(tmp_path / "x.json"), "--runs", "1", "--out", str(tmp_path / "runs"))
    code, _, err = cli(*given, "--agent", "manifold", "--episodes", "30")
    assert (code, len(err.splitlines())) == (3, 1)
    assert cli(*given, "--agent", "bayes-td", "--episodes", "2")[0] == 0
    assert cli(*given, "--agent", "bayes-td-max", "--episodes", "2")[0] == 0
    assert {path.name.split("_")[1] for path in (tmp_path / "runs").glob("*.nc")} == {"bayes-td", "bayes-td-max"}


def test_runs_of_an_edited_problem_are_not_overwritten(cli, tmp_path):
    problem, out = tmp_path / "x.json", tmp_path / "runs"
    given = ("learn", str(problem), "--agent", "q-learning", "--runs", "1", "--episodes", "2", "--out", str(out))
    bm.write_problem(bm.envs.two_state(), problem)
    assert cli(*given)[0] == 0
    (kept,) = out.glob("*.nc")
    before = kept.read_bytes()
    problem.write_text(problem.read_text().replace("-1.0", "-2.0"))
    code, stdout, err = cli(*given, "--json")
    assert (code, stdout, err.count("\n")) == (2, "", 1)
    assert "was made from another version of" in err
    assert "choose another --out" in err
    assert kept.read_bytes() == before


def test_episodes_that_were_given_up_are_told(cli, tmp_path):
    """One chance in ten million to leave: every episode ends at 1,000 moves."""
    moves = {("a", "x"): Move(-1.0, {"a": 1.0 - 1e-7, "goal": 1e-7})}
    bm.write_problem(from_moves("sticky", moves, start="a"), tmp_path / "sticky.json")
    given = ("--agent", "q-learning", "--episodes", "2", "--runs", "2")
    code, out, _ = cli("learn", str(tmp_path / "sticky.json"), *given)
    assert code == 0
    assert "episodes given up after too many moves: 4" in out


def test_values_of_policies_are_forgotten_before_they_fill_the_memory():
    model = envs.deep_sea(3)
    bounded, policies = Evaluator(model, most_cached=3), list(all_policies(model))[:20]
    found = [bounded.value(policy) for policy in policies]
    assert len(bounded._known) <= 3
    free = Evaluator(model)
    assert found == [free.value(policy) for policy in policies]
