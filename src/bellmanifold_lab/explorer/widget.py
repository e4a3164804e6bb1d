"""The notebook widget: receives messages from the page and returns views, through anywidget."""

from __future__ import annotations

import os
from typing import Any

import anywidget
import traitlets

from bellmanifold.errors import StoppedError
from bellmanifold.io.observations import write_data
from bellmanifold.posteriors.summary import Summary
from bellmanifold.problem.dataset import Dataset
from bellmanifold_lab.explorer.session import Session
from bellmanifold_lab.report.text import asset, program


class Exploration(anywidget.AnyWidget):
    """An interactive exploration of a problem; see `bellmanifold.explore`."""

    _esm = program("explorer", "explore.js")
    _css = asset("explorer", "explore.css")
    board = traitlets.Dict().tag(sync=True)
    view = traitlets.Dict().tag(sync=True)

    def __init__(self, session: Session) -> None:
        self._session = session
        super().__init__(board=session.board, view=session.view())
        self.on_msg(self._answer)

    def _answer(self, widget: object, message: Any, buffers: object) -> None:
        try:
            self.view = self._session.answer(message)
        except StoppedError as error:
            self.view = self._session.view(message, error=str(error))

    @property
    def data(self) -> Dataset:
        """The current observations."""
        return self._session.data

    @property
    def summary(self) -> Summary:
        """The posterior given the current observations."""
        return self._session.summary

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the data file: npz or CSV for names ending in .npz or .csv, otherwise JSON."""
        write_data(self.data, path)
        self._session.mark_saved()

    def __repr__(self) -> str:
        return f"Exploration({self._session.model!r}, {len(self.data)} observations)"
