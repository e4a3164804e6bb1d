"""Options that commands share, stated once as the fields of a record.

A command that takes them is a function with a parameter `options`; `spread_options` turns it into one with a parameter
for every field, as Typer reads it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from inspect import Parameter, Signature, signature
from typing import Any, get_type_hints


def spread_options(command: Callable[..., None]) -> Callable[..., None]:
    """A command as one that has every field of its `options` in their place."""
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
