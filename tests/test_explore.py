"""Exploring by hand, without a browser: sessions, drawings, the widget's Python side, the command and its server."""

import http.client
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from _thread import interrupt_main
from contextlib import contextmanager
from pathlib import Path

import jax
import numpy as np
import pytest
from guide_pages import differences, run_page

import bellmanifold as bm
from bellmanifold.envs.building import Move, from_moves
from bellmanifold.errors import BadInputError, StoppedError, UnsupportedError
from bellmanifold.io.problem import read_problem
from bellmanifold.pictures.palette import pair_colours
from bellmanifold_lab.explorer.board import make_board
from bellmanifold_lab.explorer.server import LocalServer, make_local_page, policy
from bellmanifold_lab.explorer.session import KINDS, MOST_ROUTES, QUICK_SAMPLES, Session

ROOT = Path(__file__).parent.parent
HOSTILE = "</script><script>alert(1)</script>"
OPEN = {
    "format": "bellmanifold.ssp/2",
    "goals": ["delivered"],
    "initial": {"dock": 1.0},
    "pairs": [
        {"state": "dock", "action": HOSTILE},
        {"state": "dock", "action": "walk", "reward": -5.0, "next": {"delivered": 1.0}},
        {"state": HOSTILE, "action": "on", "reward": -1.0, "next": {"delivered": 1.0}},
    ],
}


@pytest.fixture
def open_problem(tmp_path):
    """A problem with a move of which nothing is known, and names that want to be markup."""
    path = tmp_path / "open.json"
    path.write_text(json.dumps(OPEN))
    return path


def shown(view):
    """A view, but for what it answers, which step it is and how long it took."""
    return {key: value for key, value in view.items() if key not in ("answers", "error", "seconds", "cold", "step")}


def test_a_view_is_what_the_posterior_says():
    model = bm.envs.deep_sea(depth=3)
    session = Session(model, epsilon=0.1, prior_scale=5.0, samples=None, top=1000)  # as the command gives them
    start = session.view()
    assert start["probability"] == [0.5] * model.n_pairs
    assert (start["epsilon"], start["prior_scale"], start["count"]) == (0.1, 5.0, 0)
    seen = [("0,0", "right"), ("1,1", "left")]
    for name in seen:
        view = session.answer({"kind": "observe", "id": "x", "pair": model.pair_index[name]})
        assert (view["error"], view["answers"]) == ("", "x")
    alone = bm.posterior(
        model, bm.Dataset.from_pairs(model, seen), epsilon=0.1, prior_scale=5.0, samples=QUICK_SAMPLES, top=1
    )
    assert view["probability"] == alone.action_probability.value.tolist()
    assert view["q_sd"] == np.asarray(alone.q_sd).tolist()
    assert view["warnings"] == alone.warnings
    assert view["route"]["pairs"] == list(alone.routes[0].pairs)
    assert view["routes"][0] == view["route"]
    assert len(view["routes"]) == MOST_ROUTES
    assert view["tried"] == session.data.observed.tolist()
    assert session.summary.action_probability.value.tolist() == view["probability"]
    json.dumps(view, allow_nan=False)


def test_advice_comes_when_it_is_asked_for_and_goes_with_the_next_change():
    model = bm.envs.deep_sea(3)
    session = Session(model)
    pair = model.pair_index["0,0", "right"]
    before = session.answer({"kind": "observe", "pair": pair})
    assert before["advice"] is None
    view = session.answer({"kind": "advise"})
    advice = bm.advise(model, session.data, samples=QUICK_SAMPLES)
    assert view["advice"]["sentences"] == list(advice.sentences())
    assert [trial["pair"] for trial in view["advice"]["trials"]] == advice.trials[advice.telling[advice.trials]][
        :3
    ].tolist()
    assert {**shown(view), "advice": None} == shown(before), "nothing else has changed"
    assert session.answer({"kind": "look"})["advice"] == view["advice"]
    assert session.answer({"kind": "observe", "pair": pair + 1})["advice"] is None
    json.dumps(view, allow_nan=False)


