"""The command line: arguments in, one library call, text or JSON out, and the documented exit codes."""

from __future__ import annotations

import os
import sys
import traceback
import warnings
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from bellmanifold import __version__
from bellmanifold.commands.demo import demo
from bellmanifold.commands.learn import learn
from bellmanifold.commands.paper import add_reproduce
from bellmanifold.commands.report import report
from bellmanifold.commands.sweep import sweep
from bellmanifold.commands.terminal import AsJson, Model, complain, print_json, print_table, say, working
from bellmanifold.errors import BadInputError, BellmanifoldError, DiskError, quote
from bellmanifold.interrupts import interruptible
from bellmanifold.runs.environment import keep_compiled_programs
from bellmanifold.stderr import remark

# Typer raises Click's exceptions, from its own copy of Click or from Click itself, depending on its version.
_UsageError: Any = typer.BadParameter.__mro__[1]
_ClickException: Any = typer.BadParameter.__mro__[2]

app = typer.Typer(
    help="Bayesian learning in stochastic shortest path problems.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
env_app = typer.Typer(help="Look at problems: built-in ones, files, Gymnasium's.", no_args_is_help=True)
app.add_typer(env_app, name="env")
app.command("learn")(learn)
app.command("sweep")(sweep)
add_reproduce(app)
app.command("report")(report)
app.command("demo")(demo)

Discount = Annotated[
    float | None, typer.Option(metavar="G", help="Treat the problem discounted by G in (0, 1] instead.")
]

SHOWN_MASS = 5e-5
"""Improper mass that four digits would show as 0 is not mentioned."""


def _print_version(wanted: bool | None) -> None:
    if wanted:
        typer.echo(__version__)
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool | None, typer.Option("--version", help="Print the version.", is_eager=True, callback=_print_version)
    ] = None,
) -> None:
    """Bayesian learning in stochastic shortest path problems."""


@env_app.command("list")
def env_list() -> None:
    """List the built-in problems and their parameters.

    Example: bellmanifold env list
    """
    import inspect

    from bellmanifold.envs import BUILT_IN

    for name, build in BUILT_IN.items():
        defaults = {p.name: p.default for p in inspect.signature(build).parameters.values()}
        takes = [f"{key}={_shown(value)}" for key, value in defaults.items() if value not in (None, "")]
        optional = [key for key, value in defaults.items() if value in (None, "")]
        about = (inspect.getdoc(build) or "").splitlines()[0]
        typer.echo(f"env:{name}{'?' if takes else ''}{'&'.join(takes)}\n    {about}")
        if optional:
            typer.echo(f"    It also takes {', '.join(optional)}.")


@env_app.command("show")
def env_show(model: Model, json_out: AsJson = False) -> None:
    """Show a problem: its size, its start and its pairs.

    Example: bellmanifold env show "env:swirl?depth=3"
    """
    from bellmanifold.formats.problem import to_json_text
    from bellmanifold.models import load_model

    problem = load_model(model)
    if json_out:
        typer.echo(to_json_text(problem), nl=False)
        return
    start = [f"{_short(problem.states[s])} ({problem.initial[s]:.4g})" for s in problem.initial.nonzero()[0]]
    unknown = int((problem.open_reward | problem.open_law).sum())
    size = f"{problem.n_states} states, {problem.n_pairs} pairs" + (f" ({unknown} of them open)" if unknown else "")
    say(f"{_short(problem.name or model)}: {size}, goal {_short(problem.goals[0])}")
    say(f"starts in {_listed(start)}")
    if problem.prior is not None:
        say(f"prior of action values: {problem.prior}")
    rows = [("state", "action", "reward", "leads to")]
    shown = min(problem.n_pairs, 40)
    for i in range(shown):
        own = range(problem.next_start[i], problem.next_start[i + 1])
        leads = [f"{_short(problem.state_name(problem.next_state[e]))} ({problem.next_prob[e]:.4g})" for e in own]
        reward = "open" if problem.open_reward[i] else f"{problem.reward[i]:.6g}"
        rows.append((*problem.pair_name(i), reward, _listed(leads) or "open"))
    print_table(rows)
    if shown < problem.n_pairs:
        typer.echo(f"... and {problem.n_pairs - shown} pairs more (--json prints them all)")


