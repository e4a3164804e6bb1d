"""The pictures of the gallery: `python examples/gallery.py` runs the code of docs/gallery.md and keeps what it saves.

Run it in the root of the repository whenever pictures look different; the page's own code is all there is.
"""

import os
import re
import tempfile
from contextlib import chdir
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs/gallery.md"
SAVED = re.compile(r'savefig\("(gallery-[a-z]+\.png)"')


def codes() -> dict[str, str]:
    """Picture -> the code that makes it."""
    blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    return {name: block for block in blocks for name in SAVED.findall(block)}


def make(name: str, code: str) -> bytes:
    """Run the code in an empty directory that has `examples`; the picture it saves."""
    with tempfile.TemporaryDirectory() as place, chdir(place):
        Path("examples").symlink_to(ROOT / "examples")
        exec(compile(code, name, "exec"), {"__name__": "gallery"})
        return Path(name).read_bytes()


if __name__ == "__main__":
    os.environ.setdefault("MPLBACKEND", "Agg")
    for name, code in codes().items():
        picture = make(name, code)
        (ROOT / "docs/images" / name).write_bytes(picture)
        print(f"{name}: {len(picture) // 1000} kB", flush=True)
