"""Gap regret: what the moves of an episode give up, in runs, files, tables and reports."""

import json

import numpy as np
import pytest
from test_agents import Stubborn, always
from test_agents_laws import Corridor

import bellmanifold as bm
from bellmanifold import envs
from bellmanifold.learning.run_file import decode, encode, load_run
from bellmanifold_lab.report.reading import read_directory
from bellmanifold_lab.report.scenes import run_of

SLIPPERY = envs.grid(3, 3, slip=0.2)


def direct_sum(model, pairs):
    """V*(s) - Q*(s, a) over moves, by value iteration on loops over rows."""
    value, q = np.zeros(model.n_states + 1), np.zeros(model.n_pairs)
    for _ in range(2000):
        for i in range(model.n_pairs):
            row = slice(model.next_start[i], model.next_start[i + 1])
            q[i] = model.reward[i] + sum(model.next_prob[row] * value[model.next_state[row]])
        for s in range(model.n_states):
            value[s] = q[model.pair_start[s] : model.pair_start[s + 1]].max()
    return sum(value[model.pair_state[i]] - q[i] for i in pairs)


@pytest.mark.parametrize("model", [envs.deep_sea(3), SLIPPERY], ids=lambda model: model.name)
@pytest.mark.parametrize("agent", ["q-learning", "rlsvi"])
def test_gap_regret_is_the_sum_of_what_moves_give_up(model, agent):
    options = {} if agent == "q-learning" else {"replan": True}
    (run,) = bm.learn(model, agent, episodes=3, runs=1, seed=1, **options).runs
    for episode, found in zip(run.played, run.gap_regret, strict=True):
        assert found == pytest.approx(direct_sum(run.model, episode.pairs), abs=1e-9)
    assert run.gap_regret.sum() > 0


def test_in_expectation_it_is_completed_regret():
    """A fixed policy on a slippery grid, 1,000 episodes: within 5 standard errors of the differences.

    The difference of the two is a martingale, so its mean is 0. False alarm 6e-7.
    """
    model = envs.grid(3, 3, slip=0.4)
    policy = np.where(np.arange(model.n_states) % 2, always(model, "down"), always(model, "right"))
    (run,) = bm.learn(model, Stubborn(policy), episodes=1000, runs=1, seed=3).runs
    difference = run.gap_regret - run.completed_regret
    assert run.gap_regret.min() >= 0
    assert run.completed_regret.min() < -1, "luck"
    assert difference.std() > 0.5
    assert abs(difference.mean()) < 5 * difference.std(ddof=1) / np.sqrt(len(difference))
    assert abs(run.gap_regret.mean() - run.expected_regret[0]) < 5 * run.gap_regret.std() / np.sqrt(1000)


def test_agents_that_change_their_mind_are_judged_by_their_moves():
    """Where the policy at the start was replaced nothing is known of it, but what each move gave up is."""
    (run,) = bm.learn(SLIPPERY, "nearest", episodes=10, runs=1, replan=True).runs
    changed = np.array([episode.changed for episode in run.played])
    assert changed.any()
    assert np.isnan(run.expected_regret[changed]).all()
    assert np.isfinite(run.gap_regret).all()


def test_json_tables_and_files(cli, tmp_path):
    out_dir = tmp_path / "out"
    code, out, _ = cli(
        *("learn", "env:deep-sea?depth=3", "--agent", "bayes-td", "--episodes", "3", "--runs", "2", "--json"),
        *("--out", str(out_dir)),
    )
    assert code == 0
    learning = bm.learn("env:deep-sea?depth=3", "bayes-td", episodes=3, runs=2)
    expected = np.array([run.gap_regret for run in learning.runs])
    np.testing.assert_allclose(json.loads(out)["gap_regret_mean"], expected.mean(axis=0), atol=1e-12)
    np.testing.assert_array_equal(learning.to_frame()["gap_regret"], expected.ravel())
    stored = [load_run(path)["gap_regret"].values for path in sorted(out_dir.glob("*.nc"))]
    np.testing.assert_array_equal(stored, expected)


def test_it_is_null_without_a_table():
    learning = bm.learn(Corridor(), "rlsvi", episodes=3, runs=1)
    assert learning.to_dict()["gap_regret_mean"] is None
    assert np.isnan(learning.runs[0].gap_regret).all()


def test_reports_read_files_that_lack_it(cli, tmp_path):
    """A file of a version that did not record it says "unknown"; the others show sum, mean and spread."""
    arguments = ("learn", "env:deep-sea?depth=3", "--agent", "bayes-td", "--episodes", "3", "--runs", "2")
    assert cli(*arguments, "--out", str(tmp_path))[0] == 0
    (cell,) = read_directory(tmp_path).cells
    runs = bm.learn("env:deep-sea?depth=3", "bayes-td", episodes=3, runs=2).runs
    np.testing.assert_allclose(cell.gap, np.cumsum([run.gap_regret for run in runs], axis=1))
    model = bm.load_model("env:deep-sea?depth=3")
    np.testing.assert_allclose(run_of(cell.runs[0], model, 0)["gap"], runs[0].gap_regret, rtol=1e-4, atol=1e-9)
    assert cli("report", str(tmp_path))[0] == 0
    page = (tmp_path / "report.html").read_text()
    assert "gap regret (sd)" in page
    for path in tmp_path.glob("*.nc"):
        path.write_bytes(encode(decode(path.read_bytes()).drop_vars("gap_regret")))
    (cell,) = read_directory(tmp_path).cells
    assert np.isnan(cell.gap).all()
    assert run_of(cell.runs[0], model, 0)["gap"] == [None] * 3
    assert cli("report", str(tmp_path))[0] == 0
    assert "<td>unknown</td>" in (tmp_path / "report.html").read_text()