def test_why_there_is_no_advice():
    session = Session(bm.envs.two_state(), bm.Dataset.complete(bm.envs.two_state()), epsilon=0.5)
    view = session.answer({"kind": "advise"})
    assert view["error"] == ""
    assert "use proper_only=True or epsilon=0" in view["advice"]["refused"]


def test_steps_are_taken_and_taken_back():
    session = Session(bm.envs.two_state())
    views = [session.view()]
    for message in (
        {"kind": "observe", "pair": 1, "reward": -3.0},
        {"kind": "believe", "pair": 0, "mean": -1.0, "sd": 2.0},
        {"kind": "remove", "index": 0},
    ):
        views.append(session.answer(message))
        assert views[-1]["error"] == ""
    pairs = [[(item["pair"], item["reward"], item["sd"]) for item in view["observations"]] for view in views]
    assert pairs == [[], [(1, -3.0, None)], [(0, -1.0, 2.0), (1, -3.0, None)], [(0, -1.0, 2.0)]]
    for before in reversed(views[:-1]):
        assert shown(session.answer({"kind": "undo"})) == {**shown(before), "unsaved": session.unsaved}
    assert session.answer({"kind": "undo"})["error"] == "there is nothing to undo"


@pytest.mark.parametrize(
    ("message", "complaint"),
    [
        ({"kind": "observe", "pair": 0, "reward": 2.0}, r'pair \("s1", "stay"\) paid 2 but -1 before'),
        ({"kind": "observe", "pair": 9}, 'pair is "9": give a whole number from 0 to 1'),
        ({"kind": "observe", "pair": True}, "give a whole number"),
        ({"kind": "observe", "pair": 1, "reward": "much"}, "reward is a string: give a number"),
        ({"kind": "observe", "pair": 1, "reward": 10**400}, "too large for a floating-point number"),
        ({"kind": "observe", "pair": 1, "next": 0}, "which its law in the problem makes impossible"),
        ({"kind": "observe", "pair": 1, "more": 1}, "unknown key"),
        ({"kind": "believe", "pair": 1, "mean": 1.0}, "sd of the belief is null: give a number"),
        ({"kind": "believe", "pair": 1, "mean": 1.0, "sd": 0}, "sd of the belief is 0: give a positive number"),
        ({"kind": "remove", "index": 5}, "index is"),
        ({"kind": "options", "epsilon": -1.0}, "epsilon is -1"),
        ({"kind": "options", "prior_scale": 0}, "prior_scale is 0"),
        ({"kind": "options", "proper_only": "yes"}, 'proper_only is the string "yes": give True or False'),
        ({"kind": "options", "laws": "unwritten"}, "laws is"),
        ({"kind": "burn"}, "choose from look, observe"),
        ({"kind": ["look"]}, "choose from look, observe"),
        ([], "choose from look, observe"),
        (None, "choose from look, observe"),
    ],
)
def test_what_cannot_be_followed_changes_nothing(message, complaint):
    model = bm.envs.two_state()
    session = Session(model, bm.Dataset.from_pairs(model, [("s1", "stay")]))
    before = session.view()
    view = session.answer(message)
    assert re.search(complaint, view["error"])
    assert "\n" not in view["error"]
    assert shown(view) == shown(before)


def test_improper_data_are_refused_in_the_library_s_words():
    """A loop that pays is no stochastic shortest path: the exact posterior says so, a tolerance takes it."""
    session = Session(bm.envs.two_state())
    view = session.answer({"kind": "observe", "pair": 0, "reward": 1.0})
    with pytest.raises(UnsupportedError) as said:
        bm.posterior(session.model, session.data.extended(np.array([0]), np.array([1.0])))
    assert view["error"] == str(said.value)
    assert view["count"] == 0
    session.answer({"kind": "options", "epsilon": 0.1})
    view = session.answer({"kind": "observe", "pair": 0, "reward": 1.0})
    assert (view["error"], view["count"]) == ("", 1)
    assert session.answer({"kind": "options", "epsilon": 0.0})["epsilon"] == 0.1, "kept as it was"


