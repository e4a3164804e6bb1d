"""Options that commands share, stated once as fields of a record, and loading of the files that commands name.

A command that takes them is a function with a parameter `options`; `spread_options` turns it into a function with one
parameter per field, which is what Typer reads.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass, fields
from inspect import Parameter, Signature, signature
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_type_hints

import typer

from bellmanifold._util.interrupts import interruptible
from bellmanifold._util.options import KernelName, LawsName
from bellmanifold._util.progress import show_progress
from bellmanifold.cli.completion import data_files, engines
from bellmanifold.cli.terminal import Prune, check_picture, complain, refusing, report_dropped, save_picture
from bellmanifold.errors import BadInputError, quote
from bellmanifold.io.files import label, locate_errors
from bellmanifold.learning.environment import keep_compiled_programs

if TYPE_CHECKING:
    from bellmanifold.problem.dataset import Dataset
    from bellmanifold.problem.ssp import SSP

Data = Annotated[
    Path,
    typer.Argument(
        metavar="DATA",
        help="Observations: JSON, .npz, or a table (.csv, .tsv) of observations or of trips.",
        show_default=False,
        autocompletion=data_files,
    ),
]
PriorMean = Annotated[float | None, typer.Option(help="Mean of that prior; by default what the problem states, or 0.")]
Discount = Annotated[float | None, typer.Option(metavar="G", help="Discount the problem by G in (0, 1].")]


def spread_options(command: Callable[..., None]) -> Callable[..., None]:
    """Replace a command's parameter `options` by one parameter per field."""
    types, own = get_type_hints(command, include_extras=True), signature(command).parameters
    record = types["options"]
    stated, shared = get_type_hints(record, include_extras=True), fields(record)

    def takes_all(**given: Any) -> None:
        options = record(**{field.name: given.pop(field.name) for field in shared})
        command(options=options, **given)

    parameters: list[Parameter] = []
    for name, parameter in own.items():
        if name == "options":
            parameters += [
                Parameter(field.name, Parameter.KEYWORD_ONLY, default=field.default, annotation=stated[field.name])
                for field in shared
            ]
        else:
            parameters.append(parameter.replace(kind=Parameter.KEYWORD_ONLY, annotation=types[name]))
    takes_all.__signature__ = Signature(parameters)  # type: ignore[attr-defined]  # `inspect` reads it, as documented
    takes_all.__annotations__ = {one.name: one.annotation for one in parameters} | {"return": None}
    takes_all.__name__, takes_all.__doc__ = command.__name__, command.__doc__
    return takes_all


@dataclass(frozen=True)
class PosteriorOptions:
    """Options of `posterior`, `advise` and `explore` that define the posterior; `prune` only defines the problem."""

    epsilon: Annotated[
        float | None, typer.Option(help="Tolerance; 0, the default, is the exact (manifold) posterior.")
    ] = None
    prior_scale: Annotated[
        str | None,
        typer.Option(
            metavar="SD",
            help="Standard deviation of the prior of every action value, or flat (over rewards); by default what the "
            "problem states, or 10.",
        ),
    ] = None
    prior_mean: PriorMean = None
    reward_belief: Annotated[
        str | None,
        typer.Option(metavar="MEAN,SD", help="Belief about the reward of every pair whose law the problem states."),
    ] = None
    cost_belief: Annotated[
        str | None,
        typer.Option(metavar="MEAN,SD", help="The same in the sign of costs: 5,2 is --reward-belief -5,2."),
    ] = None
    costs_only: Annotated[
        bool, typer.Option("--costs-only", help="No move pays: with --cost-belief 5,2, no cost is below 0.")
    ] = False
    laws: Annotated[
        LawsName, typer.Option(help="What is known about transition laws that the problem leaves open.")
    ] = "known"
    concentration: Annotated[
        float | None, typer.Option(metavar="A", help="Of the Dirichlet prior of open laws; inferred unless given.")
    ] = None
    engine: Annotated[
        str,
        typer.Option(
            metavar="NAME",
            help="How to compute the posterior: auto, chart, or an engine that is plugged in, as mixture.",
            autocompletion=engines,
        ),
    ] = "auto"
    kernel: Annotated[KernelName, typer.Option(help="Shape of the relaxed likelihood.")] = "gaussian"
    noise_sd: Annotated[
        float | None, typer.Option(metavar="ETA", help="Scale of the rewards' noise; every repeat counts.")
    ] = None
    infer_noise: Annotated[
        bool, typer.Option("--infer-noise", help="Infer the scale of the rewards' noise (half-normal prior, scale 1).")
    ] = False
    noise: Annotated[str, typer.Option(help="Law of the noise: gaussian, student-t:DF or laplace.")] = "gaussian"
    proper_only: Annotated[
        bool, typer.Option("--proper-only", help="Leave out parameters that the data show to be improper.")
    ] = False
    discount: Discount = None
    prune: Prune = False
    samples: Annotated[
        int | None,
        typer.Option(metavar="N", help="Number of points (at least 32,768); by default until SE <= 1e-3."),
    ] = None
    top: Annotated[int, typer.Option(help="How many routes to report; 0 for none.")] = 1000
    seed: Annotated[int, typer.Option(help="Random seed; determines every result.")] = 0

    def keywords(self) -> dict[str, Any]:
        """The options as `bellmanifold.posterior` takes them."""
        return {name: value for name, value in asdict(self).items() if name != "prune"} | {
            "prior_scale": read_scale(self.prior_scale, may_be_flat=True),
            "proper_only": self.proper_only or None,
            "reward_belief": _belief(self.reward_belief, "--reward-belief", "-5,2"),
            "cost_belief": _belief(self.cost_belief, "--cost-belief", "5,2"),
        }


