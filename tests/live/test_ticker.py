"""The one thread behind all live views."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator

import pytest

from dqlab.live.ticker import NAME, Ticker
from tests.kit.logs import lines_of


class Steps:
    """Counts steps and can be waited for; ends after `limit`."""

    def __init__(self, limit: int | None = None, error: Exception | None = None) -> None:
        self.limit, self.error = limit, error
        self.taken = threading.Semaphore(0)
        self.threads: set[str] = set()
        self.count = 0

    def tick(self) -> bool:
        self.count += 1
        self.threads.add(threading.current_thread().name)
        self.taken.release()
        if self.error is not None:
            raise self.error
        return self.limit is None or self.count < self.limit

    def wait(self, steps: int) -> bool:
        return all(self.taken.acquire(timeout=5) for _ in range(steps))


def living() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == NAME]


@pytest.fixture
def ticker() -> Iterator[Ticker]:
    before = living()
    ticker = Ticker(period=0.001)
    yield ticker
    assert ticker.close()
    assert living() == before


def test_all_views_move_in_one_thread(ticker: Ticker) -> None:
    """A notebook with fifty cells does not get fifty threads."""
    views = [Steps() for _ in range(5)]
    for view in views:
        ticker.add(view)

    assert all(view.wait(3) for view in views)
    assert {name for view in views for name in view.threads} == {NAME}
    assert len(living()) == 1


def test_thread_ends_with_its_last_view(ticker: Ticker) -> None:
    """Finished runs cost nothing."""
    view = Steps(limit=3)
    ticker.add(view)
    (thread,) = living()

    thread.join(5)

    assert not thread.is_alive()
    assert view.count == 3
    assert ticker.views == ()


def test_view_that_fails_is_dropped_with_a_log_line(ticker: Ticker, caplog: pytest.LogCaptureFixture) -> None:
    """One broken widget must not freeze the others."""
    broken, whole = Steps(error=RuntimeError("cannot draw")), Steps()
    with caplog.at_level(logging.ERROR):
        ticker.add(whole)
        ticker.add(broken)
        assert whole.wait(20)

    assert broken.count == 1
    assert ticker.views == (whole,)
    assert [record.exc_info[1] for record in lines_of(caplog) if record.exc_info] == [broken.error]


def test_wake_takes_the_next_step_at_once() -> None:
    """A pressed button is not kept waiting; with a period of an hour only `wake` can bring the second step."""
    ticker, view = Ticker(period=3600), Steps()
    ticker.add(view)
    assert view.wait(1)

    ticker.wake()

    assert view.wait(1)
    assert ticker.close()


def test_close_ends_the_thread_and_forgets_the_views() -> None:
    """The leak test: nothing is left behind, whatever was moving."""
    ticker, view = Ticker(period=3600), Steps()
    ticker.add(view)
    assert view.wait(1)

    assert ticker.close()

    assert living() == []
    assert ticker.views == ()
    assert ticker.close()


def test_views_can_be_added_from_any_thread(ticker: Ticker) -> None:
    """Cells run in subshells too."""
    views = [Steps(limit=2) for _ in range(20)]
    adders = [threading.Thread(target=ticker.add, args=(view,)) for view in views]
    for adder in adders:
        adder.start()
    for adder in adders:
        adder.join(5)

    assert all(view.wait(2) for view in views)