def test_options_that_have_no_slider_are_said():
    model = bm.envs.two_state()
    noisy = Session(model, noise_sd=1.0).view()
    assert noisy["epsilon"] is None
    assert "noise replaces the tolerance" in noisy["noise"]
    flat = Session(model, reward_belief=(-5.0, 2.0)).view()
    assert (flat["prior_scale"], flat["prior"], flat["proper_only"]) == (None, "flat over rewards", True)
    own = Session(model, prior_scale=np.array([1.0, 2.0])).view()
    assert own["prior"] == "one per move"


@pytest.mark.parametrize("engine", ["auto", "chart", "mixture"])
def test_an_engine_may_be_asked_for(engine):
    view = Session(bm.envs.two_state(), epsilon=0.5, engine=engine).answer({"kind": "observe", "pair": 1})
    assert (view["error"], view["engine"]) == ("", "mixture" if engine == "mixture" else "chart")


def test_a_sharper_answer_is_as_sharp_as_that_of_posterior():
    model = bm.envs.deep_sea(depth=3)
    session = Session(model, bm.Dataset.from_pairs(model, [("0,0", "right"), ("1,1", "left")]), epsilon=0.1)
    assert not session.view()["sharp"]
    view = session.answer({"kind": "sharpen"})
    assert view["sharp"]
    assert view["probability"] == bm.posterior(model, session.data, epsilon=0.1).action_probability.value.tolist()


def test_where_open_moves_led_is_learnt(open_problem):
    model = read_problem(open_problem)
    session = Session(model, laws="known")
    assert session.view()["laws"] == "dirichlet", "with known laws nothing could be said of the open move"
    pair, walk = model.pair_index["dock", HOSTILE], model.pair_index["dock", "walk"]
    session.answer({"kind": "observe", "pair": walk})
    view = session.answer({"kind": "observe", "pair": pair, "reward": -1.0, "next": model.n_states})
    assert view["error"] == ""
    assert view["landed"] == [(pair, model.n_states, 1.0)]
    assert view["probability"][pair] > 0.5
    view = session.answer({"kind": "observe", "pair": pair, "next": model.state_index[HOSTILE]})
    assert view["landed"] == [(pair, 1, 0.5), (pair, 2, 0.5)]
    assert session.answer({"kind": "observe", "pair": pair})["error"].endswith("or remove the observation")
    assert session.answer({"kind": "options", "laws": "deterministic"})["error"] != "", "it led to two places"


def test_what_is_saved_is_read_back(tmp_path):
    model = bm.envs.deep_sea(depth=3)
    session = Session(model)
    assert not session.unsaved
    session.answer({"kind": "observe", "pair": 0, "reward": 0.5})
    session.answer({"kind": "observe", "pair": 0, "reward": 0.5})
    assert session.unsaved
    (tmp_path / "one.json").write_text(session.answer({"kind": "save"})["file"])
    assert json.loads((tmp_path / "one.json").read_text())["format"] == "bellmanifold.data/1"
    assert not session.unsaved
    session.answer({"kind": "believe", "pair": 3, "mean": 1.0, "sd": 2.0})
    (tmp_path / "two.json").write_text(session.answer({"kind": "save"})["file"])
    again = bm.load_data(tmp_path / "two.json", model)
    for name in ("pair", "reward", "sd", "next"):
        np.testing.assert_array_equal(getattr(again, name), getattr(session.data, name))


def test_only_so_many_observations_are_listed():
    model = bm.envs.two_state()
    session = Session(model, bm.Dataset.from_pairs(model, [("s1", "stay")] * 500))
    view = session.view()
    assert (view["count"], len(view["observations"]), view["observations"][0]["index"]) == (500, 200, 499)


