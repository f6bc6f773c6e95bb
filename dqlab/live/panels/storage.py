"""Draw storage: live bytes and garbage over time, and what compactions freed."""

from __future__ import annotations

from bokeh.models import ColumnDataSource, CustomJSTickFormatter

from dqlab.live.panels.parts import Stage, fill, nice, series, show, strong, text, times
from dqlab.live.panels.scene import Scene
from dqlab.numbers import UNKNOWN, duration, share, size

SIZES = """const power = tick >= 1 ? Math.min(Math.floor(Math.log10(tick) / 3), 5) : 0
return tick ? `${Number((tick / 1000 ** power).toFixed(1))} ${["B", "kB", "MB", "GB", "TB", "PB"][power]}` : "0" """


class StoragePanel:
    """Live and garbage bytes stacked, with compactions as marks."""

    name, title = "storage", "Storage"

    def __init__(self, stage: Stage) -> None:
        theme = stage.theme
        self.source = ColumnDataSource({"x": [], "live": [], "garbage": []})
        self.marks = ColumnDataSource({"x": [], "word": []})
        self._figure = fig = stage.over_time(190)
        fig.min_border_left = 60
        fig.yaxis.formatter = CustomJSTickFormatter(code=SIZES)
        fig.varea_stack(
            ["live", "garbage"],
            x="x",
            color=[theme["ready"], theme["cancelled"]],
            alpha=[0.75, 0.45],
            source=self.source,
        )
        line = fig.line("x", "live", alpha=0, source=self.source)
        stage.hover(fig, line, ("live", "@live{0.0 b}"), ("garbage", "@garbage{0.0 b}"))
        stage.marks(self.marks, fig)
        self.parts = [fig]

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

    def facts(self, scene: Scene) -> str:
        """Return what is on disk now, and how fast the disk is."""
        storage = scene.snapshot.storage
        if not storage.total and storage.disk_free is None:
            return "<span>Queues here are transient</span>"
        writes = size(round(storage.write_rate)) if storage.write_rate is not None else UNKNOWN
        sync = f"{storage.fsync_p99 * 1000:.1f} ms" if storage.fsync_p99 is not None else UNKNOWN
        rest = {"writes": f"{writes}/s", "fsync p99": sync, "disk free": size(storage.disk_free)}
        return (
            f'<span><i class="key ready"></i>{strong(size(storage.live))} live</span>'
            f'<span><i class="key cancelled"></i>{strong(size(storage.garbage))} garbage</span>'
            + "".join(f"<span>{text(name)} {strong(words)}</span>" for name, words in rest.items())
        )

    def draw(self, scene: Scene) -> None:
        """Update the stack and its marks."""
        history, storage = scene.history, scene.snapshot.storage
        live, garbage = (series(scene.full(each)) for each in (history.live, history.garbage))
        fill(self.source, x=times(scene, history.times), live=live, garbage=garbage)
        show(self._figure.y_range, end=nice(max(float((live + garbage).max(initial=0.0)), storage.total, 1000.0)))
        fill(
            self.marks,
            x=times(scene, [compaction.at for compaction in storage.compactions]),
            word=[f"\N{MINUS SIGN}{size(each.freed)} in {duration(each.seconds)}" for each in storage.compactions],
        )
