"""Sessions: data and options that change step by step, and the posterior after each step.

A session answers messages from a page or a widget: dictionaries with a "kind" and its fields (`KINDS`). Every answer is
a *view*, a dictionary for JSON with everything to be shown. A message that cannot be carried out (contradictory data, a
malformed number) changes nothing: the answer is the previous view with a one-line message as its "error".

So that pies respond quickly, a posterior is computed with few points, and its largest error is shown, which is then no
cause for a warning. "sharpen" computes it as `posterior` would. "advise" reports what to try next and what stopping
costs; since that takes longer than the pies, clients request it afterwards.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from inspect import signature
from itertools import count
from typing import Any

import numpy as np

from bellmanifold._util.display import for_json, or_null
from bellmanifold._util.interrupts import interruptible
from bellmanifold.decisions.advice import advice_of
from bellmanifold.decisions.wording import ranked_by
from bellmanifold.errors import BadInputError, BellmanifoldError, StoppedError, UnsupportedError, quote
from bellmanifold.io.files import number, record
from bellmanifold.io.observations import data_text
from bellmanifold.posteriors.inference import posterior
from bellmanifold.posteriors.question import with_belief
from bellmanifold.posteriors.route import Route
from bellmanifold.posteriors.summary import Summary
from bellmanifold.problem.dataset import Dataset, require_same_problem
from bellmanifold.problem.ssp import SSP, require_problem
from bellmanifold_lab.explorer.accounts import accounts
from bellmanifold_lab.explorer.board import make_board

QUICK_SAMPLES = 2**15
NOT_SAMPLED = ("mixture", "rejection")
"""Engines without the option `samples`."""
MOST_UNDONE = 200
"""Maximal number of steps that can be undone."""
MOST_LISTED = 200
"""Maximal number of observations that a view lists, the latest ones."""
MOST_WARMED = 64
"""Up to this many pairs, programs are compiled ahead of time and advice is computed unasked; beyond, both are slow."""
MOST_ROUTES, MOST_TRIALS = 3, 3
"""Maximal numbers of routes and trials that a view lists."""
SLIDERS = ("prior_scale", "epsilon", "laws", "proper_only")
"""Options that a message may change."""
KINDS = {
    "look": (),
    "observe": ("pair", "reward", "next"),
    "believe": ("pair", "mean", "sd"),
    "remove": ("index",),
    "undo": (),
    "options": SLIDERS,
    "sharpen": (),
    "advise": (),
    "save": (),
    "warm": (),
}
"""The kinds of messages and their fields besides "id"; an absent field counts as null."""


@dataclass(frozen=True)
class Snapshot:
    """The state of a session: the number of this step, data, options, the posterior, and the seconds it took."""

    step: int
    data: Dataset
    options: Mapping[str, Any]
    summary: Summary
    seconds: float


class Session:
    """Data (by default none) and options (keywords of `posterior`) that change step by step."""

    def __init__(self, model: SSP, data: Dataset | None = None, **options: Any) -> None:
        require_problem(model)
        self.model = model
        self._steps = count()
        self.board = make_board(model) | {"quick": model.n_pairs <= MOST_WARMED}
        given = Dataset.from_pairs(model, []) if data is None else data
        require_same_problem(model, given)
        for name in options:
            if name not in list(signature(posterior).parameters)[2:]:
                raise BadInputError(f"explore: unknown option {quote(name)}: it takes those of `posterior`")
        if model.open_law.any() and options.get("laws", "known") == "known":
            options["laws"] = "dirichlet"  # with "known" these pairs would have no posterior
        self.now = self._compute(given, options)
        self.board |= {"costs": self.summary.costs and self.summary.costs.unit}
        self._before: list[Dataset] = []
        self._advice: tuple[Snapshot, dict[str, Any]] | None = None
        self._saved = given
        self._cold = _typical(model) if model.n_pairs <= MOST_WARMED else []

    @property
    def data(self) -> Dataset:
        """The current observations."""
        return self.now.data

    @property
    def summary(self) -> Summary:
        """The posterior given the current observations."""
        return self.now.summary

    @property
    def unsaved(self) -> bool:
        """Whether the data have changed since they were last saved."""
        return self.data is not self._saved

    def mark_saved(self) -> None:
        """Record that the current data have been saved."""
        self._saved = self.data

    def answer(self, message: Any) -> dict[str, Any]:
        """Carry out a message; returns the view, with an "error" if that failed.

        Raises:
            StoppedError: after an interrupt; nothing was changed.

        >>> from bellmanifold import envs
        >>> session = Session(envs.two_state())
        >>> session.answer({"kind": "observe", "pair": 1, "reward": "much"})["error"]
        'reward is a string: give a number'
        """
        try:
            return self._follow(record(message, "message", ("kind",), ("id", *_fields(message))))
        except StoppedError:
            raise
        except BellmanifoldError as error:
            return self.view(message, error=str(error))
        except Exception as error:
            return self.view(message, error=f"internal error: {error!r:.300}; nothing was changed")

    def _follow(self, message: Mapping[str, Any]) -> dict[str, Any]:
        match message["kind"]:
            case "observe" | "believe" | "remove" as kind:
                change = {"observe": self._observe, "believe": self._believe, "remove": self._remove}[kind]
                before = self.data
                self.now = self._compute(change(message), self.now.options)
                self._before = [*self._before, before][-MOST_UNDONE:]
            case "undo":
                if not self._before:
                    raise BadInputError("there is nothing to undo")
                self.now = self._compute(self._before[-1], self.now.options)
                self._before = self._before[:-1]
            case "options":
                self.now = self._compute(self.data, {**self.now.options, **_options(message)})
            case "sharpen":
                self.now = self._compute(self.data, self.now.options, quick=False)
            case "advise":  # another thread may change `self.now` meanwhile
                now = self.now
                self._advice = (now, _advice(now))
            case "warm":
                self._warm()
            case "save":
                self.mark_saved()
                return self.view(message) | {"file": data_text(self.data)}
        return self.view(message)

    def _observe(self, message: Mapping[str, Any]) -> Dataset:
        reward, landing = message.get("reward"), message.get("next")
        return self.data.extended(
            np.array([self._pair(message)]),
            np.array([np.nan if reward is None else number(reward, "reward")]),
            next=np.array([-1 if landing is None else _whole(landing, "next", self.model.n_states + 1)]),
        )

    def _believe(self, message: Mapping[str, Any]) -> Dataset:
        mean, sd = (number(message.get(key), f"{key} of the belief") for key in ("mean", "sd"))
        if sd <= 0:
            raise BadInputError(f"sd of the belief is {sd:g}: give a positive number; add a seen reward as observed")
        return self.data.extended(np.array([self._pair(message)]), np.array([mean]), np.array([sd]))

    def _remove(self, message: Mapping[str, Any]) -> Dataset:
        data, gone = self.data, _whole(message.get("index"), "index", len(self.data))
        left = np.arange(len(data)) != gone
        return Dataset(self.model, data.pair[left], data.reward[left], data.sd[left], data.next[left])

    def _pair(self, message: Mapping[str, Any]) -> int:
        return _whole(message.get("pair"), "pair", self.model.n_pairs)

    def _compute(self, data: Dataset, options: Mapping[str, Any], quick: bool = True) -> Snapshot:
        began = time.perf_counter()
        given = {name: value for name, value in options.items() if value is not None} | {"top": MOST_ROUTES}
        bounds = {"samples": QUICK_SAMPLES} if quick and given.get("engine") not in NOT_SAMPLED else {}
        with interruptible("nothing was changed"):
            summary = posterior(self.model, data, **(bounds | given))
            _ = summary.warnings, summary.action_probability  # cached by the summary, and included in the time
        return Snapshot(next(self._steps), data, options, summary, time.perf_counter() - began)

    def _warm(self) -> None:
        """Compile the next program that will be needed, so that no one has to wait for it later."""
        if self._cold:
            pair, sd = self._cold.pop(0)
            with suppress(BadInputError, UnsupportedError):
                self._compute(Dataset(self.model, pair, np.full(len(pair), -1.0), sd), self.now.options)

    def view(self, message: Any = None, error: str = "") -> dict[str, Any]:
        """Everything to be shown, for JSON, in answer to a message, with an error if it failed."""
        data, summary = self.data, self.summary
        target, routes = summary.target, [_route(route) for route in summary.routes or ()]
        noisy, sharp = summary.epsilon is None, summary.budget.samples is None
        beliefs = [self.now.options.get(name) for name in ("reward_belief", "cost_belief")]
        return {
            "answers": message.get("id") if isinstance(message, Mapping) else None,
            "error": error,
            "warnings": summary.warnings if sharp else summary.warnings_with(""),
            "trustworthy": summary.trustworthy,
            "probability": for_json(np.clip(summary.action_probability.value, 0.0, 1.0)),
            "se": for_json(summary.action_probability.se),
            "q_mean": for_json(summary.q_mean.value),
            "q_sd": for_json(summary.q_sd.value),
            "tried": summary.pies()[1].tolist(),
            "known": accounts(with_belief(data, *beliefs) if any(beliefs) else data, summary.costs),
            "landed": self._landings(),
            "route": routes[0] if routes else None,
            "routes": routes,
            "step": self.now.step,
            "advice": self._advice[1] if self._advice is not None and self._advice[0] is self.now else None,
            "observations": self._latest(),
            "count": len(data),
            "prior_scale": None if self._fixed_scale() else target.prior.scale,
            "prior": self._fixed_scale(),
            "epsilon": summary.epsilon,
            "noise": f"{target.kernel} noise replaces the tolerance" if noisy else "",
            "laws": self.now.options.get("laws", "known"),
            "proper_only": bool(target.proper_only),
            "engine": summary.engine,
            "reason": summary.reason,
            "largest_error": or_null(summary.largest_error),
            "sharp": sharp,
            "seconds": round(self.now.seconds, 4),
            "cold": len(self._cold),
            "can_undo": bool(self._before),
            "unsaved": self.unsaved,
        }

    def _fixed_scale(self) -> str:
        """Why the prior's scale is not a single number; empty if it is."""
        if self.summary.target.prior.flat:
            return "flat over rewards"
        return "one per move" if np.ndim(self.now.options.get("prior_scale", 0.0)) else ""

    def _landings(self) -> list[tuple[int, int, float]]:
        """Observed landings of pairs with open laws: pair, state and share of the pair's landings."""
        counts = self.data.landing_counts.tocoo()
        total = np.bincount(counts.row, counts.data, self.model.n_pairs)
        chosen = self.model.open_law[counts.row]
        rows = zip(counts.row[chosen], counts.col[chosen], counts.data[chosen], strict=True)
        return [(int(pair), int(state), float(count / total[pair])) for pair, state, count in rows]

    def _latest(self) -> list[dict[str, Any]]:
        """The latest observations, most recent first."""
        data = self.data
        latest = range(len(data) - 1, max(-1, len(data) - 1 - MOST_LISTED), -1)
        return [
            {
                "index": t,
                "pair": int(data.pair[t]),
                "reward": or_null(data.reward[t]),
                "sd": or_null(data.sd[t]),
                "next": int(data.next[t]) if data.next[t] >= 0 else None,
            }
            for t in latest
        ]


