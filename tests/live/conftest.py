"""A run that is moved by hand, and the scenario of the golden snapshot."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from queue import SimpleQueue
from types import SimpleNamespace
from typing import Any

import pytest

from dqlab.errors import CallTimeout
from dqlab.live.run_picture import Focus, run_view
from dqlab.live.views import Press, RunView
from dqlab.stats import CodeStats, Counts, History, RunState, RunStats, Snapshot
from tests.kit.chromium import chromium
from tests.live.pages import DARK, LIGHT, PAGE, START, Show, as_sent
from tests.live.scenes import lab_history

HERE = Path(__file__).parent
GOLDEN = HERE.parent / "golden" / "snapshot.json"
HISTORY = GOLDEN.with_name("history.json")
EMPTY, NO_HISTORY = Snapshot(at=0.0, seq=1), History(t0=0.0, step=1.0)
CODE = "def parse(document):\n    return totals(document.open())\n"


@pytest.fixture(autouse=True)
def _zone(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Times of day are those of the process; here it lives in UTC."""
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


@pytest.fixture
def golden() -> dict[str, Any]:
    return json.loads(GOLDEN.read_text(encoding="utf-8"))


@pytest.fixture
def snapshot(golden: dict[str, Any]) -> Snapshot:
    return Snapshot.from_dict(golden)


@pytest.fixture
def running(snapshot: Snapshot) -> RunStats:
    """parse-invoices at 14:22:07, two thirds done."""
    return snapshot.runs[0]


@pytest.fixture
def done(running: RunStats) -> RunStats:
    """The same run at its end, 14:33:54, with 212 dead."""
    end = running.started + 2114
    counts, units = Counts(acked=47_998, dead=212), Counts(acked=909_098, dead=5_208)
    return replace(
        running,
        state=RunState.DONE,
        counts=counts,
        units=units,
        retrying=0,
        eta=None,
        ended=end,
        at=end,
        rate=0.0,
        units_rate=0.0,
    )


class HandClock:
    """Time that moves when told."""

    def __init__(self) -> None:
        self.now = 1000.0

    def monotonic(self) -> float:
        return self.now

    def wall(self) -> float:
        return 1_795_270_927.0 + self.now


class Obedient:
    """Writes down what it was asked for, after the name of a queue, if it has one."""

    _name = ""

    def _obey(self, words: str) -> None:
        source = getattr(self, "_source", self)
        if source.refusal is not None:
            raise source.refusal
        source.done.append(f"{self._name} {words}".strip())

    def pause(self) -> None:
        self._obey("pause")

    def resume(self) -> None:
        self._obey("resume")

    def cancel(self) -> None:
        self._obey("cancel")

    def scale(self, n: int) -> None:
        self._obey(f"scale {n}")


class HandSource(Obedient):
    """A run whose answers are given by hand: statistics, or an error to raise; and the rest of its Snapshot."""

    source: str | None = CODE
    redefined: Any = None
    failed_key = "lux/contract-7.pdf"

    def __init__(
        self, answer: RunStats | Exception, rest: Snapshot = EMPTY, past: History | Exception = NO_HISTORY
    ) -> None:
        self.name = "parse-invoices"
        self.answer, self.rest, self.series = answer, rest, past
        self.refusal: Exception | None = None
        self.asked = self.looked = 0
        self.done: list[str] = []

    def snapshot(self, *, timeout: float | None = None) -> Snapshot:
        self.asked += 1
        run = self.answer
        if isinstance(run, Exception):
            raise run
        others = tuple(other for other in self.rest.runs if other.name != run.name)
        return replace(self.rest, at=run.at, of_queue=run.queue, of_run=run.name, runs=(run, *others))

    def past(self, span: float, *, timeout: float | None = None) -> History:
        self.looked += 1
        if isinstance(self.series, Exception):
            raise self.series
        return self.series

    def newer(self, code: CodeStats) -> Any:
        return self.redefined

    def send_again(self, fn: Any = None, *, fingerprint: str | None = None, limit: int | None = None) -> int:
        words = ["retry", fingerprint or "all", *([] if limit is None else [f"first {limit}"])]
        self._obey(" ".join([*words, *([] if fn is None else [f"with {fn}"])]))
        return 61 if limit is None else limit

    def examples(self, fingerprint: str, limit: int = 5, *, timeout: float | None = None) -> list[Any]:
        self._obey(f"examples {fingerprint}")
        return [
            SimpleNamespace(
                id=7, key=self.failed_key, deliveries=4, version="a41f9c", traceback="Traceback\n  x\x1b[0m"
            )
        ]

    waits_for_go, tried, rate = False, 30, 0.04

    def go(self) -> None:
        self._obey("go")

    def rehearse(self, n: int) -> Any:
        self._obey(f"rehearse {n}")
        return self

    @property
    def rehearsal(self) -> Any:
        return SimpleNamespace(text=lambda rate: f"rehearsed 100 at {rate}")