def test_changes_after_the_warming_need_no_new_program(caplog, no_programs):
    """Exact rewards, beliefs, both and a tolerance: the large programs are there already."""
    model = bm.envs.deep_sea(depth=4)
    session = Session(model)
    assert [session.answer({"kind": "warm"})["cold"] for _ in range(4)] == [2, 1, 0, 0]
    assert session.view()["count"] == 0
    with jax.log_compiles(), caplog.at_level("WARNING"):
        for pair in range(0, 12, 2):
            session.answer({"kind": "observe", "pair": pair})
        session.answer({"kind": "believe", "pair": 1, "mean": 0.0, "sd": 1.0})
        session.answer({"kind": "options", "epsilon": 0.1})
        session.answer({"kind": "options", "prior_scale": 3.0})
    compiled = {found for line in caplog.messages for found in re.findall(r"XLA compilation of jit\((\w+)\)", line)}
    assert not compiled & {"weigh_pieces", "solve_layout", "_normal"}, compiled


def test_pies_of_depth_five_move_within_three_tenths_of_a_second():
    """Seconds of work, since other programs may be busy here: on a machine of its own no more pass on the clock."""
    model = bm.envs.deep_sea(depth=5)
    session = Session(model)
    while session.answer({"kind": "warm"})["cold"]:
        pass
    for pair in range(0, model.n_pairs, 3):
        began = time.process_time()
        assert session.answer({"kind": "observe", "pair": pair})["error"] == ""
        assert time.process_time() - began < 0.3


def test_wrong_arguments_are_named():
    model = bm.envs.two_state()
    with pytest.raises(BadInputError, match='unknown option "epsilom"'):
        Session(model, epsilom=1)
    with pytest.raises(BadInputError, match="the data belong to"):
        Session(model, bm.Dataset.from_pairs(bm.envs.four_state(), []))
    with pytest.raises(BadInputError, match=r"explore: 899 states and 3,596 arrows are too many to draw, at most 200"):
        Session(bm.envs.grid(30, 30, slip=0.0))


