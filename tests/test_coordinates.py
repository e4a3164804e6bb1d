"""Which pairs have which coordinates: stand-ins, cuts, centred ones, widths; and who is trapped without any."""

import numpy as np
import pytest
from open_quadrature import open_model
from wandering import SEEN, own_priors, two_rings, wandering

from bellmanifold.chart.batch import batch_chart
from bellmanifold.envs.building import Move, from_moves
from bellmanifold.errors import UnsupportedError
from bellmanifold.posteriors.coordinates import Coordinates, Loop, stand_ins
from bellmanifold.posteriors.laws import close_laws
from bellmanifold.posteriors.noise import HalfNormal
from bellmanifold.posteriors.system import system_of
from bellmanifold.posteriors.target import ValuePrior, noisy_target, relaxed_target
from bellmanifold.problem.dataset import Dataset
from bellmanifold.problem.observation import Observation


def named(model, mask):
    return {model.pair_name(int(i)) for i in np.flatnonzero(mask)}


def test_which_pairs_have_which_coordinates():
    model = wandering()
    target = relaxed_target(Dataset.from_pairs(model, SEEN), 0.3, 2.5)
    coordinates = Coordinates(target)
    assert named(model, coordinates.free) == {("b", "x"), ("c", "out")}
    assert named(model, coordinates.residual) == set(SEEN)
    stand_in = {model.pair_name(i): model.pair_name(int(j)) for i, j in enumerate(coordinates.stand_in)}
    assert stand_in.pop(("b", "y")) == ("b", "x")
    assert all(pair == other for pair, other in stand_in.items())
    assert (coordinates.way, coordinates.dimension, coordinates.scales) == ("non-centred", 6, 0)
    centred = Coordinates(target, centred=True)
    assert not centred.residual.any()
    assert centred.stand_in.tolist() == list(range(model.n_pairs))
    go = model.pair_index["a", "go"]
    cut = Coordinates(target, cut=(go,), freed=(go,))
    assert cut.free[go]
    assert not cut.residual[go]
    chart = batch_chart(model)
    assert system_of(cut, chart).subsets
    assert not system_of(coordinates, chart).subsets


def test_how_many_coordinates_there_are():
    """Infinitesimal residuals are held, but not integrated over; a noise scale is one more coordinate."""
    data = Dataset.from_pairs(wandering(), [(*pair, -1.0) for pair in SEEN])
    exact, relaxed = (Coordinates(relaxed_target(data, epsilon, 2.5)) for epsilon in (0.0, 0.3))
    noisy = Coordinates(noisy_target(data, HalfNormal(), 2.5))
    assert [(c.size, c.dimension, c.scales) for c in (exact, relaxed, noisy)] == [(6, 2, 0), (6, 6, 0), (7, 7, 1)]


@pytest.mark.parametrize(("concentration", "of_concentration"), [(1.0, 0), (None, 1)])
def test_open_laws_are_coordinates_too(concentration, of_concentration):
    """A pair that may lead to two states or the goal has two free probabilities; the concentration may be one more."""
    model = open_model(["s", "t"], [("s", "go"), ("s", "exit"), ("t", "leave")])
    told = [Observation(*pair, -1.0, next=name) for pair in (("s", "go"), ("t", "leave")) for name in ("s", "t", "s")]
    whole, laws, no_law = close_laws(Dataset.from_pairs(model, told), "dirichlet", concentration)
    data = Dataset.from_pairs(whole, [Observation("s", "go", -1.0), Observation("t", "leave", -1.0)])
    found = Coordinates(relaxed_target(data, 0.1, 1.0).with_laws(laws, no_law))
    assert found.frontier == 3, "two residuals, and the value of the exit"
    assert found.dimension == 3 + 2 * 2 + of_concentration


def crowd():
    """A state with an observed action and three that nobody has tried; another one that no data touch."""
    moves = {("s", name): Move(-1.0, {"goal": 1.0}) for name in ("seen", "u", "v", "w")}
    moves |= {("far", name): Move(-1.0, {"s": 1.0}) for name in ("x", "y")}
    model = from_moves("crowd", moves, start="far")
    return model, Dataset.from_pairs(model, [("s", "seen")])


def prior_of(model, sd=None, **mean):
    """Standard normal priors, some of them with another mean; pairs by their action."""
    sd = sd or {}
    actions = [model.pair_name(i)[1] for i in range(model.n_pairs)]
    return ValuePrior(
        np.array([mean.get(action, 0.0) for action in actions]), np.array([sd.get(action, 1.0) for action in actions])
    )


