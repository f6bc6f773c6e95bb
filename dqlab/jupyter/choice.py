"""Buttons under a cell whose run has other code: retry with this code, use it for the rest, start over.

Each does what a line or a call does. All of them are replaced by a report of what was done, and by the run, if no other
view shows it. Without widgets, the lines that the cell has printed offer the choice.
"""

from __future__ import annotations

from collections.abc import Callable
from html import escape
from importlib.util import find_spec
from typing import Any

from dqlab.errors import DqlabError
from dqlab.jupyter.sayings import paused_itself, rest_of, warned
from dqlab.live.display import Mode, in_a_line, look_again, mode, publish, watch, watch_in
from dqlab.live.html import wrap
from dqlab.notebook import in_jupyter
from dqlab.numbers import many
from dqlab.runs.run import Run
from dqlab.stats import Counts

__all__ = ["Choice", "offer"]


class Choice:
    """The actions for a run with other code.

    Parameters
    ----------
    run : Run
    function : callable
        The code that was to be mapped.
    start_over : callable
        Drops the run and maps again; returns the new run.
    place : callable, optional
        Shows a run that has no view yet. Default: `watch`.
    """

    def __init__(
        self,
        run: Run,
        function: Callable[..., Any],
        start_over: Callable[[], Run],
        place: Callable[[Run], object] | None = None,
    ) -> None:
        self.run, self._function, self._start_over = run, function, start_over
        self._place = place or watch

    @property
    def labels(self) -> dict[str, Callable[[], str]]:
        """Actions by the labels of their buttons; each returns a report.

        No label has a number: it stays as it was drawn, and more documents fail meanwhile.
        """
        counts = Counts(**self.run.counts)
        found: dict[str, Callable[[], str]] = {}
        follows = bool(counts.left) and paused_itself(self.run)
        if counts.dead:
            rest = "; the rest keeps its code" if counts.left else " with this code"
            found[f"Retry failed documents{'; the rest goes on with this code too' if follows else rest}"] = self.retry
        if counts.left and not follows:
            also = "Retry failed documents, and give the rest this code too"
            found[also if counts.dead else "Give the rest this code"] = self.rest
        found["Start over"] = self.start_over
        return found

    def lost_by(self, act: Callable[[], str]) -> str:
        """Return the label of the button that a second press confirms, with what it drops; "" where nothing is lost."""
        counts = Counts(**self.run.counts)
        parts = [many(n, noun) for n, noun in ((counts.acked, "result"), (counts.dead, "failure")) if n]
        return f"Drop {' and '.join(parts)}, and start over" if parts and act == self.start_over else ""

    def retry(self) -> str:
        """Retry dead documents with this code, in the view that the cell has of the run, else in a new one."""
        follows = paused_itself(self.run)
        count = self.run.send_again(self._function)
        self._show()
        rest = "; the rest goes on with it" if follows else ""
        return f"{self.run.name}: {many(count, 'document')} sent again with this code{rest}"

    def rest(self) -> str:
        """Use this code for the rest of the run too."""
        count = self.run.send_again(self._function, rest=True)
        rest = rest_of(self.run, self._function, 0, given=True)
        self._show()
        return f"{self.run.name}: {many(count, 'document')} sent again{rest}"

    def start_over(self) -> str:
        """Drop the run, and map again."""
        new = self._start_over()
        self._place(new)
        return f"{new.name} was started over"

    def _show(self) -> None:
        """Show a run that goes on: a second view would stand beside one that rests, and leave it with what it had."""
        if not look_again(self.run):
            self._place(self.run)


def offer(run: Run, function: Callable[..., Any], start_over: Callable[[], Run]) -> None:
    """Show buttons where widgets can be drawn; elsewhere do nothing."""
    if not in_jupyter() or mode() is not Mode.LIVE or find_spec("ipywidgets") is None:
        return
    import ipywidgets

    shown: list[Run] = []
    choice = Choice(run, function, start_over, shown.append)
    said = ipywidgets.Output()
    buttons: list[Any] = []

    def press(act: Callable[[], str], _: object = None) -> None:
        for button in buttons:
            button.disabled = True
        with said:
            try:
                with warned() as doubts:
                    report = act()
            except DqlabError as error:
                print(f"{type(error).__name__}: {error}")  # noqa: T201 - it belongs to the cell
                for button in buttons:
                    button.disabled = False
                return
        place.update(_lines(report, *doubts), raw=True)
        box.close()
        for each in shown:
            watch_in(place, each, " ".join([report, *doubts]))

    def press_or_ask(act: Callable[[], str], button: Any) -> None:
        lost = choice.lost_by(act)
        if not lost or button.description == lost:
            press(act)
        else:
            button.description, button.button_style = lost, "danger"

    for label, act in choice.labels.items():
        button = ipywidgets.Button(description=label, layout=ipywidgets.Layout(width="auto"))
        button.on_click(lambda button, act=act: press_or_ask(act, button))
        buttons.append(button)
    box = ipywidgets.VBox([ipywidgets.HBox(buttons), said])
    drawn = box._repr_mimebundle_()
    place = publish({**(drawn[0] if isinstance(drawn, tuple) else drawn), **_without_kernel(run, list(choice.labels))})


def _without_kernel(run: Run, labels: list[str]) -> dict[str, str]:
    """Return what a notebook keeps of the buttons: they need the kernel that made them."""
    names = ", ".join(f"[{label}]" for label in labels)
    return _lines(in_a_line(run), f"{names}: run the cell again for these buttons, or type one of the lines above.")


def _lines(*lines: str) -> dict[str, str]:
    html = wrap([f"<div>{escape(line.replace('  ', ' · '))}</div>" for line in lines], width=1100)
    return {"text/plain": "\n".join(lines), "text/html": html}
