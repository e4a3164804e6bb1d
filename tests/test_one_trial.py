"""Advice names the trial that saves most, says how noisy it takes it to be, and speaks of costs if they were given."""

from __future__ import annotations

import json
import re
from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import norm

import bellmanifold as bm
from bellmanifold.decisions.one_trial import trial_noise
from bellmanifold.envs.building import Move, from_moves
from bellmanifold.io.problem import write_problem
from bellmanifold.problem.costs import Costs, cost_unit, worth


def fork():
    """Two roads to a junction, from which two more lead on: what follows is the same for both of the first."""
    roads = [("home", "left"), ("home", "right"), ("left", "middle"), ("right", "middle"), ("middle", "goal")]
    moves = {(here, there): Move(-5.0, {there: 1.0}) for here, there in roads}
    return from_moves("fork", moves | {("middle", "bridge"): Move(-5.0, {"goal": 1.0})}, start="home")


def seen(model, *more):
    """Beliefs about all roads, known better where the way parts: the bridge hardly."""
    sds = {("middle", "bridge"): 4.0, ("middle", "goal"): 4.0}
    beliefs = [bm.Observation(*name, -5.0, sds.get(name, 1.0)) for name in model.pair_index]
    return bm.Dataset.from_pairs(model, [*beliefs, *more])


def unit_loss(z):
    """E[(N(0, 1) - z)^+]."""
    return norm.pdf(z) - z * norm.sf(z)


def test_one_trial_is_not_all_of_a_value():
    """Knowing all of Q(home, left) tells little about left or right, since what follows is the same for both and hardly
    known; a drive tells the road. So one trial may save more, and the headline names the one that saves most."""
    model = fork()
    advice = bm.advise(model, seen(model), prior_scale="flat")
    left, bridge = model.pair_index["home", "left"], model.pair_index["middle", "bridge"]
    assert advice.gain[left] == pytest.approx(unit_loss(0.0), rel=1e-9)
    assert advice.gain[bridge] == pytest.approx(4.0 * unit_loss(0.0), rel=1e-9)
    assert advice.gain[left] > advice.perfect.value[left] + 4.5 * advice.perfect.se[left]
    found = advice.to_dict()
    first = found["trials"][0]
    assert first["state"] == "middle"
    assert first["gain"] == {"mean": float(advice.gain[bridge]), "se": 0.0}
    assert set(first) == {"state", "action", "gain", "perfect", "tried", "tells"}
    gains = [trial["gain"]["mean"] for trial in found["trials"]]
    assert gains == pytest.approx(sorted(gains, reverse=True), rel=1e-8)
    loss, second = advice.sentences()
    assert loss.startswith("If you stop now, you expect to lose ")
    assert second == f"Next, try {first['action']} at middle: one exact trial would save 1.6 of it."
    frame = advice.to_frame()
    assert [*frame.columns[2:]] == ["gain", "gain_se", "perfect", "perfect_se", "tried", "tells"]
    assert (frame["gain_se"] == 0.0).all()


@pytest.mark.parametrize(
    ("trials", "noise_sd", "trial_sd", "sd"),
    [
        ([], None, None, 0.0),
        ([], None, 2.0, 2.0),
        ([], 0.5, None, 0.5),
        ([3.0, 1.0, 2.0], None, None, 2.0),
        ([3.0, 1.0, 2.0], None, 0.0, 0.0),
        ([3.0], 0.5, None, 0.5),
        ([None], None, None, 0.0),
        ([None, 2.0], None, None, 1.0),
    ],
)
def test_the_noise_of_a_trial(trials, noise_sd, trial_sd, sd):
    """Of a move never tried: what is given, or the noise of all rewards, or the median sd of the trials of others, or
    none. A belief is no trial."""
    model = two()
    made = [bm.Observation("s", "b", -5.0, one, "goal") for one in trials]
    data = bm.Dataset.from_pairs(model, [bm.Observation("s", "a", -5.0, 7.0), *made])
    assert trial_noise(data, noise_sd, trial_sd)[model.pair_index["s", "a"]] == sd


def test_another_trial_is_as_noisy_as_the_last():
    model = two()
    drives = [bm.Observation("s", "a", -5.0, sd, "goal") for sd in (0.5, 2.0)]
    advice = bm.advise(model, bm.Dataset.from_pairs(model, drives), reward_belief=(-5.0, 1.0))
    variance = 1.0 / (1.0 + 4.0 + 0.25)
    spread = variance / np.sqrt(variance + 4.0)
    assert advice.gain[model.pair_index["s", "a"]] == pytest.approx(spread * unit_loss(0.0), rel=1e-9)
    assert advice.trial.sd[model.pair_index["s", "a"]] == 2.0


def two(extra=()):
    return from_moves("two", {("s", name): Move(-5.0, {"goal": 1.0}) for name in "ab"} | dict(extra), start="s")


