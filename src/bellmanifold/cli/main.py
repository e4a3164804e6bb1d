"""The command line: parse arguments, make one library call, print text or JSON, return the documented exit code."""

from __future__ import annotations

import contextlib
import os
import re
import sys
import traceback
import warnings
from pathlib import Path
from typing import Annotated, Any

import typer

from bellmanifold import __version__
from bellmanifold._util.options import Method, on_command_line
from bellmanifold._util.stderr import remark
from bellmanifold.cli.advise import advise
from bellmanifold.cli.learn import learn
from bellmanifold.cli.plugged import PluggedGroup
from bellmanifold.cli.posterior import posterior
from bellmanifold.cli.shared_options import Discount
from bellmanifold.cli.terminal import (
    SHOWN,
    All,
    AsJson,
    Model,
    Prune,
    complain,
    from_the_start,
    print_first,
    print_json,
    refusing,
    report_dropped,
    say,
)
from bellmanifold.errors import BadInputError, BellmanifoldError, DiskError, StoppedError, count_of, listed, shorten

# Typer raises Click's exceptions, from its own copy of Click or from Click itself, depending on its version.
NO_NUMBER = re.compile(
    "Input should be a valid number, unable to parse string as a number|'[^']*' is not a valid float."
)
"""Messages of option parsers, depending on Typer's version."""
FEW = 4
"""Number of states that a line lists."""
_UsageError: Any = typer.BadParameter.__mro__[1]
_ClickException: Any = typer.BadParameter.__mro__[2]