class HandControls(Obedient):
    """The controls of one queue, which write down what they were asked for."""

    def __init__(self, source: Any, name: str) -> None:
        self._source, self._name = source, name

    def drain(self) -> None:
        self._obey("drain")

    def purge(self, state: str = "dead") -> int:
        self._obey(f"purge {state}")
        return 212

    def compact(self) -> Any:
        self._obey("compact")
        return SimpleNamespace(bytes_before=2_200_000_000, bytes_after=900_000_000)


class HandLab:
    """A lab whose answers are given by hand."""

    name = "papers"
    dashboard = "http://127.0.0.1:8787/status"
    closed = False

    def __init__(self, picture: Snapshot | Exception, past: History) -> None:
        self.picture, self.series = picture, past
        self.refusal: Exception | None = None
        self.done: list[str] = []
        self.asked = 0

    def snapshot(self, *, timeout: float | None = None, fresh: bool = True) -> Snapshot:
        self.asked += 1
        if isinstance(self.picture, Exception):
            raise self.picture
        return self.picture

    def past(self, span: float | None = None, *, timeout: float | None = None) -> History:
        return self.series

    def controls(self, queue: str) -> HandControls:
        return HandControls(self, queue)

    def retry(self, run: str, *, fingerprint: str = "") -> int:
        self.done.append(f"retry {run}")
        return 212


class HandPool(HandControls):
    """A queue whose answers are given by hand."""

    closed = False

    def __init__(self, name: str, picture: Snapshot | Exception, past: History) -> None:
        super().__init__(self, name)
        self.name, self.picture, self.series = name, picture, past
        self.refusal: Exception | None = None
        self.done: list[str] = []

    snapshot = HandLab.snapshot
    past = HandLab.past
    asked = 0


SLOW = CallTimeout(name="parse-invoices", call="stats", seconds=1)


class ListCanvas:
    """Keeps every view it was given."""

    def __init__(self) -> None:
        self.gone = self.keeps = self.awaits = self.is_read = False
        self.drawn: list[Any] = []
        self.beats = 0
        self.last: Any = None

    def draw(self, view: Any, answered: int = 0) -> bool:
        self.drawn.append(view)
        return True

    def beat(self) -> None:
        self.beats += 1

    def finish(self, view: Any) -> None:
        self.last = view


@pytest.fixture
def clock() -> HandClock:
    return HandClock()


@pytest.fixture
def source(running: RunStats) -> HandSource:
    return HandSource(running)


@pytest.fixture
def past() -> History:
    """Half an hour of queue pages."""
    return History.from_dict(json.loads(HISTORY.read_text(encoding="utf-8")))


@pytest.fixture
def detailed(running: RunStats, snapshot: Snapshot, past: History) -> HandSource:
    """The same run with what the scenario knows beside it."""
    return HandSource(running, snapshot, past)


@pytest.fixture
def hand_lab(snapshot: Snapshot) -> HandLab:
    return HandLab(snapshot, lab_history(snapshot))


@pytest.fixture
def hand_pool(snapshot: Snapshot, past: History) -> HandPool:
    return HandPool("pages", snapshot, past)


@pytest.fixture
def canvas() -> ListCanvas:
    return ListCanvas()


_open = ExitStack()
_browsers: list[Any] = []


@pytest.fixture
def browser() -> Any:
    """Chromium, open for as long as one test that needs it follows another, over files."""
    if not _browsers:
        _browsers.append(
            _open.enter_context(chromium()).new_context()
        )  # one for all pages: one takes as long as a test
    return _browsers[0]


def _needs_browser(item: pytest.Item | None) -> bool:
    return item is not None and HERE in item.path.parents and "browser" in getattr(item, "fixturenames", ())


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(nextitem: pytest.Item | None) -> Iterator[None]:
    """Close the browser: while it is open, an event loop runs in this thread, and other tests start their own."""
    yield
    if not _needs_browser(nextitem):
        _browsers.clear()
        _open.close()


@pytest.fixture
def show(browser: Any) -> Iterator[Show]:
    """Open a page with the widget drawing a view; fails on any error in the page."""
    from dqlab.live.canvases import script, styles

    pages, errors = [], []

    def open_page(
        view: Any, *, width: int = 1000, dark: bool = False, clock: float | None = None, scale: float = 1
    ) -> Any:
        # A context takes as long as a test, so all pages share one unless they need another size of pixels.
        page = browser.new_page() if scale == 1 else browser.browser.new_page(device_scale_factor=scale)
        if clock is not None:  # seconds since 1970; moved by the test
            page.clock.install(time=clock)
        page.set_viewport_size({"width": width, "height": 900})
        page.on("pageerror", lambda error: errors.append(str(error)))
        page.set_content(PAGE % {"css": styles(), "light": str(not dark).lower(), "theme": DARK if dark else LIGHT})
        page.evaluate(START, [script(), as_sent(view, first=True)])
        pages.append(page)
        return page

    yield open_page
    for page in pages:
        page.close()
    assert errors == []


@pytest.fixture
def full(running: RunStats, snapshot: Snapshot, past: History) -> RunView:
    """The run with all that is known of it."""
    return run_view(running, Focus(snapshot, past, CODE))


@pytest.fixture
def commands() -> SimpleQueue[Press]:
    return SimpleQueue()
