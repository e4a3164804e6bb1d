"""Runs the code of a page of the guide, block by block, and compares what it prints with what the page shows.

- A `python` block is executed; the `text` block right after it holds what it prints. Blocks of a page share their
  names. If its first line is a comment with the path of a file, the block must be that file's code (no docstring).
- A `console` block holds commands after `$ `, each followed by its output. `bellmanifold`, `python FILE`, `cat FILE`
  and `echo $?` are understood.
- Numbers may differ by one unit of their last digit, since machines round differently. A number after `~` may be any,
  and a line `...` stands for anything.
- `<!-- slow -->` before a block leaves it to the slow tests.

`python tests/guide_pages.py PAGE ...` writes what the blocks print into the pages, but for those with a line `...`.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import runpy
import shlex
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
BLOCK = re.compile(r"(?P<slow><!-- slow -->\n)?```(?P<language>\w+)\n(?P<body>.*?)^```$", re.DOTALL | re.MULTILINE)
NUMBER = re.compile(r"(?<![\w.])-?\d+(?:\.\d+)?(?:e[-+]?\d+)?(?![\w])")
ROUGH = re.compile(r"~\d+")
ANYTHING = "..."


@dataclass(frozen=True)
class Block:
    """A fenced block: its language, its text, where its text lies in the page, and whether it takes long."""

    language: str
    body: str
    span: tuple[int, int]
    slow: bool


@dataclass(frozen=True)
class Printed:
    """What the page shows (None: no such block) and what was printed, at a place of the page."""

    shown: str | None
    got: str
    span: tuple[int, int]
    code: str


def blocks_of(text: str) -> list[Block]:
    return [Block(m["language"], m["body"], m.span("body"), m["slow"] is not None) for m in BLOCK.finditer(text)]


def run_page(page: Path, slow: bool = True) -> Iterator[Printed]:
    """Run the blocks of a page in a fresh directory that has `examples` and `plans`."""
    blocks = blocks_of(page.read_text(encoding="utf-8"))
    names: dict[str, Any] = {"__name__": "guide"}
    with tempfile.TemporaryDirectory() as place, contextlib.chdir(place):
        for folder in ("examples", "plans"):
            Path(folder).symlink_to(ROOT / folder)
        for block, after in zip(blocks, [*blocks[1:], None], strict=True):
            if block.slow and not slow:
                continue
            if block.language == "python":
                got = _execute(block.body, names)
                shown = after if after is not None and after.language == "text" else None
                if shown is not None or got:
                    yield Printed(shown and shown.body, got, shown.span if shown else block.span, block.body)
            elif block.language == "console":
                yield Printed(block.body, _session(block.body), block.span, block.body)


def _execute(code: str, names: dict[str, Any]) -> str:
    first = code.split("\n", 1)[0]
    if first.startswith("# examples/"):
        of_file = (ROOT / first.removeprefix("# ")).read_text(encoding="utf-8").split('"""', 2)[2]
        assert code.split("\n", 1)[1].strip() == of_file.strip(), f"the page and {first[2:]} differ"
    with contextlib.redirect_stdout(io.StringIO()) as out:
        exec(compile(code, "page", "exec", dont_inherit=True), names)
    return out.getvalue()


def _session(body: str) -> str:
    """The commands of a console block with what they print now."""
    parts, code = [], 0
    for command in re.findall(r"^\$ (.*(?:\\\n.*)*)", body, re.MULTILINE):
        if command == "echo $?":
            output = f"{code}\n"
        else:
            code, output = _command(shlex.split(command.replace("\\\n", " ")))
        parts.append(f"$ {command}\n{output}")
    return "".join(parts)


def _command(words: list[str]) -> tuple[int, str]:
    program, *arguments = words
    with contextlib.redirect_stdout(io.StringIO()) as out, contextlib.redirect_stderr(io.StringIO()) as err:
        code = 0
        if program == "bellmanifold":
            from bellmanifold.cli.main import run

            code = run(arguments)
        elif program == "cat":
            print(Path(arguments[0]).read_text(encoding="utf-8"), end="")
        elif program == "python":
            own, sys.argv = sys.argv, arguments
            try:
                runpy.run_path(arguments[0], run_name="__main__")
            finally:
                sys.argv = own
        else:
            raise AssertionError(f"pages run bellmanifold, python, cat and echo $?, not {program}")
    return code, out.getvalue() + err.getvalue()


def differences(shown: str, got: str) -> list[str]:
    """What is not the same, line by line; nothing if the page is true."""
    wanted, found = _lines(shown), _lines(got)
    k = 0
    for j, line in enumerate(wanted):
        if line.strip() == ANYTHING:
            following = wanted[j + 1] if j + 1 < len(wanted) else None
            while k < len(found) and (following is None or not same_line(following, found[k])):
                k += 1
        elif k == len(found) or not same_line(line, found[k]):
            return [f"the page shows {line!r}", f"now it is     {found[k] if k < len(found) else 'nothing'!r}"]
        else:
            k += 1
    return [f"more is printed: {line!r}" for line in found[k : k + 1]]


def _lines(text: str) -> list[str]:
    return [line.rstrip() for line in text.strip("\n").split("\n")]


def same_line(shown: str, got: str) -> bool:
    """Equal but for one unit in the last digit of a number."""
    shown, got = (ROUGH.sub("~", line) for line in (shown, got))
    if shown == got:
        return True
    if [part.split() for part in NUMBER.split(shown)] != [part.split() for part in NUMBER.split(got)]:
        return False
    pairs = zip(NUMBER.findall(shown), NUMBER.findall(got), strict=True)
    return all(abs(float(a) - float(b)) <= 1.01 * max(unit(a), unit(b)) for a, b in pairs)


def unit(number: str) -> float:
    """One unit of a number's last digit; 0 for a whole number, which must be met."""
    digits, _, power = number.partition("e")
    places = len(digits.partition(".")[2])
    return 0.0 if not places and not power else 10.0 ** (int(power or 0) - places)


def rewrite(page: Path) -> None:
    """Put what the blocks print into the page."""
    text = page.read_text(encoding="utf-8")
    for printed in sorted(run_page(page), key=lambda printed: -printed.span[0]):
        if printed.shown is None:
            print(f"{page}: prints, but no text block follows:\n{printed.code}\n{printed.got}")
        elif ANYTHING in _lines(printed.shown):
            print(f"{page}: left as it is: {differences(printed.shown, printed.got)}")
        else:
            first, last = printed.span
            text = text[:first] + "\n".join(_lines(printed.got)) + "\n" + text[last:]
    page.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    os.environ.setdefault("MPLBACKEND", "Agg")
    for name in sys.argv[1:]:
        rewrite(Path(name).resolve())