app = typer.Typer(
    cls=PluggedGroup,
    help="Bayesian learning in stochastic shortest path problems.",
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
env_app = typer.Typer(help="Look at problems: built-in ones, files, Gymnasium's.", no_args_is_help=True)
app.add_typer(env_app, name="env")
app.command("posterior")(posterior)
app.command("advise")(advise)
app.command("learn")(learn)


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
        takes = [
            f"{key}={str(value).lower() if isinstance(value, bool) else value}"
            for key, value in defaults.items()
            if value not in (None, "")
        ]
        optional = [key for key, value in defaults.items() if value in (None, "")]
        about = (inspect.getdoc(build) or "").splitlines()[0]
        typer.echo(f"env:{name}{'?' if takes else ''}{'&'.join(takes)}\n    {about}")
        if optional:
            typer.echo(f"    It also takes {', '.join(optional)}.")


@env_app.command("show")
def env_show(model: Model, prune: Prune = False, every: All = False, json_out: AsJson = False) -> None:
    """Show a problem: its size, its start and its pairs.

    Example: bellmanifold env show "env:swirl?depth=3"
    """
    from bellmanifold.io.models import load_model
    from bellmanifold.io.problem import to_json_text
    from bellmanifold.problem.costs import column_name, cost_unit, worded

    problem = load_model(model, prune)
    report_dropped(model, problem)
    if json_out:
        typer.echo(to_json_text(problem), nl=False)
        return
    costs = cost_unit(problem)
    start = [f"{shorten(problem.states[s])} ({problem.initial[s]:.4g})" for s in problem.initial.nonzero()[0]]
    unknown = int((problem.open_reward | problem.open_law).sum())
    size = f"{count_of(problem.n_states, 'state')}, {count_of(problem.n_pairs, 'pair')}" + (
        f" ({unknown} of them open)" if unknown else ""
    )
    say(f"{shorten(problem.name or model)}: {size}, goal {shorten(problem.goals[0])}")
    say(f"starts in {listed(start, FEW)}")
    if problem.prior is not None:
        say(worded(f"prior of action values: {problem.prior.in_terms(costs)}", costs))
    rows = []
    for state, action, reward, _, law in zip(*problem.shown_columns().values(), strict=True):
        leads = [f"{shorten(name)} ({share:.4g})" for name, share in (law or {}).items()]
        rows.append((state, action, f"{reward:.6g}".replace("nan", "open"), listed(leads, FEW) or "open"))
    print_first(("state", "action", column_name("reward", costs), "leads to"), rows, "pairs", every)


@env_app.command("export")
def env_export(
    model: Model,
    out: Annotated[Path, typer.Option(metavar="FILE", help="Where to write: .json, .npz or .drn.")],
    prune: Prune = False,
) -> None:
    """Write a problem to a file, to edit or share it.

    Example: bellmanifold env export "env:grid?rows=4&columns=4&slip=0.1" --out robot.json
    """
    from bellmanifold.io.files import label
    from bellmanifold.io.models import load_model, load_whole
    from bellmanifold.io.problem import write_problem

    problem = load_whole(model, "DRN", prune=prune) if out.suffix == ".drn" else load_model(model, prune)
    report_dropped(model, problem)
    write_problem(problem, out)
    remark(f"wrote {label(out)}")


@app.command()
def check(
    model: Model,
    discount: Discount = None,
    prune: Prune = False,
    full: Annotated[bool, typer.Option("--full", help="Compute the directions u even above 1,000 pairs.")] = False,
    every: All = False,
    json_out: AsJson = False,
) -> None:
    """Check whether the theory applies to a problem; exit code 1 if not.

    Example: bellmanifold check env:swirl
    """
    from bellmanifold.io.models import load_whole
    from bellmanifold.mdp.checks import check as check_model

    problem = load_whole(model, "check", prune=prune)
    report_dropped(model, problem)
    checks = check_model(problem, discount=discount, full=full)
    if json_out:
        print_json(checks.to_dict())
    else:
        moves = "deterministic" if checks.model.is_deterministic else "stochastic"
        loops = "acyclic" if checks.acyclic else "cyclic"
        size = f"{count_of(checks.model.n_states, 'state')}, {count_of(checks.model.n_pairs, 'pair')}"
        say(f"{shorten(checks.model.name or model)}: {size}, {moves}, {loops}")
        messages = checks.messages if every else checks.messages[:SHOWN]
        for message in messages:
            say(f"- {message}")
        if len(messages) < len(checks.messages):
            typer.echo(f"... and {len(checks.messages) - len(messages)} more remarks (--all prints them)")
        if not checks.holds:
            typer.echo("- with --discount G (below 1) any problem satisfies both assumptions")
    if not checks.holds:
        raise typer.Exit(1)


@app.command()
def solve(
    model: Model,
    discount: Discount = None,
    prune: Prune = False,
    method: Annotated[
        Method | None,
        typer.Option(
            help="Value iteration, policy iteration or linear programming; by default chosen to suit the problem."
        ),
    ] = None,
    every: All = False,
    json_out: AsJson = False,
) -> None:
    """Compute the optimal values and all optimal actions.

    Example: bellmanifold solve gym:CliffWalking-v1 --json
    """
    from bellmanifold.io.models import load_whole
    from bellmanifold.mdp.solver import solve as solve_model
    from bellmanifold.problem.costs import column_name, signed

    problem = load_whole(model, "solve", prune=prune)
    report_dropped(model, problem)
    with refusing(model):
        solution = solve_model(problem, method=method, discount=discount)
    answer = solution.to_dict()
    if json_out:
        print_json(answer)
        return
    say(f"{shorten(solution.model.name or model)}: {solution.from_start}")
    typer.echo(solution.how)
    states = list(answer["value"])
    if len(states) > SHOWN:
        states = from_the_start(solution.model, solution.optimal, states)
    costs = solution.costs
    rows = [(s, f"{signed(answer['value'][s], costs):.8g}", ", ".join(answer["optimal_actions"][s])) for s in states]
    print_first(("state", column_name("value", costs), "optimal actions"), rows, "states", every)


def run(arguments: list[str] | None = None) -> int:
    """Run the command line and return its exit code."""
    if any("\0" in argument for argument in (sys.argv[1:] if arguments is None else arguments)):
        complain("an argument contains a NUL character: leave it out")
        return BadInputError.exit_code
    try:
        with warnings.catch_warnings(), on_command_line():
            warnings.simplefilter("ignore")  # warnings of other libraries do not concern users of a command
            result = app(arguments, standalone_mode=False)
        sys.stdout.flush()
        if result == StoppedError.exit_code:  # Typer answers an interrupt that no command noticed
            complain("interrupted")
        return result if isinstance(result, int) else 0
    except _ClickException as error:
        message = error.format_message().replace("Value error, ", "")
        message = NO_NUMBER.sub("that is not a number: write decimals with a point, such as 0.5", message)
        if message.startswith("Usage:"):  # called without a command: the message is the help
            remark(message)
        else:
            complain(message + (" (see --help)" if isinstance(error, _UsageError) else ""))
        return BadInputError.exit_code
    except BellmanifoldError as error:
        complain(str(error))
        return error.exit_code
    except (KeyboardInterrupt, typer.Abort):
        complain("interrupted")
        return StoppedError.exit_code
    except BrokenPipeError:
        return _unheard()
    except OSError as error:
        complain(f"the output cannot be written: {(error.strerror or str(error)).lower()}")
        return DiskError.exit_code
    except SystemExit as leaving:  # Typer's reaction to a closed pipe, which is not an error
        if isinstance(leaving.__context__, BrokenPipeError):
            return _unheard()
        raise
    except MemoryError:
        complain("out of memory: the problem is too large for this machine")
        return BadInputError.exit_code
    except Exception as error:
        if os.environ.get("BELLMANIFOLD_DEBUG"):
            traceback.print_exc()
        complain(f"internal error: {error!r}; set BELLMANIFOLD_DEBUG=1 to see where, and please report it")
        return 70


def _unheard() -> int:
    """Exit silently when the reader closes the pipe (`bellmanifold ... | head -1`), as other programs do."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return 0


def main() -> None:
    """Entry point of the console script."""
    _open_closed_streams()
    code = run()
    if code == StoppedError.exit_code:  # compiled code may still run, and crash while Python shuts down
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(OSError, ValueError):
                stream.flush()
        os._exit(code)
    sys.exit(code)


def _open_closed_streams() -> None:
    """Open the null device in place of streams that the caller closed (`>&-`), which Python leaves as None."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, "w"))  # noqa: SIM115 (it stays open until the program ends)


if __name__ == "__main__":
    main()
