"""What is too large is said at once; nothing that is read runs code, and nothing is written elsewhere.

Commands run in processes of 4 GB, so that whoever allocates first and asks later is found out.
"""

import ast
import io
import json
import os
import re
import subprocess
import sys
import zipfile
from dataclasses import replace
from pathlib import Path

import h5py
import numpy as np
import pytest
from hostile import call, elsewhere, require_answer
from test_report import keep

from bellmanifold import envs
from bellmanifold._util.limits import BYTES, NUMBERS, RUNS, SIZE, TEXT_SHARE, WORKERS, Limit
from bellmanifold.envs.building import Move, from_moves
from bellmanifold.errors import BadInputError
from bellmanifold.io.gymnasium import make_gymnasium
from bellmanifold.io.problem import read_problem, to_json_text, write_problem
from bellmanifold.learning.netcdf import read_netcdf, read_variables
from bellmanifold.learning.run_file import SEAL_BYTES, seal, verify
from bellmanifold.pictures import draw
from bellmanifold.posteriors.most_probable import MOST_ROUTES
from bellmanifold_lab.sweeps.store import LOG_FILE, Store

SOURCE = Path(__file__).parent.parent / "src" / "bellmanifold"
LAB = SOURCE.with_name("bellmanifold_lab")
FOUR_GIGABYTES = 4 * 2**30
HUGE = str(10**12)
DATA = {"format": "bellmanifold.data/1", "observations": [{"state": "s1", "action": "stay"}]}


def in_four_gigabytes(room, *arguments, seconds=120):
    """A command in a process of its own."""
    done = subprocess.run(
        ["prlimit", f"--as={FOUR_GIGABYTES}", sys.executable, "-m", "bellmanifold", *arguments],
        cwd=room,
        capture_output=True,
        text=True,
        timeout=seconds,
        env={**os.environ, "XDG_CACHE_HOME": str(room / "cache")},
    )
    return done.returncode, done.stdout, done.stderr


@pytest.fixture
def room(tmp_path):
    (tmp_path / "d.json").write_text(json.dumps(DATA))
    plan = "model = 'env:two-state'\nagent = 'q-learning'\n"
    (tmp_path / "long.toml").write_text(plan + f"episodes = {HUGE}\nseeds = 0\n")
    axes = {"epsilon": range(1, 1001), "prior_scale": range(1, 1001), "seeds": range(1000)}
    (tmp_path / "many.toml").write_text(
        plan.replace("q-learning", "bayes-br") + "".join(f"{key} = {list(values)}\n" for key, values in axes.items())
    )
    return tmp_path


TOO_LARGE = [
    (("env", "show", "env:deep-sea?depth=1000000"), SIZE.variable),
    (("check", f"env:grid?rows={HUGE}&columns=3"), SIZE.variable),
    (("posterior", "env:two-state", "d.json", "--samples", HUGE), "samples is"),
    (("posterior", "env:two-state", "d.json", "--epsilon", "0.1", "--engine", "nuts", "--samples", HUGE), "samples is"),
    (("learn", "env:two-state", "--agent", "q-learning", "--episodes", HUGE), NUMBERS.variable),
    (("learn", "env:two-state", "--agent", "q-learning", "--runs", HUGE, "--out", "x"), "runs are above 200,000"),
    (("sweep", "long.toml", "--out", "x"), NUMBERS.variable),
    (("sweep", "many.toml", "--out", "x", "--dry-run"), "runs are above 200,000"),
    (("sweep", "long.toml", "--out", "x", "--workers", HUGE), "processes are above 256"),
    (("reproduce", "deep-sea-regret", "--out", "x", "--runs", HUGE), "runs are above 200,000"),
]


@pytest.mark.parametrize(("arguments", "names"), TOO_LARGE, ids=lambda item: " ".join(item)[:40])
def test_too_large_is_said_at_once(room, monkeypatch, arguments, names):
    monkeypatch.chdir(room)
    code, out, err = call(*arguments)
    require_answer(code, out, err)
    assert code == 2
    assert names in err
    assert not (room / "x").exists()


