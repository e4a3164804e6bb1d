"""Registration of the built-in problems with Gymnasium, once both packages are imported, in either order.

Gymnasium 1.x loads no plug-ins, and importing it for users who do not need it would make every command slower. So the
problems are registered at once if Gymnasium is already loaded; otherwise a finder on `sys.meta_path` waits for the
import of the module that holds the registry, removes itself, and registers them once that module has been executed.
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType

REGISTRY = "gymnasium.envs.registration"
TITLES = {
    "DeepSea": "deep-sea",
    "Pyramid": "pyramid",
    "Swirl": "swirl",
    "TwoState": "two-state",
    "FourState": "four-state",
    "Grid": "grid",
}
"""Name in Gymnasium's registry -> name of the built-in problem."""


def register_environments() -> None:
    """Make `gymnasium.make("bellmanifold/DeepSea-v0", depth=5)` work, now or once Gymnasium is imported."""
    loaded = sys.modules.get(REGISTRY)
    if loaded is not None:
        _tell(loaded.register)
    elif not any(isinstance(finder, _Waiting) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Waiting())


def _tell(register: Callable[..., None]) -> None:
    for title, name in TITLES.items():
        register(
            id=f"bellmanifold/{title}-v0",
            entry_point="bellmanifold.io.gymnasium:make_built_in",
            kwargs={"built_in": name},
        )


class _Waiting(MetaPathFinder):
    """A finder of the registry only, and only once, by means of the other finders."""

    def find_spec(self, fullname: str, path: object, target: ModuleType | None = None) -> ModuleSpec | None:
        if fullname != REGISTRY:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(fullname)
        if spec is not None and spec.loader is not None:
            execute = spec.loader.exec_module

            def execute_and_tell(module: ModuleType) -> None:
                execute(module)
                _tell(module.register)

            spec.loader.exec_module = execute_and_tell  # type: ignore[method-assign]  # of this one loader
        return spec