@env_app.command("export")
def env_export(
    model: Model, out: Annotated[Path, typer.Option(metavar="FILE", help="Where to write: .json or .npz.")]
) -> None:
    """Write a problem to a file, to edit it or to hand it on.

    Example: bellmanifold env export "env:grid?rows=4&columns=4&slip=0.1" --out robot.json
    """
    from bellmanifold.formats.files import label
    from bellmanifold.formats.problem import write_problem
    from bellmanifold.models import load_model

    write_problem(load_model(model), out)
    remark(f"wrote {label(out)}")


@app.command()
def check(
    model: Model,
    discount: Discount = None,
    full: Annotated[bool, typer.Option("--full", help="Compute the directions u also above 1,000 pairs.")] = False,
    json_out: AsJson = False,
) -> None:
    """Say whether the theory applies to a problem; exit code 1 if not.

    Example: bellmanifold check env:swirl
    """
    from bellmanifold.health import check as check_model
    from bellmanifold.models import load_model

    health = check_model(load_model(model), discount=discount, full=full)
    if json_out:
        print_json(health.to_dict())
    else:
        moves = "deterministic" if health.model.is_deterministic else "stochastic"
        loops = "acyclic" if health.acyclic else "cyclic"
        size = f"{health.model.n_states} states, {health.model.n_pairs} pairs"
        say(f"{_short(health.model.name or model)}: {size}, {moves}, {loops}")
        for message in health.messages:
            say(f"- {message}")
        if not health.holds:
            typer.echo("- with --discount G (below 1) any problem satisfies both assumptions")
    if not health.holds:
        raise typer.Exit(1)


@app.command()
def solve(
    model: Model,
    discount: Discount = None,
    method: Annotated[
        Literal["vi", "pi", "lp"] | None,
        typer.Option(
            help="Value iteration, policy iteration or linear programming; by default what suits the problem."
        ),
    ] = None,
    json_out: AsJson = False,
) -> None:
    """Compute the optimal values and all optimal actions.

    Example: bellmanifold solve gym:CliffWalking-v1 --json
    """
    from bellmanifold.models import load_model
    from bellmanifold.solver import solve as solve_model

    solution = solve_model(load_model(model), method=method, discount=discount)
    answer = solution.to_dict()
    if json_out:
        print_json(answer)
        return
    say(f"{_short(solution.model.name or model)}: optimal value from the start {solution.value_at_start:.10g}")
    typer.echo(
        f"method {solution.method}, iterations {solution.iterations}, largest residual {solution.max_residual:.2g}"
    )
    states = list(answer["value"])[:40]
    rows = [("state", "value", "optimal actions")]
    rows += [(s, f"{answer['value'][s]:.8g}", ", ".join(answer["optimal_actions"][s])) for s in states]
    print_table(rows)
    if len(states) < solution.model.n_states:
        typer.echo(f"... and {solution.model.n_states - len(states)} states more (--json prints them all)")


