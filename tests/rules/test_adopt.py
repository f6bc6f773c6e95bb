"""New code for all of a run that is not done."""

from __future__ import annotations

from dqlab.rules.frame_notes import Overrides


def test_function_of_a_whole_lane_is_that_of_messages_still_to_come() -> None:
    """The submitter's frames name the old function; they may be on their way."""
    overrides, old, new = Overrides(), b"o" * 16, b"n" * 16
    overrides.assign(10, 20, old)
    overrides.assign(0, 1 << 53, new)

    assert list(overrides.split(5, 30)) == [(5, 30, new)]
    overrides.discard(0, 15)
    assert list(overrides.split(10, 20)) == [(10, 15, None), (15, 20, new)]