def test_wrong_types_are_named():
    """In a process of its own, because the tests check types before the library can say something."""
    code = """
import bellmanifold as bm
from bellmanifold.errors import BadInputError
for given in (["env:two-state"], [bm.envs.two_state(), [("s1", "go")]]):
    try:
        bm.explore(*given)
    except BadInputError as error:
        print(error)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    problem, data = done.stdout.splitlines()
    assert problem.startswith('the model is the string "env:two-state": give a problem (SSP), from bm.load_model')
    assert data.startswith("data is a list: give a bm.Dataset")


def test_every_kind_of_message_is_answered():
    session = Session(bm.envs.two_state())
    for kind in KINDS:
        assert "probability" in session.answer({"kind": kind})


# ---- the drawing -------------------------------------------------------------------------------------------------


def test_colours_differ_within_a_state():
    moves = {("s", f"a{k}"): Move(-1.0, {"goal": 1.0}) for k in range(20)}
    moves |= {("t", f"b{k}"): Move(-1.0, {"s": 1.0}) for k in range(5)}
    model = from_moves("many", moves, start="t")
    colours = np.array(pair_colours(model))
    for state in range(model.n_states):
        own = colours[model.pair_start[state] : model.pair_start[state + 1]]
        assert len(set(own)) == len(own)
    few = bm.envs.deep_sea(depth=3)
    assert len(set(pair_colours(few))) == 2, "an action has one colour everywhere, where there are few"


def test_the_goal_has_its_own_name(open_problem):
    assert make_board(read_problem(open_problem))["goal"] == "delivered"


def test_states_do_not_cover_each_other_whatever_the_unit():
    for model in (bm.envs.deep_sea(depth=4), bm.envs.roads(), bm.envs.grid(4, 4), bm.envs.pyramid()):
        place = np.array(make_board(model)["places"])
        apart = np.hypot(*(place[:, None] - place[None]).transpose(2, 0, 1)) + 9 * np.eye(len(place))
        assert np.quantile(apart.min(axis=1), 0.2) >= 0.9
        assert np.median(apart.min(axis=1)) < 3


def test_names_cannot_leave_the_page_s_data(open_problem):
    session = Session(read_problem(open_problem))
    page = make_local_page(session.board, session.view())
    assert page.count("</script>") == 2
    assert page.count("<script") == 2
    found = re.search(r'id="bellmanifold-data">(.*?)</script>', page, re.DOTALL)
    assert json.loads(found[1])["board"]["states"] == ["dock", HOSTILE]
    assert "http://" not in page.replace("http://www.w3.org/2000/svg", "")
    assert "https://" not in page


def test_the_policy_allows_nothing_but_the_page_itself():
    parts = policy().split("; ")
    assert parts[0] == "default-src 'none'"
    assert "connect-src 'self'" in parts
    assert not [part for part in parts if "unsafe" in part or "*" in part or "http" in part]


# ---- in a notebook -----------------------------------------------------------------------------------------------


def test_the_widget_answers_and_keeps_the_data(tmp_path):
    model = bm.envs.two_state()
    widget = bm.explore(model, epsilon=0.1)
    assert repr(widget) == 'Exploration(SSP("two-state", 1 state, 2 pairs), 0 observations)'
    widget._handle_custom_msg({"kind": "observe", "id": "a-1", "pair": 1, "reward": -2.0}, [])
    assert widget.view["answers"] == "a-1"
    assert widget.view["probability"] == widget.summary.action_probability.value.tolist()
    assert widget.data.reward.tolist() == [-2.0]
    widget._handle_custom_msg({"kind": "observe", "id": "a-2", "pair": 1, "reward": 5.0}, [])
    assert "deterministic rewards must repeat" in widget.view["error"]
    assert len(widget.data) == 1
    widget.save(tmp_path / "data.json")
    assert bm.load_data(tmp_path / "data.json", model).reward.tolist() == [-2.0]
    assert "export default" in widget._esm
    assert "anywidget" not in sys.modules["bellmanifold_lab.explorer.session"].__dict__


def test_the_page_of_the_documentation_prints_what_it_shows():
    found = [differences("" if p.shown is None else p.shown, p.got) for p in run_page(ROOT / "docs/explore.md")]
    assert found
    assert not any(found)


# ---- the command and its server ----------------------------------------------------------------------------------


@contextmanager
def exploring(*arguments, cwd=None):
    """Start the command; hands over its process and the page's address, and interrupts it at the end."""
    environment = os.environ | {"BROWSER": "", "DISPLAY": "", "WAYLAND_DISPLAY": ""}
    process = subprocess.Popen(
        [sys.executable, "-m", "bellmanifold", "explore", *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
        cwd=cwd,
    )
    try:
        line = process.stdout.readline()
        assert re.fullmatch(r"open http://127\.0\.0\.1:\d+/[\w-]{32}/\n", line), process.communicate(timeout=60)
        yield process, line.removeprefix("open ").strip()
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGINT)
            process.wait(60)
        process.stdout.close()
        process.stderr.close()


def request(address, method="GET", place="", body=None, **headers):
    """Status, headers and body of an answer; a header that is None is left out."""
    host, _, token = address.removeprefix("http://").strip("/").partition("/")
    connection = http.client.HTTPConnection(host, timeout=60)
    sent = {"Host": host, "Content-Type": "application/json"} | {
        name.replace("_", "-"): value for name, value in headers.items()
    }
    path = place if place.startswith("/") else f"/{token}/{place}"
    connection.putrequest(method, path, skip_host=True)
    for name, value in sent.items():
        if value is not None:
            connection.putheader(name, value)
    content = b"" if body is None else body if isinstance(body, bytes) else json.dumps(body).encode()
    if body is not None and "Content-Length" not in sent:
        connection.putheader("Content-Length", str(len(content)))
    connection.endheaders(content)
    answer = connection.getresponse()
    found = answer.status, dict(answer.getheaders()), answer.read().decode()
    connection.close()
    return found