@app.command()
def posterior(
    model: Model,
    data: Annotated[Path, typer.Argument(metavar="DATA", help="A data file.", show_default=False)],
    epsilon: Annotated[
        float | None, typer.Option(help="Tolerance; 0, the default, is the exact (manifold) posterior.")
    ] = None,
    prior_scale: Annotated[
        str | None,
        typer.Option(
            metavar="SD",
            help="Standard deviation of the prior of every action value, or flat (over rewards); by default what the "
            "problem states, or 10.",
        ),
    ] = None,
    prior_mean: Annotated[
        float | None, typer.Option(help="Mean of that prior; by default what the problem states, or 0.")
    ] = None,
    reward_belief: Annotated[
        str | None,
        typer.Option(metavar="MEAN,SD", help="A belief about the reward of every pair that has a law in the problem."),
    ] = None,
    laws: Annotated[
        Literal["known", "deterministic", "dirichlet"],
        typer.Option(help="What is known of transition laws that the problem leaves open."),
    ] = "known",
    concentration: Annotated[
        float | None, typer.Option(metavar="A", help="Of the Dirichlet prior of open laws; inferred unless given.")
    ] = None,
    engine: Annotated[
        Literal["auto", "chart", "mixture", "hmc", "nuts", "rejection"], typer.Option(help="How to compute it.")
    ] = "auto",
    kernel: Annotated[
        Literal["gaussian", "uniform"], typer.Option(help="Shape of the relaxed likelihood.")
    ] = "gaussian",
    noise_sd: Annotated[
        float | None, typer.Option(metavar="ETA", help="Rewards carry noise of this scale; every repeat counts.")
    ] = None,
    infer_noise: Annotated[
        bool, typer.Option("--infer-noise", help="Rewards carry noise of unknown scale (half-normal prior, scale 1).")
    ] = False,
    noise: Annotated[str, typer.Option(help="Law of the noise: gaussian, student-t:DF or laplace.")] = "gaussian",
    proper_only: Annotated[
        bool, typer.Option("--proper-only", help="Leave out parameters that the data show to be improper.")
    ] = False,
    discount: Discount = None,
    samples: Annotated[
        int | None,
        typer.Option(metavar="N", help="Points to use (at least 32,768); by default until SE <= 1e-3."),
    ] = None,
    top: Annotated[int, typer.Option(help="How many routes to report.")] = 1000,
    seed: Annotated[int, typer.Option(help="Fixes every result.")] = 0,
    picture: Annotated[Path | None, typer.Option(metavar="FILE", help="Also draw it, as .png, .pdf or .svg.")] = None,
    json_out: AsJson = False,
) -> None:
    """Say how probable it is that each action and route is optimal, given observations.

    Example: bellmanifold posterior env:two-state data.json --epsilon 0.01 --json
    """
    from bellmanifold.commands.pictures import check_picture, save_picture
    from bellmanifold.figures.drawing import require_drawable
    from bellmanifold.formats.files import label, located
    from bellmanifold.formats.observations import load_data
    from bellmanifold.models import load_model
    from bellmanifold.posteriors.inference import posterior as compute

    if picture is not None:
        check_picture(picture)
    problem = load_model(model)
    if picture is not None:
        require_drawable(problem)
    observed = load_data(data, problem)
    if noise_sd is None and not infer_noise:
        with located(label(data)):
            observed.deterministic_reward()
    keep_compiled_programs()
    with working("computing the posterior"), interruptible("give the same command again; nothing was printed"):
        summary = compute(
            problem,
            observed,
            epsilon=epsilon,
            prior_scale=_scale(prior_scale),
            engine=engine,
            kernel=kernel,
            noise_sd=noise_sd,
            infer_noise=infer_noise,
            noise=noise,
            proper_only=proper_only or None,
            discount=discount,
            samples=samples,
            top=top,
            seed=seed,
            prior_mean=prior_mean,
            reward_belief=_belief(reward_belief),
            laws=laws,
            concentration=concentration,
        )
        answer = summary.to_dict()
    if picture is not None:
        save_picture(picture, lambda: _drawn(problem, summary))
    if json_out:
        print_json(answer)
    else:
        _print_posterior(answer)
    if not summary.trustworthy:
        complain("a diagnostic says not to trust these numbers: see trustworthy, effective_sample_size, diagnostics")
        raise typer.Exit(4)


def _scale(given: str | None) -> float | Literal["flat"] | None:
    """A prior scale from the command line."""
    if given is None or given == "flat":
        return given  # type: ignore[return-value]
    try:
        return float(given)
    except ValueError:
        raise BadInputError(f"--prior-scale is {quote(given)}: give a positive number, or flat") from None


def _belief(given: str | None) -> tuple[float, float] | None:
    """A belief from the command line."""
    if given is None:
        return None
    try:
        mean, sd = (float(part) for part in given.split(","))
    except ValueError:
        raise BadInputError(f"--reward-belief is {quote(given)}: give MEAN,SD, as -5,2") from None
    return mean, sd


