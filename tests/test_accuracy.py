"""Trust is not accuracy: an answer whose errors can be believed says so if they are larger than was asked for."""

import json
from dataclasses import replace

import numpy as np
import pytest
from by_hand import summary_of

import bellmanifold as bm
from bellmanifold.envs.building import Move, from_moves
from bellmanifold.io.observations import write_data
from bellmanifold.posteriors.budget import Budget
from bellmanifold.posteriors.target import relaxed_target
from bellmanifold_lab.explorer.session import Session

ROUGH = {"epsilon": 0.1, "samples": 100}
"""So few points that the tolerance, which is wide for this problem, leaves an error above 0.001."""


@pytest.fixture(scope="module")
def data():
    return bm.Dataset.complete(bm.envs.deep_sea(3))


@pytest.fixture(scope="module")
def rough(data):
    return bm.posterior(data.model, data, **ROUGH)


@pytest.fixture
def file(data, tmp_path):
    write_data(data, tmp_path / "data.json")
    return str(tmp_path / "data.json")


def errors(answer):
    """Every standard error of a probability of actions, routes and improper mass in the JSON."""
    of_actions = [found["se"] for own in answer["actions"].values() for found in own.values()]
    return [*of_actions, *(route["se"] for route in answer["routes"]), answer["improper_mass"]["se"]]


def test_a_trustworthy_answer_says_first_that_its_errors_are_large(rough):
    answer = rough.to_dict()
    assert answer["trustworthy"]
    assert answer["largest_error"] == rough.largest_error == max(errors(answer)) > 0.001
    state, action = max(
        ((s, a) for s, own in answer["actions"].items() for a in own),
        key=lambda pair: answer["actions"][pair[0]][pair[1]]["se"],
    )
    which = f'(of the probability that ("{state}", "{action}") is optimal)'
    says = f"standard errors are up to {max(errors(answer)):.2g} {which}, above 0.001: more samples reduce them"
    assert answer["warnings"] == [says]
    assert rough.card().warnings == answer["warnings"]
    assert "warning: standard errors are up to" in repr(rough).split("\n")[1]
    assert "standard errors are up to" in rough._repr_html_()


def test_more_samples_do_reduce_them(data, rough):
    exact = bm.posterior(data.model, data, **ROUGH | {"samples": 2**18})
    assert exact.largest_error <= 0.001 < rough.largest_error
    assert exact.warnings == []


def test_the_first_line_of_the_command_says_so(cli, file):
    command = ("posterior", "env:deep-sea?depth=3", file, "--epsilon", "0.1", "--samples", "100")
    code, out, _ = cli(*command)
    assert code == 0
    assert out.split("\n")[0].startswith("warning: standard errors are up to 0.00")
    assert "above 0.001: more --samples reduce them" in out.split("\n")[0]
    answer = json.loads(cli(*command, "--json")[1])
    assert answer["largest_error"] == max(errors(answer))
    assert answer["warnings"][0] in out.split("\n")[0]


def test_an_exact_answer_has_no_error(data):
    answer = bm.posterior(data.model, data).to_dict()
    assert answer["largest_error"] == 0.0
    assert "warnings" not in answer


def test_advice_says_it_of_its_own_probability(cli, tmp_path):
    model = bm.envs.deep_sea(2)
    data = bm.Dataset.from_pairs(model, [("0,0", "left")])
    write_data(data, tmp_path / "data.json")
    command = ("advise", "env:deep-sea?depth=2", str(tmp_path / "data.json"))
    answer = json.loads(cli(*command, "--json")[1])
    error = answer["best"]["optimal"]["se"]
    assert answer["largest_error"] == error > 0.001
    says = f"standard errors are up to {error:.2g} (of the probability that the best policy is optimal), above 0.001"
    assert answer["warnings"] == [says]
    assert cli(*command)[1].split("\n")[0] == f"warning: {says}"
    assert f"warning: {says}"[:60] in repr(bm.advise(model, data))
    sure = bm.advise(model, bm.Dataset.complete(model))
    assert sure.largest_error == 0.0
    assert "warnings" not in sure.to_dict()


def test_the_explorer_shows_the_error_of_a_quick_answer_and_warns_of_a_slow_one(data):
    session = Session(data.model, data, epsilon=0.1)
    quick = session.view()
    assert quick["largest_error"] == session.summary.largest_error > 0.001
    assert quick["warnings"] == []
    session.now = replace(session.now, summary=replace(session.summary, budget=Budget()))
    assert session.view()["warnings"][0].startswith("standard errors are up to")


def by_hand(weight, budget=None, **more):
    return summary_of(relaxed_target(bm.Dataset.complete(bm.envs.two_state()), 0.5, 10.0), weight, budget, **more)


def test_the_accuracy_that_was_asked_for_is_the_bound():
    said = "standard errors are up to 0.25 (of the probability that"
    assert by_hand([[1, 3], [3, 1]], Budget(accuracy=0.2)).warnings[0].startswith(said)
    assert "above 0.2" in by_hand([[1, 3], [3, 1]], Budget(accuracy=0.2)).warnings[0]
    assert not any(said in warning for warning in by_hand([[1, 3], [3, 1]], Budget(accuracy=0.25)).warnings)


def test_doubts_come_first():
    """Errors that cannot be believed are no measure of accuracy."""
    doubt, large, *_ = by_hand([[1, 3], [3, 1]], doubts=("uneven",)).warnings
    assert doubt == "not trustworthy: uneven"
    assert large.startswith("standard errors are up to 0.25")


def test_the_improper_mass_may_have_the_largest_error():
    """Two improper policies vary by 0.05 each between replicates, always in the same direction."""
    moves = {(state, "stay"): Move(-1.0, {state: 1.0}) for state in "xy"}
    moves |= {("x", "go"): Move(-1.0, {"y": 1.0}), ("y", "go"): Move(-1.0, {"goal": 1.0})}
    target = relaxed_target(bm.Dataset.complete(from_moves("two rooms", moves, start="x")), 0.5, 10.0)
    summary = summary_of(target, [[1, 1], [1, 1]], Budget(top=0))
    stay_go, go_stay, go_go = (
        [target.model.pair_index[state, action] for state, action in zip("xy", played, strict=True)]
        for played in (("stay", "go"), ("go", "stay"), ("go", "go"))
    )
    weight = np.array([[0.3, 0.3, 0.4], [0.2, 0.2, 0.6]])
    table = replace(summary.table, policy=np.array([stay_go, go_stay, go_go]), weight=weight)
    summary = replace(summary, result=replace(summary.result, table=table))
    assert summary.action_probability.se.max() == pytest.approx(0.05)
    assert summary.largest_error == float(summary.improper_mass.se) == pytest.approx(0.1)
    assert summary.warnings[0] == "standard errors are up to 0.1 (of the probability of improper policies), above 0.001"
    assert summary.to_dict()["largest_error"] == summary.largest_error


def test_an_error_that_is_not_known_is_null():
    unknown = by_hand([[0, 0], [0, 0]])
    assert unknown.largest_error == np.inf
    assert unknown.to_dict()["largest_error"] is None
    assert unknown.warnings[0].startswith("standard errors are not known (of the probability")
