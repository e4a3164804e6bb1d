"""Commands that other packages plug in (`bellmanifold.commands`), loaded when they are asked for.

What is plugged in is a function with Typer's annotations, or a Typer app with commands of its own. The library's own
commands come first and cannot be replaced. A command of this project whose package is not installed stays in the list,
and says which package has it.
"""

from __future__ import annotations

from typing import Any

import typer
from typer.core import TyperGroup

from bellmanifold._util.plugins import load, names
from bellmanifold.errors import UnsupportedError


class PluggedGroup(TyperGroup):
    """The commands of the library, and after them those that are plugged in."""

    def list_commands(self, ctx: Any) -> list[str]:
        own: list[str] = super().list_commands(ctx)
        return [*own, *(name for name in names("command") if name not in own)]

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        own = super().get_command(ctx, cmd_name)
        return own if own is not None or cmd_name not in names("command") else _command(cmd_name)


def _command(name: str) -> Any:
    try:
        found = load("command", name)
    except UnsupportedError as error:
        return _stand_in(name, str(error))
    if isinstance(found, typer.Typer):
        made = typer.main.get_command(found)
    elif callable(found):
        alone = typer.Typer(context_settings={"help_option_names": ["-h", "--help"]}, rich_markup_mode=None)
        alone.command(name)(found)
        made = typer.main.get_command(alone)
    else:
        return _stand_in(name, f"the command {name} is no function and no Typer app: correct its entry point")
    made.name = name
    return made


def _stand_in(name: str, why: str) -> Any:
    """A command that takes anything and says why it cannot be run."""

    def refuse() -> None:
        raise UnsupportedError(why)

    refuse.__doc__ = f"Not available: {why}."
    alone = typer.Typer(rich_markup_mode=None, add_completion=False)
    anything = {"ignore_unknown_options": True, "allow_extra_args": True, "help_option_names": ["-h", "--help"]}
    alone.command(name, context_settings=anything)(refuse)
    return typer.main.get_command(alone)