def test_too_many_routes_are_refused_and_the_default_is_not(tmp_path, monkeypatch):
    """Deep sea 12 has 4,096 routes; before, `--top` took whatever memory they needed."""
    model = "env:deep-sea?depth=12"
    (tmp_path / "d.json").write_text(json.dumps(DATA | {"observations": [{"state": "0,0", "action": "left"}]}))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("bellmanifold.posteriors.most_probable.MOST_ROUTES", 4000)
    code, out, err = call("posterior", model, "d.json", "--epsilon", "1", "--top", HUGE)
    require_answer(code, out, err)
    assert code == 2
    assert "--top" in err
    assert "4,000 routes" in err
    code, out, _ = call("posterior", model, "d.json", "--epsilon", "1", "--json")
    assert code == 0
    assert len(json.loads(out)["routes"]) == 1000


@pytest.mark.slow
@pytest.mark.parametrize(("arguments", "names"), TOO_LARGE, ids=lambda item: " ".join(item)[:40])
def test_too_large_is_said_in_little_memory(room, arguments, names):
    code, out, err = in_four_gigabytes(room, *arguments)
    require_answer(code, out, err)
    assert code == 2
    assert names in err


@pytest.mark.slow
def test_the_largest_built_in_problems_fit(room):
    for reference in ("env:grid?rows=550&columns=560", "env:deep-sea?depth=1100"):
        code, _, err = in_four_gigabytes(room, "env", "show", reference, seconds=600)
        assert (code, err) == (0, "")


def test_limits_can_be_raised(monkeypatch):
    limit = Limit(10, "things", "BELLMANIFOLD_MAX_SOMETHING")
    with pytest.raises(BadInputError, match=r"it: 11 things are above 10: .*BELLMANIFOLD_MAX_SOMETHING"):
        limit.require(11, "it")
    monkeypatch.setenv(limit.variable, "11")
    limit.require(11, "it")
    for wrong in ("", "many", "-1", "1e9", "9" * 30):
        monkeypatch.setenv(limit.variable, wrong)
        with pytest.raises(BadInputError, match="whole number"):
            limit.require(1, "it")


def test_every_limit_is_documented():
    text = (SOURCE.parent.parent / "docs" / "limits.md").read_text()
    for limit in (BYTES, SIZE, RUNS, NUMBERS, WORKERS):
        assert limit.variable in text
        assert f"{limit.default:,}" in text
    assert f"{MOST_ROUTES:,}" in text
    assert set(re.findall("BELLMANIFOLD_MAX_[A-Z]+", text)) == {SIZE.variable, NUMBERS.variable}
    assert f"1/{TEXT_SHARE}" in text


def test_the_size_of_problems_raises_that_of_their_files(monkeypatch):
    """A file may have 100 bytes for each pair and successor; the message says which number is enough."""
    with pytest.raises(BadInputError, match=f"set {SIZE.variable} to 10000001 or more"):
        BYTES.require(10**9 + 1, "the file")
    sized(monkeypatch, 10_000_001)
    BYTES.require(10**9 + 1, "the file")


# ---- files that are larger than they look ----


def sized(monkeypatch, size):
    monkeypatch.setenv(SIZE.variable, str(size))


def test_problems_above_the_limit_are_refused(monkeypatch, tmp_path):
    model = envs.deep_sea(4)
    for suffix in (".json", ".npz"):
        write_problem(model, tmp_path / f"p{suffix}")
        monkeypatch.delenv(SIZE.variable, raising=False)
        assert read_problem(tmp_path / f"p{suffix}").n_pairs == 20
        sized(monkeypatch, 39)
        with pytest.raises(BadInputError, match=SIZE.variable):
            read_problem(tmp_path / f"p{suffix}")
    sized(monkeypatch, 40)
    assert read_problem(tmp_path / "p.json").n_pairs == 20


def archive(members):
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as whole:
        for name, content in members:
            whole.writestr(name, content)
    return file.getvalue()


def test_archives_that_blow_up_are_refused(tmp_path, monkeypatch):
    path = tmp_path / "p.npz"
    path.write_bytes(archive((f"{k}.npy", b"") for k in range(2000)))
    with pytest.raises(BadInputError, match="more than 1000 arrays"):
        read_problem(path)
    array = io.BytesIO()
    np.save(array, np.zeros(2**20, dtype=np.uint8))
    path.write_bytes(archive([("next_state.npy", array.getvalue())]))
    sized(monkeypatch, 2**19)
    with pytest.raises(BadInputError, match=SIZE.variable):
        read_problem(path)


