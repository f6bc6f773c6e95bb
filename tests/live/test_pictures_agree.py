"""Pictures of a run on a cluster: their numbers are of one instant."""

from __future__ import annotations

from typing import Any

import dqlab as dq
from dqlab.live.follow import LiveRun
from dqlab.live.views import RunView


def fails_for_some(x: int) -> int:
    if x % 25 == 0:
        raise ValueError("no total")
    return x


def number(text: str) -> int:
    return int(text.replace(",", ""))


def numbers_of(view: RunView) -> dict[str, int]:
    """Return the documents of a picture by state, after a check that what it repeats is the same everywhere."""
    shown = {counter.state: number(counter.documents) for counter in view.counters}
    held = view.details.leases
    assert held is not None
    assert number(view.figures[3].value) == sum(number(row.dead) for row in view.failures) == shown["dead"]
    assert number(held.title.split()[0]) == shown.get("leased", 0)
    return shown


def test_a_picture_agrees_with_itself_and_that_of_the_end_with_the_queue(queue: dq.QueuePool, canvas: Any) -> None:
    """ "17 dead" stood above "12 dead", and a view that is not drawn again kept what was reported before the end."""
    run = queue.map(fails_for_some, range(2_000), retry=dq.Retry(0))
    live = LiveRun(run, canvas)
    while live.tick():
        live.look_again()

    *_, last = [numbers_of(view) for view in [*canvas.drawn, canvas.last] if view.counters]
    assert last == {"acked": 1_920, "dead": 80}
    assert {state: count for state, count in run.counts.items() if count} == last


def test_statistics_after_a_wait_have_all_that_was_done(queue: dq.QueuePool) -> None:
    """Reports come four times a second: a run of a millisecond would have ended unseen."""
    for _ in range(10):
        run = queue.map(fails_for_some, range(3), retry=dq.Retry(0)).wait(timeout=20)
        stats = run.stats()
        assert (stats.state, stats.counts.acked, stats.counts.dead) == ("done", 2, 1)
        assert [entry.dead for entry in stats.classes] == [1]