def _typical(model: SSP) -> list[tuple[np.ndarray, np.ndarray]]:
    """Pairs and sds of data that need different programs: exact rewards, exact rewards and a belief, a belief alone.

    All rewards will be equal, so that actions tie, since ties have their own programs. One pair is left out, since a
    fully observed problem may need no program at all.
    """
    known = np.flatnonzero(~model.open_law)
    known = known[:-1] if len(known) > 1 else known
    first = np.where(np.arange(len(known)) == 0, 1.0, np.nan)
    return [(known, np.full(len(known), np.nan)), (known, first), (known[:1], first[:1])] if len(known) else []


def _advice(now: Snapshot) -> dict[str, Any]:
    """Advice given the current data, for JSON, or the reason why there is none."""
    try:
        with interruptible("nothing was changed"):
            advice = advice_of(now.summary, now.data)
    except (BadInputError, UnsupportedError) as refusal:
        return {"refused": str(refusal)}
    best = [pair for pair in advice.trials.tolist() if advice.telling[pair] and advice.ranking[pair] > 0]
    error = advice.perfect.se if advice.gain is None else np.zeros(len(advice.ranking))
    return {
        "sentences": list(advice.sentences()),
        "ranked_by": ranked_by(advice),
        "trials": [
            {"pair": pair, "gain": float(advice.ranking[pair]), "se": float(error[pair])} for pair in best[:MOST_TRIALS]
        ],
    }


def _route(route: Route) -> dict[str, Any]:
    return {
        "pairs": [int(pair) for pair in route.pairs],
        "loop": not route.ends_at_goal,
        "probability": float(route.probability),
        "se": float(route.se),
    }


def _fields(message: Any) -> tuple[str, ...]:
    """The fields that a message of this kind takes."""
    kind = message.get("kind") if isinstance(message, dict) else None
    if not isinstance(kind, str) or kind not in KINDS:
        raise BadInputError(f"message: kind is {quote(kind)}: choose from {', '.join(KINDS)}")
    return KINDS[kind]


def _options(message: Mapping[str, Any]) -> dict[str, Any]:
    """The options that a message changes, as `posterior` takes them; it refuses invalid values."""
    given = {key: message[key] for key in SLIDERS if message.get(key) is not None}
    for key in ("prior_scale", "epsilon"):
        if key in given:
            given[key] = number(given[key], key)
    return given


def _whole(value: Any, what: str, below: int) -> int:
    """A whole number from 0 to `below` - 1, checked."""
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < below:
        raise BadInputError(f"{what} is {quote(value)}: give a whole number from 0 to {below - 1}")
    return value