@pytest.mark.slow
@pytest.mark.parametrize("piece", [b"[],", b"{},", b'{"":0},', b"0,", b'"\\u00e9",', b'{"":{"":{}}},'])
def test_text_that_grows_when_it_is_read(room, piece):
    """Whatever JSON of the largest size is, it is read or refused in 4 GB."""
    size = BYTES.default // TEXT_SHARE
    body = piece * (size // len(piece))
    (room / "p.json").write_bytes((b'{"pairs":[' + body)[: size - 3] + b"0]}")
    code, out, err = in_four_gigabytes(room, "check", "p.json", seconds=600)
    require_answer(code, out, err)
    assert "out of memory" not in err


def test_text_above_the_limit_is_refused(tmp_path, monkeypatch):
    path = tmp_path / "p.json"
    path.write_bytes(b'{"format": "bellmanifold.ssp/1"}' + b" " * 2000)
    monkeypatch.setattr("bellmanifold.io.files.BYTES", replace(BYTES, default=16_000))
    with pytest.raises(BadInputError, match=r"above 1,000: .*npz.*BELLMANIFOLD_MAX_SIZE to 326 or more"):
        read_problem(path)


def test_plans_that_take_for_ever_to_read_are_refused(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for content, says in (
        (b"a" + b".a" * 40_000 + b" = 1", "more than 50 dots"),
        (b"#" * (2**22 + 1), "split the plan"),
    ):
        (tmp_path / "p.toml").write_bytes(content)
        code, out, err = call("sweep", "p.toml", "--out", "x")
        require_answer(code, out, err)
        assert says in err


def hdf5(fill):
    file = io.BytesIO()
    with h5py.File(file, "w") as made:
        fill(made)
    return file.getvalue()


def virtual():
    """An array that lies in another file."""
    layout = h5py.VirtualLayout(shape=(4,), dtype="f8")
    layout[:] = h5py.VirtualSource("/elsewhere.nc", "regret", shape=(4,))
    return layout


@pytest.mark.parametrize(
    "fill",
    [
        lambda file: file.create_dataset("regret", shape=(10**11,), chunks=(1024,), dtype="f8"),
        lambda file: file.__setitem__("regret", h5py.ExternalLink("/etc/hostname", "x")),
        lambda file: file.__setitem__("regret", h5py.SoftLink("/elsewhere")),
        lambda file: file.create_dataset("regret", shape=(8,), dtype="u1", external=[("/etc/hostname", 0, 8)]),
        lambda file: file.create_virtual_dataset("regret", virtual()),
        lambda file: file.create_dataset("regret", data=np.array([b"x"])),
        lambda file: file.create_dataset("regret", data=["x"], dtype=h5py.string_dtype()),
        lambda file: file.create_dataset("regret", data=h5py.Empty("f8")),
        lambda file: file.create_group("regret"),
    ],
    ids=["huge", "external link", "soft link", "external", "virtual", "bytes", "texts", "empty", "group"],
)
def test_result_files_hold_plain_arrays_of_their_own(fill):
    content = hdf5(fill)
    with pytest.raises(BadInputError):
        read_netcdf(content)
    with pytest.raises(BadInputError):
        read_variables(content, ("regret",))


def resealed(path, change):
    """A result file that somebody changed and sealed again."""
    whole = path.read_bytes()
    sealed = verify(whole)
    file = io.BytesIO(whole[:-SEAL_BYTES])
    with h5py.File(file, "r+") as made:
        change(made)
    content = file.getvalue()
    path.write_bytes(content + seal(content, *sealed))


def replaced(name, values):
    def change(file):
        del file[name]
        file[name] = values

    return change


def settings_of(**changes):
    def change(file):
        entry = json.loads(file.attrs["settings"]) | changes
        file.attrs["settings"] = json.dumps({key: value for key, value in entry.items() if value != "gone"})

    return change


FORGED = {
    "no regret": lambda file: file.__delitem__("regret"),
    "short": replaced("regret", np.zeros(3)),
    "a table": replaced("coverage", np.zeros((6, 2))),
    "a list of seconds": replaced("seconds_total", np.zeros(2)),
    "moves": replaced("moves", np.full(6, 2**40)),
    "negative moves": replaced("moves", np.array([-1, 7, 2, 2, 2, 2])),
    "pair": replaced("pair", np.full(12, 99)),
    "pairs that are no numbers": replaced("pair", np.full(12, 0.5)),
    "route": replaced("route", np.full((3, 2), 77)),
    "routes of nothing": replaced("route", np.full((2, 2), -1)),
    "beliefs": replaced("q_mean", np.zeros((6, 1))),
    "settings": lambda file: file.attrs.__setitem__("settings", "{"),
    "no settings": lambda file: file.attrs.__delitem__("settings"),
    "a module": settings_of(model="gym:os:x"),
    "many episodes": settings_of(episodes=10**12),
    "agent": settings_of(agent=["x"]),
    "seed": settings_of(seed="x"),
    "nan": settings_of(epsilon=float("nan")),
    "no model": settings_of(model="gone"),
    "versions": lambda file: file.attrs.__setitem__("versions", "[1"),
    "format": lambda file: file.attrs.__setitem__("format", "x"),
}


@pytest.fixture(scope="module")
def genuine(tmp_path_factory):
    root = tmp_path_factory.mktemp("genuine")
    settings = keep(root, model="env:deep-sea?depth=2", agent="bayes-td")
    return Store(root).path(settings)


@pytest.mark.parametrize("case", FORGED)
def test_forged_results_are_refused_in_one_line(genuine, case):
    """Sealed anew, so that only what is in them can give them away."""
    with elsewhere() as inside:
        (inside / "runs").mkdir()
        copy = inside / "runs" / genuine.name
        copy.write_bytes(genuine.read_bytes())
        try:
            resealed(copy, FORGED[case])
        except KeyError:
            pytest.fail(f"the run has nothing to forge for {case}")
        code, out, err = call("report", "runs")
        require_answer(code, out, err)
        assert code == (0 if case in ("a module", "versions") else 2), err


# ---- nothing runs, nothing is written elsewhere ----


FORBIDDEN = {"pickle", "cPickle", "dill", "cloudpickle", "joblib", "shelve", "marshal", "yaml"}
DANGEROUS = {"eval", "exec", "compile", "__import__"}


def test_nothing_is_unpickled_or_evaluated():
    """No module that unpickles is imported, np.load reads no file of a user, nothing is evaluated, no shell runs."""
    by_fixed_names = [SOURCE / name for name in ("__init__.py", "agents/registry.py", "_util/display.py")]
    by_fixed_names += [SOURCE / "problem" / name for name in ("dataset.py", "ssp.py")]
    by_fixed_names += [SOURCE.with_name("bellmanifold_paper") / "__init__.py", LAB / "report" / "ledger.py"]
    for path in sorted(SOURCE.parent.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            names = [alias.name for alias in node.names] if isinstance(node, (ast.Import, ast.ImportFrom)) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            assert not FORBIDDEN & {name.split(".")[0] for name in names}, path
            if isinstance(node, ast.Call):
                called = node.func.id if isinstance(node.func, ast.Name) else getattr(node.func, "attr", "")
                assert not (isinstance(node.func, ast.Name) and called in DANGEROUS), path
                assert called not in ("open_zarr", "read_pickle", "popen"), path
                assert ast.unparse(node.func) not in ("os.system", "os.popen"), path
                assert called != "import_module" or path in by_fixed_names, path
                of_numpy = isinstance(node.func, ast.Attribute) and ast.unparse(node.func.value) in ("np", "numpy")
                # SciPy's own table, and arrays that our own process wrote; both without pickled objects
                ours = path in (SOURCE / "gaussian" / "sobol.py", SOURCE / "io" / "storm.py")
                assert not (of_numpy and called in ("load", "fromregex", "genfromtxt")) or ours, path
                keywords = {word.arg: word.value for word in node.keywords}
                assert "allow_pickle" not in keywords, path
                shell = keywords.get("shell")
                assert shell is None or (isinstance(shell, ast.Constant) and shell.value is False), path


def test_names_of_environments_import_nothing(tmp_path, monkeypatch):
    (tmp_path / "evil_module_of_others.py").write_text("raise SystemExit('it ran')")
    monkeypatch.syspath_prepend(str(tmp_path))
    for name in ("evil_module_of_others:CartPole-v1", "evil_module_of_others:x", ":", "os:"):
        with pytest.raises(BadInputError, match="would import a module"):
            make_gymnasium(name)
    assert "evil_module_of_others" not in sys.modules


def test_logs_and_folders_do_not_follow_links(tmp_path):
    outside = tmp_path / "precious"
    outside.write_text("mine")
    out = tmp_path / "out"
    out.mkdir()
    (out / LOG_FILE).symlink_to(outside)
    with pytest.raises(Exception, match=r"failures\.log: cannot be written"):
        Store(out).log("ours")
    assert outside.read_text() == "mine"
    (tmp_path / "demo").mkdir()
    (tmp_path / "demo" / "runs").symlink_to(tmp_path / "elsewhere", target_is_directory=True)
    code, stdout, err = call("demo", "--out", tmp_path / "demo")
    require_answer(code, stdout, err)
    assert "symbolic link" in err
    assert not (tmp_path / "elsewhere").exists()


def test_links_in_the_place_of_results_are_replaced_not_followed(tmp_path, monkeypatch):
    outside = tmp_path / "precious"
    outside.write_text("mine")
    out = tmp_path / "out"
    out.mkdir()
    (out / "plan.json").symlink_to(tmp_path / "nowhere")
    (out / "report.html").symlink_to(outside)
    command = ("learn", "env:two-state", "--agent", "q-learning", "--episodes", "2", "--runs", "1", "--out", out)
    assert call(*command)[0] == 0
    for path in out.glob("*.nc"):
        path.unlink()
        path.symlink_to(outside)
    assert call(*command)[0] == 0
    monkeypatch.chdir(tmp_path)
    assert call("report", "out")[0] == 0
    assert outside.read_text() == "mine"
    assert not (tmp_path / "nowhere").exists()


@pytest.mark.parametrize(
    "name", ["../../x.json", "a/../../b.json", "..", "💥\u202e.json", "x" * 200 + ".json", "%2e%2e.json"]
)
def test_names_of_problems_stay_inside(name, tmp_path, monkeypatch):
    """Whatever a problem's file is called, and whatever is in it: runs lie flat in their directory."""
    work = tmp_path / "a" / "b" / "c"
    work.mkdir(parents=True)
    monkeypatch.chdir(work)
    text = to_json_text(envs.two_state()).replace("two-state", "../../name").replace('"s1"', '"../../state"')
    target = (work / name).resolve() if name != ".." else work / "p.json"
    target.write_text(text)
    (work / "a").mkdir(exist_ok=True)
    reference = name if name != ".." else "../c/p.json"
    before = set(tmp_path.rglob("*"))
    code, _, err = call("learn", reference, "--agent", "q-learning", "--episodes", 2, "--runs", 1, "--out", "out")
    assert code == 0, err
    assert call("report", "out")[0] == 0
    new = set(tmp_path.rglob("*")) - before
    assert all(path == work / "out" or path.parent == work / "out" for path in new), new


def test_a_drawing_that_is_too_large_is_refused_before_the_work(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "d.json").write_text(json.dumps({**DATA, "observations": []}))
    for model in ("env:grid?rows=50&columns=50", "env:grid?rows=40&columns=40&slip=0.1"):
        code, out, err = call("posterior", model, "d.json", "--picture", "x.png")
        require_answer(code, out, err)
        assert code == 2
        assert "too many for a picture" in err


@pytest.mark.parametrize("name", ["999999999,0", "9" * 5000 + ",1", "٣,٣", "1,999999", "00,1"])
def test_cells_far_away_are_drawn_or_are_no_cells(name):
    """A cell in row 10^9 made us list the whole triangle above it, one with 5,000 digits ended in a traceback."""
    from matplotlib import pyplot

    model = from_moves("far", {(name, "go"): Move(-1.0, {"goal": 1.0})}, start=name)
    for metadata in ({}, {"goal_cell": name}, {"grid": [10**400, 10**400]}):
        assert draw(replace(model, metadata=metadata)).figure is not None
    pyplot.close("all")
