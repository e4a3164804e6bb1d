"""`bm.explore`: an exploration in a notebook."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from bellmanifold._util.extras import require_extra
from bellmanifold.problem.dataset import Dataset
from bellmanifold.problem.ssp import SSP
from bellmanifold_lab.explorer.session import Session

if TYPE_CHECKING:
    from bellmanifold_lab.explorer.widget import Exploration


def explore(model: SSP, data: Dataset | None = None, **options: Any) -> Exploration:
    """Explore a problem interactively in a notebook: a pie per state, updated with every observation.

    Click a move and enter its reward, or your belief about it, to see the new probability that each action is optimal.
    The returned object has the data in `.data` and the posterior in `.summary`; `.save(path)` writes the data file.
    `bellmanifold explore MODEL` shows the same without a notebook.

    Args:
        model: the problem, of at most 200 states.
        data: observations to begin with; by default none.
        options: keywords of `bellmanifold.posterior`: epsilon, prior_scale, noise_sd, ...

    Raises:
        BadInputError: for a problem that is too large, or for wrong arguments.
        UnsupportedError: without the extra `notebook`, or if `posterior` refuses the initial data.
    """
    require_extra("notebook", "explore in a notebook")
    from bellmanifold_lab.explorer.widget import Exploration

    return Exploration(Session(model, data, **options))
