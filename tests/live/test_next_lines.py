"""What is to be typed next about what needs the user."""

from __future__ import annotations

import pytest

from dqlab.jupyter.grammar import COMMANDS
from dqlab.live.next_lines import failed_lines, next_line
from dqlab.stats import Attention, AttentionKind, Counts, RunState, RunStats, Severity, Snapshot
from dqlab.stats.attention import brief
from dqlab.stats.snapshot import plain

KINDS = tuple(AttentionKind)
WITHOUT_A_LINE = {
    AttentionKind.LOST,
    AttentionKind.MISSING,
    AttentionKind.SINK,
    AttentionKind.LEAVING,
    AttentionKind.AT_REST,
    AttentionKind.OTHER,
}
"""Their own words name what to do, or nothing helps."""


def need(kind: AttentionKind, action: str = "") -> Attention:
    return Attention(Severity.WARNING, kind, "it", "is so", "", action, queue="a queue", run="it's", target="f1")


@pytest.mark.parametrize("kind", KINDS)
def test_lines_are_commands_that_exist_and_name_what_they_are_about(kind: AttentionKind) -> None:
    """A line that is copied from a view has to run."""
    assert brief(need(kind))
    line = next_line(need(kind))
    assert bool(line) == (kind not in WITHOUT_A_LINE)
    if line.startswith("%dq "):
        assert line.split()[1] in COMMANDS
    if " " in line and "doctor" not in line:
        assert "it's" in line or "a queue" in line


def test_run_whose_documents_all_failed_is_not_to_be_resumed() -> None:
    """The rest would fail too."""
    assert next_line(need(AttentionKind.STOPPED, "retry")) == '%dq failed "it\'s"'
    assert next_line(need(AttentionKind.STOPPED, "resume")) == '%dq resume "it\'s"'


def test_kinds_of_a_newer_scheduler_have_no_line() -> None:
    """Which is better than an error in place of a page."""
    newer = plain(need(AttentionKind.HELD)) | {"kind": "of a newer version"}

    [known] = Snapshot.from_dict({"at": 0, "seq": 0, "attention": [newer]}).attention

    assert (known.kind, known.text, next_line(known)) == (AttentionKind.OTHER, "is so", "")


def test_of_many_runs_with_failures_three_are_named() -> None:
    """They fit in a line."""
    runs = [RunStats(f"r{n}", "q", RunState.DONE, Counts(dead=1)) for n in range(5)]

    assert failed_lines(runs) == ["%dq failed r0", "%dq failed r1", "%dq failed r2"]