@pytest.fixture(scope="module")
def address():
    with exploring("env:two-state", "--epsilon", "0.1") as (_, found):
        yield found


def test_the_page_and_its_answers(address):
    status, headers, page = request(address)
    assert status == 200
    assert 'id="bellmanifold-page"' in page
    assert headers["Content-Security-Policy"] == policy()
    assert headers["Cache-Control"] == "no-store"
    status, headers, answer = request(address, "POST", "answer", {"kind": "observe", "id": 1, "pair": 1})
    assert status == 200
    assert (json.loads(answer)["count"], json.loads(answer)["error"]) == (1, "")
    assert not [name for name in headers if name.lower().startswith("access-control")]
    own = address.rsplit("/", 2)[0]
    assert request(address, "POST", "answer", {"kind": "undo"}, Origin=own)[0] == 200
    port = own.rsplit(":", 1)[1]
    assert request(address, Host=f"localhost:{port}")[0] == 200


@pytest.mark.parametrize(
    "changed",
    [
        {"place": "/"},
        {"place": "/favicon.ico"},
        {"place": "/answer", "method": "POST", "body": {"kind": "look"}},
        {"place": f"/{'a' * 32}/"},
        {"place": f"/{'a' * 32}/answer", "method": "POST", "body": {"kind": "look"}},
        {"place": "//"},
        {"Host": "example.org"},
        {"Host": None},
        {"Host": "127.0.0.1"},
        {"Origin": "https://example.org"},
        {"Origin": "null"},
        {"Origin": "http://127.0.0.1"},
        {"Origin": "https://example.org", "method": "POST", "place": "answer", "body": {"kind": "look"}},
        {"Origin": "https://example.org", "method": "POST", "place": "stop", "body": b""},
    ],
)
def test_strangers_are_refused(address, changed):
    status, headers, said = request(address, **changed)
    assert status == 403
    assert said == "refused: open the address that the program printed"
    assert not [name for name in headers if name.lower().startswith("access-control")]


@pytest.mark.parametrize(
    ("changed", "status"),
    [
        ({"place": "else"}, 404),
        ({"place": "answer"}, 404),
        ({"place": "", "method": "POST", "body": {"kind": "look"}}, 404),
        ({"place": "../", "method": "POST", "body": b""}, 404),
        ({"place": "answer", "method": "POST", "body": b"{", "Content_Type": "text/plain"}, 415),
        ({"place": "answer", "method": "POST", "body": b"{"}, 400),
        ({"place": "answer", "method": "POST", "body": b"[]"}, 400),
        ({"place": "answer", "method": "POST"}, 413),
        ({"place": "answer", "method": "POST", "Content_Length": "99999999"}, 413),
        ({"place": "answer", "method": "OPTIONS", "Origin": "https://example.org"}, 501),
        ({"place": "stop", "method": "POST", "body": b""}, 200),
    ],
)
def test_odd_requests_are_answered_shortly(address, changed, status):
    found, headers, _ = request(address, **changed)
    assert found == status
    assert not [name for name in headers if name.lower().startswith("access-control")]


def test_an_interrupt_ends_it_with_a_line(tmp_path):
    model = bm.envs.two_state()
    bm.write_data(bm.Dataset.from_pairs(model, [("s1", "go")]), tmp_path / "data.json")
    with exploring("env:two-state", tmp_path / "data.json", "--no-browser") as (process, found):
        assert json.loads(request(found, "POST", "answer", {"kind": "look"})[2])["count"] == 1
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=60)
        assert process.returncode == 130
        assert said.splitlines() == [
            "Ctrl-C ends it.",
            "bellmanifold: interrupted: the page is closed; the same command opens another one",
        ]


def test_an_interrupt_says_what_was_not_saved():
    with exploring("env:two-state") as (process, found):
        request(found, "POST", "answer", {"kind": "observe", "pair": 1})
        process.send_signal(signal.SIGINT)
        assert "its data were changed and not saved" in process.communicate(timeout=60)[1]


