from __future__ import annotations

from dqlab.cluster.scheduler.departures import (
    LOOK_EVERY,
    NEW_SILENCE,
    SILENCE,
    Beat,
)
from dqlab.cluster.worker.plugin import BEAT_EVERY


def looks(
    beat: Beat, watched: dict[str, float], start: float, stop: float, speaking: tuple[str, ...] = ()
) -> list[str]:
    """Look from time to time, while some workers go on to beat; return who was found silent."""
    found: list[str] = []
    steps = round((stop - start) / LOOK_EVERY)
    for step in range(1, steps + 1):
        now = start + step * LOOK_EVERY
        if step % round(BEAT_EVERY / LOOK_EVERY) == 0:
            for worker in speaking:
                beat.note(worker, now)
        found.extend(worker for worker in beat.silent(watched, now) if worker not in found)
    return found


def test_worker_that_beats_is_never_found_silent() -> None:
    assert looks(Beat(), {"a": SILENCE}, 0, 100, speaking="a") == []


def test_worker_that_falls_silent_is_found_when_its_third_beat_is_due() -> None:
    beat, watched = Beat(), {"a": SILENCE, "b": SILENCE}
    assert looks(beat, watched, 0, 20, speaking="ab") == []
    assert looks(beat, watched, 20, 20 + SILENCE, speaking="b") == []
    assert looks(beat, watched, 20 + SILENCE, 21 + SILENCE, speaking="b") == ["a"]
    assert SILENCE > 2 * BEAT_EVERY


def test_worker_that_has_been_slow_is_given_more_time() -> None:
    """Everything is slow on a machine with too much to do, and it would be so elsewhere."""
    beat, watched, pause = Beat(), {"a": SILENCE}, 2.0
    looks(beat, watched, 0, 20, speaking="a")
    for start in (20, 22, 24):
        assert looks(beat, watched, start, start + pause) == ([] if start > 20 else ["a"])
        beat.note("a", start + pause)
    assert looks(beat, watched, 26, 26 + 2.9 * pause) == []
    assert looks(beat, watched, 26 + 2.9 * pause, 26 + 3.5 * pause) == ["a"]


def test_silence_while_this_process_did_not_listen_is_not_counted() -> None:
    """A laptop that was asleep, a kernel that was busy: all look silent, and none hangs."""
    beat, watched = Beat(), {"a": SILENCE}
    looks(beat, watched, 0, 20, speaking="a")
    assert beat.silent(watched, 3600.0) == {}
    assert looks(beat, watched, 3600.0, 3620.0, speaking="a") == []
    assert looks(beat, watched, 3620.0, 3622.0) == ["a"]


def test_new_worker_is_given_time_to_begin() -> None:
    """It imports, and reads a long log."""
    beat = Beat()
    looks(beat, {}, 0, 10)
    assert looks(beat, {"new": SILENCE}, 10, 10 + NEW_SILENCE) == []
    assert looks(beat, {"new": SILENCE}, 10 + NEW_SILENCE, 20) == ["new"]