@pytest.mark.parametrize(
    ("reason", "options"),
    [
        ("the prior is over action values, not over rewards", {"prior_scale": 5.0}),
        ("a tolerance is no noise", {"epsilon": 0.1, "reward_belief": (-5.0, 1.0)}),
        pytest.param(
            "the noise is inferred", {"infer_noise": True, "reward_belief": (-5.0, 1.0)}, marks=pytest.mark.slow
        ),
    ],
)
def test_where_one_trial_has_no_closed_form(reason, options):
    """No trial is named, and the text says what ranks moves and why."""
    model = two()
    advice = bm.advise(model, bm.Dataset.from_pairs(model, [("s", "a", -5.2)]), trial_sd=1.0, **options)
    assert advice.gain is None
    assert any(
        f"trial_sd has no effect: what one trial would save is not known ({reason})" in one
        for one in advice.to_dict()["warnings"]
    )
    assert {json.dumps(trial["gain"]) for trial in advice.to_dict()["trials"]} == {"null"}
    text = " ".join(advice.sentences())
    assert f"What one trial would save is not known ({reason}): moves are ranked by what knowing all" in text
    assert "Next" not in text
    assert advice.to_frame()["gain"].isna().all()


def test_loops_that_may_pay_have_no_closed_form():
    """Staying costs 0.5 +- 1: in three of ten draws it pays."""
    model = two([(("s", "stay"), Move(-0.5, {"s": 1.0}))])
    beliefs = [bm.Observation("s", "stay", -0.5, 1.0), *(bm.Observation("s", name, -5.0, 1.0) for name in "ab")]
    advice = bm.advise(model, bm.Dataset.from_pairs(model, beliefs), prior_scale="flat")
    assert advice.gain is None
    assert "some loop pays with probability 0." in advice.sentences()[1]


def test_who_may_stop_is_not_told_what_to_try(cli, tmp_path):
    problem, data = str(tmp_path / "two.json"), tmp_path / "none.csv"
    write_problem(two(), problem)
    data.write_text("state,action\n")
    given = ("advise", problem, str(data), "--reward-belief", "-5,1", "--trial-sd", "1")
    code, out, _ = cli(*given, "--tolerance", "9")
    assert code == 0
    assert "\nStop. If you stop now, you expect to lose 0.5" in out
    assert "per episode. That is at most 9, the tolerance.\n" in out
    assert "Next" not in out
    code, out, _ = cli(*given, "--tolerance", "0.01")
    assert "\nGo on. If you stop now, " in out
    assert ": one trial, with noise of sd 1, would save 0.282 of it.\n" in out
    assert "gain: what one trial would save; perfect: what knowing all of Q(s, a) would save:\n" in out
    found = json.loads(cli(*given, "--json")[1])
    assert found["trials"][0]["gain"]["mean"] == pytest.approx(unit_loss(0.0) / np.sqrt(2.0))


def test_no_single_trial_helps():
    """Two moves in a row against a known way: either would have to pay far more than is believed."""
    moves = {
        ("s", "known"): Move(0.0, {"goal": 1.0}),
        ("s", "on"): Move(0.0, {"t": 1.0}),
        ("t", "on"): Move(0.0, {"goal": 1.0}),
    }
    model = from_moves("row", moves, start="s")
    told = [bm.Observation("s", "known", -4.0, 0.0), bm.Observation("s", "on", -5.0, 0.9)]
    data = bm.Dataset.from_pairs(model, [*told, bm.Observation("t", "on", -5.0, 2.5)])
    advice = bm.advise(model, data, prior_scale="flat", trial_sd=4.0)
    assert 0.0 < advice.gain.max() < 1e-3 * advice.expected_loss.value
    assert advice.sentences()[1].startswith("No single trial helps much: none would save more than ")
    hopeless = replace(advice, trial=replace(advice.trial, gain=np.zeros(3)))
    assert hopeless.sentences()[1].startswith("No single trial helps: whatever one shows, the best policy stays")


def test_amounts_in_the_sign_they_were_given_in():
    model = replace(two(), metadata={"costs": {"unit": "minutes"}})
    assert cost_unit(model) == Costs("minutes")
    assert cost_unit(replace(model, metadata={"costs": {}})) == Costs("")
    assert cost_unit(two()) is None
    for odd in (3, "minutes", {"unit": 3}, ["minutes"]):
        assert cost_unit(replace(model, metadata={"costs": odd})) is None
    assert worth(-0.0, Costs("minutes")) == "costs 0 minutes"
    assert worth(23.1, Costs()) == "costs -23.1"
    assert cost_unit(bm.envs.roads()) == Costs("minutes")


def test_advice_speaks_of_costs(cli, tmp_path):
    model = replace(two(), metadata={"costs": {"unit": "minutes"}})
    problem, data = str(tmp_path / "two.json"), tmp_path / "none.csv"
    write_problem(model, problem)
    data.write_text("state,action\n")
    code, out, _ = cli("advise", problem, str(data), "--reward-belief", "-5,1")
    assert code == 0
    assert "\nIf you stop now, you expect to lose 0.5" in out
    assert " minutes per trip. Next, try " in out
    assert "would save 0.399 minutes of it.\n" in out
    assert re.search(r"^the best policy costs (4\.9|5)\S* minutes \(se", out, re.MULTILINE)
    assert "would save, in minutes:\n" in out
    found = json.loads(cli("advise", problem, str(data), "--reward-belief", "-5,1", "--json")[1])
    assert found["best"]["value"]["mean"] < -4.0, "JSON keeps its signs"
    advice = bm.advise(model, bm.load_data(data, model), reward_belief=(-5.0, 1.0))
    assert re.match(r"two: the best policy costs (4\.9|5)\S* minutes on average\nIf you stop", advice.words().title)
    assert advice.words().scale == "what one trial would save, in minutes"
