from __future__ import annotations

from dqlab.cluster.beat import BEAT_EVERY, LOOK_EVERY, SILENCE, TRANSIENT_SILENCE, Beat, patience


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
                beat.heard(worker, now)
        found.extend(worker for worker in beat.silent(watched, now) if worker not in found)
    return found


def test_worker_that_beats_is_never_found_silent() -> None:
    assert looks(Beat(), {"a": SILENCE}, 0, 100, speaking="a") == []


def test_worker_that_falls_silent_is_found_after_two_beats() -> None:
    beat, watched = Beat(), {"a": SILENCE, "b": SILENCE}
    assert looks(beat, watched, 0, 10, speaking="ab") == []
    assert looks(beat, watched, 10, 10 + SILENCE, speaking="b") == []
    assert looks(beat, watched, 10 + SILENCE, 11 + SILENCE, speaking="b") == ["a"]
    assert SILENCE > 2 * BEAT_EVERY


def test_silence_while_this_process_did_not_listen_is_not_counted() -> None:
    """A laptop that was asleep, a kernel that was busy: all look silent, and nobody hangs."""
    beat, watched = Beat(), {"a": SILENCE}
    looks(beat, watched, 0, 10, speaking="a")
    assert beat.silent(watched, 3600.0) == {}
    assert looks(beat, watched, 3600.0, 3610.0, speaking="a") == []
    assert looks(beat, watched, 3610.0, 3612.0) == ["a"]


def test_worker_that_got_its_first_shard_is_given_time_to_speak() -> None:
    beat = Beat()
    looks(beat, {}, 0, 10)
    assert looks(beat, {"new": SILENCE}, 10, 10 + SILENCE) == []


def test_worker_with_a_transient_shard_is_given_more_time() -> None:
    """To end it loses what the shard holds."""
    assert patience([("a", True), ("b", False), ("c", False), ("c", True)]) == {
        "a": SILENCE,
        "b": TRANSIENT_SILENCE,
        "c": TRANSIENT_SILENCE,
    }