def test_a_port_is_taken_if_it_is_free(address, cli):
    port = re.search(r":(\d+)/", address)[1]
    code, out, err = cli("explore", "env:two-state", "--port", port, "--no-browser")
    assert (code, out) == (2, "")
    assert f"--port {port}: cannot be used: address already in use: choose another one" in err
    code, out, err = cli("explore", "env:two-state", "--port", "99999", "--no-browser")
    assert (code, out) == (2, "")
    assert "give a number from 0 to 65535" in err


def test_what_the_command_refuses(cli, tmp_path):
    code, out, err = cli("explore", "env:grid?rows=30&columns=30")
    assert (code, out) == (2, "")
    assert "at most 200" in err
    assert cli("explore", "env:two-state", str(tmp_path / "none.json"))[0] == 2
    code, out, _ = cli("explore", "--help")
    assert code == 0
    assert 'Example: bellmanifold explore "env:deep-sea?depth=5"' in out
    assert "[DATA]" in out


class Slow(Session):
    """A session whose answers take for ever, unless they are interrupted."""

    board = make_board(bm.envs.two_state())

    def __init__(self, swallows):
        self.swallows, self.started = swallows, threading.Event()

    def answer(self, message):
        if message["kind"] == "look":
            return self.view(message)
        self.started.set()
        try:
            for _ in range(6000):
                time.sleep(0.01)
        except KeyboardInterrupt:
            if self.swallows:
                raise StoppedError("interrupted: nothing was changed") from None
            raise
        raise AssertionError("nobody interrupted it")

    def view(self, message=None, error=""):
        return {"kind": message["kind"], "error": error}


class Advising(Session):
    """A session whose advice takes as long as it is told to."""

    board = make_board(bm.envs.two_state())

    def __init__(self):
        self.begun, self.enough = threading.Event(), threading.Event()

    def answer(self, message):
        if message["kind"] == "advise":
            self.begun.set()
            assert self.enough.wait(30)
        return {"kind": message["kind"]}


def run_until_interrupted(server, visit):
    """Do the server's errands while somebody visits it, who interrupts it in the end."""
    visitor = threading.Thread(target=visit)
    visitor.start()
    with pytest.raises(KeyboardInterrupt):
        server.run_errands()
    visitor.join(30)
    server.shutdown()


def test_pies_do_not_wait_for_advice():
    """A message that comes while advice is computed is answered before it."""
    session, answers = Advising(), []
    with LocalServer(0, session) as server:
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()

        def visit():
            def advise():
                answers.append(request(server.address, "POST", "answer", {"kind": "advise"})[2])

            waiting = threading.Thread(target=advise)
            waiting.start()
            assert session.begun.wait(30)
            answers.append(request(server.address, "POST", "answer", {"kind": "look"})[2])
            session.enough.set()
            waiting.join(30)
            interrupt_main()

        run_until_interrupted(server, visit)
    assert [json.loads(body)["kind"] for body in answers] == ["look", "advise"]


@pytest.mark.parametrize("swallows", [False, True])
def test_the_page_stops_what_is_computed_and_nothing_else(swallows):
    """An interrupt that the page asks for is answered, the next message too; one that it did not ask for ends it."""
    session, answers = Slow(swallows), []
    with LocalServer(0, session) as server:
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()

        def visit():
            waiting = threading.Thread(
                target=lambda: answers.append(request(server.address, "POST", "answer", {"kind": "warm"}))
            )
            waiting.start()
            session.started.wait(30)
            answers.append(request(server.address, "POST", "stop", b""))
            waiting.join(30)
            answers.append(request(server.address, "POST", "stop", b""))
            answers.append(request(server.address, "POST", "answer", {"kind": "look"}))
            interrupt_main()

        run_until_interrupted(server, visit)
    assert [status for status, _, _ in answers] == [200] * 4
    said = [json.loads(body) for _, _, body in answers if body.startswith("{")]
    assert said == [{"kind": "warm", "error": "stopped; nothing was changed"}, {"kind": "look", "error": ""}]
