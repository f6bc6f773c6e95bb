"""What needs the user, worst first: the first thing on the page."""

from __future__ import annotations

from bokeh.models import Div, InlineStyleSheet

from dqlab.live.panels.changes import html, show
from dqlab.live.panels.markup import glyph, strong, text
from dqlab.live.panels.scene import Scene
from dqlab.numbers import count, many
from dqlab.stats import Attention, Severity

__all__ = ["Needs"]


class Needs:
    """A line for each thing that needs the user, and one for dead documents of runs that have ended."""

    def __init__(self, sheet: InlineStyleSheet) -> None:
        self.root: Div = html(sheet, "needs")
        self.root.name = "needs"

    def draw(self, scene: Scene) -> None:
        """Update the lines."""
        found = scene.snapshot.attention
        lines = [_line(each) for each in found]
        beyond = scene.snapshot.attention_total - len(found)
        if beyond > 0:
            lines.append(f'<li class="mut">and {count(beyond)} more</li>')
        lines += _ended(scene)
        head = f"Needs you {count(len(lines) - (beyond > 0) + max(beyond, 0))}"
        body = f"<ul>{''.join(lines)}</ul>" if lines else '<span class="mut">nothing now</span>'
        show(self.root, text=f'<div class="n"><b>{head}</b>{body}</div>')


def _line(need: Attention) -> str:
    bad = need.severity is Severity.PROBLEM
    where = " · ".join(dict.fromkeys(each for each in (need.queue, need.run) if each and each != need.subject))
    return (
        f"<li>{glyph('dead' if bad else 'slow')}<span>{strong(need.subject)} {text(need.text)}"
        f'{f" <i class=mut>{text(need.detail)}</i>" if need.detail else ""}</span><i class="mut">{text(where)}</i></li>'
    )


def _ended(scene: Scene) -> list[str]:
    """Return what nobody has retried: dead documents of listed runs that have ended."""
    ended = [run for run in scene.runs if run.resting and run.counts.dead]
    if not ended:
        return []
    dead = sum(run.counts.dead for run in ended)
    where = f"run {ended[0].name}" if len(ended) == 1 else many(len(ended), "run")
    verb = "has" if len(ended) == 1 else "have"
    return [
        f"<li>{glyph('dead')}<span>{strong(f'{count(dead)} dead')} in {text(where)} that {verb} ended "
        f'<i class="mut">run.failures() lists the documents, run.retry() sends them again</i></span></li>'
    ]