def _print_posterior(answer: dict[str, Any]) -> None:
    for warning in answer.get("warnings", []):
        typer.echo(f"warning: {warning}")
    if (noise := answer.get("noise")) is None:
        width = f"epsilon {answer['epsilon']:g}"
    else:
        width = f"{noise['law']} noise of scale {noise['mean']:.4g}" + (
            f" (sd {noise['sd']:.2g})" if noise["sd"] else ""
        )
    scale = answer["prior_scale"]
    prior = "flat prior over rewards, proper policies only" if scale == "flat" else f"prior scale {scale:g}"
    mean = f" and mean {answer['prior_mean']:g}" if answer["prior_mean"] and scale != "flat" else ""
    settings = f"{width}, {prior}{mean}"
    typer.echo(f"{answer['observed_pairs']} observed pairs, {settings}")
    typer.echo(f"engine {answer['engine']}: {answer['reason']}")
    if answer["log_evidence"] is not None:
        typer.echo(f"log evidence {answer['log_evidence']:.6g} (se {answer['log_evidence_se']:.1g})")
    for key, meaning in (
        ("improper_mass", "known from the data"),
        ("improper_mass_model", "under the true transitions"),
    ):
        mass = answer[key]
        if mass is not None and mass["probability"] >= SHOWN_MASS:
            typer.echo(f"improper policies, {meaning}: {mass['probability']:.4f} (se {mass['se']:.1g})")
    rows: list[tuple[str, ...]] = [("state", "action", "optimal with probability", "se", "mean of q", "sd of q")]
    for state, actions in list(answer["actions"].items())[:40]:
        for action, found in actions.items():
            mean, sd = answer["q_mean"][state][action], answer["q_sd"][state][action]
            se, sd = _or_zero(found["se"], 1e-12), _or_zero(sd, 1e-6 * abs(mean))
            numbers = (f"{found['probability']:.4f}", f"{se:.1g}", f"{mean:.4g}", f"{sd:.4g}")
            rows.append((state, action, *numbers))
    print_table(rows)
    routes = answer.get("routes", [])[:10]
    if routes:
        typer.echo("most probable routes:")
        print_table(
            [
                (f"{r['probability']:.4f}", f"{r['se']:.1g}", r["ends"], " ".join(f"{s}:{a}" for s, a in r["pairs"]))
                for r in routes
            ]
        )


def _or_zero(value: float, rounding: float) -> float:
    """0 where nothing but rounding is left."""
    return value if value > rounding else 0.0


def _drawn(problem: Any, summary: Any) -> Any:
    from bellmanifold.figures import draw

    return draw(problem, summary)


def _shown(default: object) -> str:
    return str(default).lower() if isinstance(default, bool) else str(default)


def _short(name: str, limit: int = 60) -> str:
    return name if len(name) <= limit else name[: limit - 1] + "…"


def _listed(items: list[str], limit: int = 4) -> str:
    return ", ".join(items[:limit]) + (f" and {len(items) - limit} more" if len(items) > limit else "")


def run(arguments: list[str] | None = None) -> int:
    """Run the command line and return its exit code."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # other libraries' remarks are not for the user of a command
            result = app(arguments, standalone_mode=False)
        sys.stdout.flush()
        return result if isinstance(result, int) else 0
    except _ClickException as error:
        message = error.format_message().replace("Value error, ", "")
        if message.startswith("Usage:"):  # called without a command: this is the help
            remark(message)
        else:
            complain(message + (" (see --help)" if isinstance(error, _UsageError) else ""))
        return BadInputError.exit_code
    except BellmanifoldError as error:
        complain(str(error))
        return error.exit_code
    except (KeyboardInterrupt, typer.Abort):
        complain("interrupted")
        return 130
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except OSError as error:
        complain(f"the output cannot be written: {(error.strerror or str(error)).lower()}")
        return DiskError.exit_code
    except MemoryError:
        complain("out of memory: the problem is too large for this machine")
        return BadInputError.exit_code
    except Exception as error:
        if os.environ.get("BELLMANIFOLD_DEBUG"):
            traceback.print_exc()
        complain(f"a fault of the program: {error!r}; set BELLMANIFOLD_DEBUG=1 to see where, and please report it")
        return 70


def main() -> None:
    """Entry point of the console script."""
    _open_closed_streams()
    sys.exit(run())


def _open_closed_streams() -> None:
    """Send to nowhere what would go to a stream that the caller closed (`>&-`), which Python leaves as None."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, "w"))  # noqa: SIM115 (it stays open as long as the program)
