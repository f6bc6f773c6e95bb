"""The live view that runs, queues and labs have as a widget."""

from __future__ import annotations

from importlib import import_module
from typing import Any

__all__ = ["HasWidget"]


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