@pytest.mark.parametrize(
    ("prior", "shared", "coupled"),
    [
        ({}, True, {"s"}),
        ({"seen": 5.0}, True, {"s"}),
        ({"v": 1.0}, False, {"s"}),
        ({"sd": {"w": 2.0}}, False, {"s"}),
        ({"u": 1.0, "v": 1.0, "w": 1.0}, True, {"s"}),
        ({"y": -1.0}, True, {"s", "far"}),
        ({"x": -1.0, "y": -1.0}, True, {"s"}),
    ],
)
def test_pairs_are_exchangeable_where_they_share_a_prior(prior, shared, coupled):
    """Unobserved pairs of one state: one stands for all or each for itself. What was observed has no say; nor have the
    data any in a state where priors differ, whose best action the prior decides."""
    model, data = crowd()
    target = relaxed_target(data, 0.5, prior_of(model, **prior))
    coordinates, index = Coordinates(target), model.pair_index
    unseen = ~target.observed & (model.pair_state == model.state_index["s"])
    assert target.prior.exchangeable(model, unseen)[model.state_index["s"]] == shared
    assert {model.states[s] for s in np.flatnonzero(target.coupled)} == coupled
    found = stand_ins(target, unseen)
    np.testing.assert_array_equal(found[unseen], coordinates.stand_in[unseen])
    names = {"u", "v", "w"}
    expected = {name: "u" if shared else name for name in names}
    assert {name: model.pair_name(int(found[index["s", name]]))[1] for name in names} == expected
    assert coordinates.alternatives[index["s", "u"]] == (3 if shared else 1)
    assert not coordinates.free[index["s", "seen"]]
    assert int(coordinates.free.sum()) == (1 if shared else 3) + (2 if "far" in coupled else 0)
    if "far" in coupled:
        assert coordinates.stand_in[index["far", "y"]] == index["far", "y"]


def test_priors_are_compared_within_states_alone():
    """In every other state of `wandering`, whose pairs' priors all differ, one unobserved pair is no crowd."""
    model = wandering()
    target = relaxed_target(Dataset.from_pairs(model, SEEN), 0.3, own_priors(model))
    coordinates = Coordinates(target)
    unseen = ~target.observed
    assert target.prior.exchangeable(model, unseen).tolist() == [s in ("a", "c") for s in model.states]
    assert target.coupled.all()
    assert named(model, coordinates.free) == named(model, unseen)
    assert (coordinates.alternatives == 1).all()


def test_widths_of_residuals():
    """The kernel's, or infinitesimal ones: 1e-8 of the largest reward, and none where a loop would add them up."""
    model = wandering()
    data, observed = Dataset.from_pairs(model, SEEN), [model.pair_index[pair] for pair in SEEN]
    relaxed, exact = (relaxed_target(data, epsilon, 2.5) for epsilon in (0.3, 0.0))
    assert (Coordinates(relaxed).tie_width, Coordinates(exact).tie_width) == (0.0, pytest.approx(2e-8))
    assert not Coordinates(relaxed).split.any()
    np.testing.assert_allclose(Coordinates(exact).split[observed], 2e-8)
    loops = (Loop((model.state_index["a"], model.state_index["b"]), ()), Loop((model.state_index["b"],), ()))
    narrow = Coordinates(exact, lingering=loops).split
    assert {model.pair_name(i): narrow[i] for i in observed} == pytest.approx(
        {("a", "go"): 0.0, ("a", "jump"): 0.0, ("b", "back"): 0.0, ("c", "in"): 2e-8}
    )
    assert not narrow[~exact.observed].any()


def test_which_coordinates_reach_improper_parameters():
    """All where no observed loop is closed, centred ones always, else those whose cut meets every loop."""
    open_end = relaxed_target(Dataset.from_pairs(wandering(), SEEN), 0.3, 2.5)
    assert Coordinates(open_end).covers_improper
    target = relaxed_target(Dataset.complete(two_rings()), 0.5, 3.0)
    index = target.model.pair_index
    one, both = (index["a", "round"],), (index["a", "round"], index["d", "stay"])
    assert Coordinates(target, centred=True).covers_improper
    assert [Coordinates(target, cut=cut).covers_improper for cut in ((), one, both)] == [False, False, True]


@pytest.mark.parametrize("chance", [True, False])
@pytest.mark.parametrize(("epsilon", "way_out"), [(0.0, "use epsilon above 0"), (0.5, "leave proper_only out")])
def test_traps_are_named(epsilon, way_out, chance):
    """Whether or not some other moves are random."""
    moves = {
        ("a", "on"): Move(-1.0, {"b": 1.0}),
        ("b", "back"): Move(-1.0, {"a": 1.0}),
        ("c", "go"): Move(-1.0, {"goal": 0.5, "c": 0.5} if chance else {"goal": 1.0}),
        ("d", "in"): Move(-1.0, {"a": 0.5, "goal": 0.5} if chance else {"a": 1.0}),
    }
    target = relaxed_target(Dataset.complete(from_moves("trap", moves, start="d")), epsilon, 1.0)
    chart = batch_chart(target.model)
    with pytest.raises(UnsupportedError, match=rf"trap a, b: .*{way_out}"):
        system_of(Coordinates(target), chart)
    assert system_of(Coordinates(target, centred=True), chart).free.sum() == 4, "no policy is needed there"
    ring = (target.model.pair_index["a", "on"],)
    assert system_of(Coordinates(target, cut=ring), chart).free.sum() == 0, "nor in a cut"


def test_loops_with_an_unobserved_way_out_are_no_traps():
    """Of three observed loops the second has none."""
    moves = {(state, "stay"): Move(-1.0, {state: 1.0}) for state in "abc"}
    moves |= {(state, "out"): Move(-1.0, {"goal": 1.0}) for state in "ac"}
    moves["d", "in"] = Move(-1.0, {"a": 0.25, "b": 0.25, "c": 0.25, "goal": 0.25})
    model = from_moves("one trap", moves, start="d")
    target = relaxed_target(Dataset.from_pairs(model, [*((state, "stay") for state in "abc"), ("d", "in")]), 0.5, 1.0)
    with pytest.raises(UnsupportedError, match="trap b: "):
        system_of(Coordinates(target), batch_chart(model))
