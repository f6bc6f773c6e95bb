"""Base classes of the objects that a user holds, which have a live view and refuse to be pickled."""

from __future__ import annotations

from typing import Any, ClassVar

from dqlab.notebook import views


class StaysHere:
    """An object that calls the cluster from one process, and refuses to be pickled."""

    _way_out: ClassVar[str]
    """Ends the error: what a user's function takes along instead of the object."""

    def __reduce__(self) -> tuple[Any, ...]:
        raise TypeError(f"this object cannot be pickled; {self._way_out}")  # pickle expects a TypeError here


class HasWidget:
    """Adds `widget` to objects that `dqlab.live` can draw."""

    @property
    def widget(self) -> Any:
        """A live view as a widget, to be placed in a layout: ``VBox([run.widget, mine])``.

        The view of a lab shows its queues. Each access returns the same widget; ``widget.close()`` ends it.

        Raises
        ------
        ImportError
            The package anywidget is not installed; ``pip install 'dqlab[lab]'``.
        """
        return views().widget_of(self)