def compute_answer(
    compute: Callable[..., Any],
    title: str,
    draw: str,
    model: str,
    data: Path,
    options: PosteriorOptions,
    picture: Path | None,
) -> tuple[Any, dict[str, Any]]:
    """Apply a function of the library to the files that a command names; the result, and the same as a dict for JSON.

    Progress is shown under the title; if a picture is requested, `draw` names the function of `bellmanifold.pictures`.
    """
    problem, observed = _open_files(model, data, options, picture)
    again = "run the same command again; nothing was printed"
    with refusing(model), show_progress(title), interruptible(again):
        found = compute(problem, observed, **options.keywords())
        answer = found.to_dict()
    if picture is not None:
        save_picture(picture, draw, problem, found)
    return found, answer


def _open_files(model: str, data: Path, options: PosteriorOptions, picture: Path | None) -> tuple[SSP, Dataset]:
    """Load the problem and the observations that a command names, and check them before anything is computed."""
    from bellmanifold.io.models import load_model
    from bellmanifold.io.observations import load_data
    from bellmanifold.posteriors.laws import check_laws
    from bellmanifold.posteriors.value_prior import check_rewards
    from bellmanifold.problem.maps import map_fault

    if picture is not None:
        check_picture(picture)
    problem = load_model(model, options.prune)
    report_dropped(model, problem)
    if picture is not None:
        from bellmanifold.pictures.drawing import require_drawable  # slow to import

        with locate_errors(label(model)):
            require_drawable(problem)
        if fault := map_fault(problem):
            complain(f"warning: {label(model)}: {fault}")
    observed = load_data(data, problem)
    with locate_errors(label(data)):
        if options.noise_sd is None and not options.infer_noise:
            observed.deterministic_reward()
        check_laws(observed, options.laws)
        check_rewards(observed)
    keep_compiled_programs()
    return problem, observed


def end_unless_trusted(trustworthy: bool, see: str) -> None:
    """Exit with code 4 if a diagnostic says not to trust what was printed."""
    if not trustworthy:
        complain(f"a diagnostic says not to trust these numbers: see {see}")
        raise typer.Exit(4)


def read_scale(given: str | None, may_be_flat: bool) -> float | str | None:
    """Parse a prior scale from the command line: a number, or "flat" where allowed."""
    if given is None or (may_be_flat and given == "flat"):
        return given
    try:
        return float(given)
    except ValueError:
        other = "; flat is for `posterior`, with information about every pair" if given == "flat" else ""
        more = ", or flat" if may_be_flat else other
        raise BadInputError(f"--prior-scale is {quote(given)}: give a positive number{more}") from None


def _belief(given: str | None, option: str, example: str) -> tuple[float, float] | None:
    """Parse the mean and standard deviation given as a belief."""
    if given is None:
        return None
    try:
        mean, sd = (float(part) for part in given.split(","))
    except ValueError:
        raise BadInputError(f"{option} is {quote(given)}: give MEAN,SD, such as {example}") from None
    return mean, sd
