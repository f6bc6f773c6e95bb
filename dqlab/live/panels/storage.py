"""Draw storage: live bytes and garbage over time, and what compactions freed."""

from __future__ import annotations

from bokeh.models import ColumnDataSource, FixedTicker, Range1d

from dqlab.live.panels.axis import LEFT, Caption, nice, spread, strip, times
from dqlab.live.panels.changes import fill, html, show, together
from dqlab.live.panels.markup import columns, strong, text, unit
from dqlab.live.panels.panel import Stage
from dqlab.live.panels.scene import Scene
from dqlab.live.tables import Cell, Table
from dqlab.numbers import UNKNOWN, clock, duration, share, size

__all__ = ["StoragePanel"]

LABELS = 22


class StoragePanel:
    """Live and garbage bytes stacked, compactions as marks, and the state of the disk below."""

    name, title = "storage", "Storage"

    def __init__(self, stage: Stage) -> None:
        theme = stage.theme
        self._source = ColumnDataSource({"x": [], "live": [], "garbage": []})
        self._marks = ColumnDataSource({"x": []})
        self._range = Range1d(0, 1, syncable=False)
        self._ticks = FixedTicker(ticks=[0, 0.5, 1], syncable=False)
        self._above = html(stage.sheet, "above", "gutter")
        self._values = html(stage.sheet, "values")
        self._facts = html(stage.sheet, "facts", "below")
        fig = stage.axis.chart(
            150, self._range, labels=True, min_border_left=LEFT, min_border_right=theme.gutter,
            min_border_top=4, min_border_bottom=LABELS,
        )  # fmt: skip
        fig.update(sizing_mode="stretch_both", min_height=70)
        self._axis = fig.yaxis[0]
        self._axis.ticker = self._ticks
        fig.ygrid[0].update(ticker=self._ticks, grid_line_color=theme.grid)
        fig.varea_stack(
            ["live", "garbage"], x="x", color=[theme.ready, theme.cancelled], alpha=[0.75, 0.45], source=self._source
        )
        line = fig.line("x", "live", alpha=0, source=self._source)
        stage.axis.hover(fig, [("live", "@live{0,0} B"), ("garbage", "@garbage{0,0} B")], line)
        stage.axis.marks(self._marks, fig)
        self.parts = [self._above, fig, self._facts, self._values]

    def answer(self, scene: Scene) -> str:
        """Return the share of garbage, and when compaction will remove it."""
        storage = scene.snapshot.storage
        if not storage.total:
            return "nothing on disk"
        above, part = storage.compact_above, share(storage.garbage_share, places=0)
        if above is None:
            return f"{part} garbage"
        if storage.garbage_share <= above:
            return f"{part} garbage · compacts itself above {share(above, places=0)}"
        return f"{part} garbage, more than {share(above, places=0)} · compacts itself at the next checkpoint"

    def draw(self, scene: Scene) -> None:
        """Update the chart and the facts."""
        history, storage = scene.history, scene.snapshot.storage
        first, columns = together(len(history.ready), live=history.live, garbage=history.garbage)
        fill(self._source, x=times(scene, history.times[first:]), **columns)
        known = columns["live"] + columns["garbage"]
        top = nice(max(float(known.max(initial=0.0)), float(storage.total)))
        show(self._range, **spread(top))
        ends = (0, top / 2, top) if storage.total or known.any() else (0,)
        show(self._ticks, ticks=list(ends))
        show(self._axis, major_label_overrides={at: size(round(at)) if at else "0" for at in ends})
        seen = [each for each in storage.compactions if scene.start <= each.at <= scene.end]
        fill(self._marks, x=times(scene, [each.at for each in seen]))
        if storage.total or known.any():
            places = (Caption(each.at, f"\N{MINUS SIGN}{size(each.freed)}", duration(each.seconds)) for each in seen)
            show(self._above, text=strip(places, scene.start, scene.end))
        else:
            show(self._above, text='<div class="strip"><i class="empty">Queues here are transient</i></div>')
        show(self._values, text=self._values_html(scene, top))
        show(self._facts, text=_facts(scene))

    def table(self, scene: Scene) -> Table:
        """Return live bytes and garbage, at some instants."""
        return Table(
            columns("at", "live", "garbage"),
            tuple(
                (Cell(clock(at)), *(Cell(size(None if value is None else round(value))) for value in values))
                for at, values in scene.points(scene.history.live, scene.history.garbage)
            ),
        )

    def _values_html(self, scene: Scene, top: float) -> str:
        storage = scene.snapshot.storage
        if not storage.total:
            return ""
        middle = [
            ("live", storage.live, storage.live / 2),
            ("garbage", storage.garbage, storage.live + storage.garbage / 2),
        ]
        pieces = []
        for name, amount, at in middle:
            word = f"{name} {share(storage.garbage_share, places=0)}" if name == "garbage" else name
            pieces.append(
                f'<div class="v two {name}" style="--at:{min(max(1 - at / top, 0), 1):.3f}">'
                f"<span>{strong(size(amount))}<br>{text(word)}</span></div>"
            )
        return "".join(pieces)


def _facts(scene: Scene) -> str:
    storage = scene.snapshot.storage
    if not storage.total and storage.disk_free is None:
        return ""
    writes = unit(size(round(storage.write_rate)) if storage.write_rate is not None else UNKNOWN)
    sync = f"{storage.fsync_p99 * 1000:.1f}" if storage.fsync_p99 is not None else UNKNOWN
    free = unit(size(storage.disk_free))
    facts = (
        ("writes", writes[0], f"{writes[1] or 'B'}/s"),
        ("fsync p99", sync, "ms"),
        ("disk free", free[0], free[1]),
        ("a compaction frees", *unit(size(storage.garbage))),
    )
    return "".join(f"<span>{name} {strong(figure)} {name_of_unit}</span>" for name, figure, name_of_unit in facts)
