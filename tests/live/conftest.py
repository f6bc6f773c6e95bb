"""A run that is moved by hand, and the scenario of the golden snapshot."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from dqlab.live.view import RunView
from dqlab.stats import Counts, RunState, RunStats, Snapshot

GOLDEN = Path(__file__).parent.parent / "golden" / "snapshot.json"


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


class HandSource:
    """A run whose answers are given by hand: statistics, or an error to raise."""

    def __init__(self, answer: RunStats | Exception) -> None:
        self.name = "parse-invoices"
        self.answer = answer
        self.refusal: Exception | None = None
        self.asked = 0
        self.done: list[str] = []

    def stats(self, *, timeout: float | None = None) -> RunStats:
        self.asked += 1
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer

    def _obey(self, command: str) -> None:
        if self.refusal is not None:
            raise self.refusal
        self.done.append(command)

    def pause(self) -> None:
        self._obey("pause")

    def resume(self) -> None:
        self._obey("resume")

    def cancel(self) -> None:
        self._obey("cancel")

    def failures(self) -> list[Any]:
        return []


class ListCanvas:
    """Keeps every view it was given."""

    def __init__(self) -> None:
        self.gone = False
        self.drawn: list[RunView] = []
        self.last: RunView | None = None

    def draw(self, view: RunView) -> None:
        self.drawn.append(view)

    def finish(self, view: RunView) -> None:
        self.last = view


@pytest.fixture
def clock() -> HandClock:
    return HandClock()


@pytest.fixture
def source(running: RunStats) -> HandSource:
    return HandSource(running)


@pytest.fixture
def canvas() -> ListCanvas:
    return ListCanvas()
