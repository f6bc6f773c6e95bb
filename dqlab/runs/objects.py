"""What runs, queues and labs have in common as objects that a user holds: a live view, and no pickle."""

from __future__ import annotations

from importlib import import_module
from typing import Any, ClassVar

__all__ = ["HasWidget", "StaysHere"]


class StaysHere:
    """An object that talks to the cluster for one process, and is not pickled."""

    _way_out: ClassVar[str]
    """What a function takes along in its place."""

    def __reduce__(self) -> tuple[Any, ...]:
        raise TypeError(f"it stays in the process that made it; {self._way_out}")  # pickle asks for a TypeError


class HasWidget:
    """Adds `widget` to what `dqlab.live` can follow."""

    @property
    def widget(self) -> Any:
        """A live view of it as a widget, to be placed in a layout: ``VBox([run.widget, mine])``.

        The view of a lab shows its queues. It is the same widget each time; ``widget.close()`` ends it.

        Raises
        ------
        ImportError
            The package anywidget is not installed; ``pip install 'dqlab[lab]'``.
        """
        return import_module("dqlab.live.display").widget_of(self)  # rooms import downwards, and views lie above runs
