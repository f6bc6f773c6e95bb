"""Records of one class share what they have in common, and come back byte for byte."""

from __future__ import annotations

import linecache
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dqlab.failures.classes import AlikeRecord, FailureRecords
from dqlab.failures.failure import Failure
from dqlab.frame import Outcome
from tests.kit.memory import allocated_in
from tests.rules.conftest import RUN

SOURCE = """
class Unreadable(Exception):
    pass

def load(path):
    return open(path)

def parse(path):
    try:
        return load(path)
    except OSError as error:
        raise Unreadable(f"cannot read {path}") from error
"""


def record_of(path: str, *, name: str = "<cell>") -> bytes:
    """Return what a consumer sends of a document that is not there."""
    linecache.cache[name] = (len(SOURCE), None, SOURCE.splitlines(keepends=True), name)
    namespace: dict[str, Any] = {"__name__": "__main__"}
    exec(compile(SOURCE, name, "exec"), namespace)
    try:
        namespace["parse"](path)
    except namespace["Unreadable"] as error:
        at = Random(path).random()
        told = Failure.from_exception(
            error, when=1.7e9 + at, seconds=at, key=path, code="a1b2c3d4", consumer="consumer/q/1", worker="w-1"
        )
        return told.to_bytes()
    raise AssertionError(f"{path} exists")


def size_of(stored: object) -> int:
    return len(stored._difference) if isinstance(stored, AlikeRecord) else len(bytes(stored))  # type: ignore[call-overload]


def test_records_come_back_byte_for_byte() -> None:
    """What `run.failures()` shows does not depend on how it was kept."""
    records, sent = FailureRecords(), [record_of(f"/nowhere/{n}.pdf") for n in range(20)]

    assert [bytes(stored) for stored in [records.keep(record) for record in sent]] == sent


def test_traceback_of_a_class_is_kept_once() -> None:
    """Also when the cause in the middle of it names the document."""
    records = FailureRecords()
    first = records.keep(record_of("/nowhere/1.pdf"))
    others = [records.keep(record_of(f"/nowhere/{n}.pdf")) for n in range(2, 50)]

    assert isinstance(first, bytes)
    assert b"direct cause" in first
    assert max(map(size_of, others)) < 160 < 800 < len(first)


def test_record_unlike_its_class_is_kept_whole() -> None:
    """A fingerprint of eight digits may be that of another class; nothing is lost by it."""
    records = FailureRecords()
    like = record_of("/nowhere/1.pdf")
    mark = Failure.from_bytes(like).fingerprint
    unlike = b'{"fingerprint":"%s","message":"%s"}' % (mark.encode(), Random(0).randbytes(400).hex().encode())
    records.keep(like)

    assert records.keep(unlike) is unlike


def test_only_the_classes_that_failed_last_are_remembered() -> None:
    """Endlessly many classes must not fill the memory; their records stay whole."""
    records = FailureRecords(samples=2)
    sent = [b'{"fingerprint":"%08x","traceback":"%s"}' % (n, b"line " * 50) for n in range(4)]
    stored = [records.keep(sent[n]) for n in (0, 1, 0, 2, 0, 1, 3, 3)]

    assert [isinstance(record, AlikeRecord) for record in stored] == [
        False,
        False,
        True,
        False,
        True,
        False,
        False,
        True,
    ]


@given(st.lists(st.binary(max_size=300) | st.builds(lambda tail: b'"fingerprint":"' + tail, st.binary(max_size=300))))
def test_any_bytes_come_back(sent: list[bytes]) -> None:
    """A consumer of another version sends what it likes."""
    records = FailureRecords()

    assert [bytes(records.keep(record)) for record in sent] == sent


def test_dead_letters_and_their_history_show_records_as_they_were_sent(desk: Any) -> None:
    """Through deaths, retries by hand, and pages of dead letters."""
    sent = {}
    desk.put(30)
    for life in range(2):
        for n in range(30):
            sent[life, n] = record_of(f"/nowhere/{life}-{n}.pdf")
            desk.fail_alone(Outcome.REJECT, sent[life, n])
        if life == 0:
            desk.shard.retry(RUN, [(0, 30)], None)

    letters = desk.shard.dead_letters(RUN)

    assert [letter.failure for letter in letters] == [sent[1, n] for n in range(30)]
    assert [letter.history[0].failure for letter in letters] == [sent[0, n] for n in range(30)]


RULES = ("*/dqlab/rules/*", "*/dqlab/frame/*", "*/sortedcontainers/*", "*/msgpack/*", "<string>")


@pytest.mark.long
def test_failure_of_a_known_class_costs_little_memory(desk: Any) -> None:
    """A hundred thousand of them are 40 MB at most, with all that the rules note of each; kept whole they were 100."""
    n = 2000
    sent = [record_of(f"/nowhere/{number:06d}.pdf") for number in range(n)]
    desk.put(n)
    lease = desk.lease(n)
    settlement = desk.settlement(lease, [Outcome.REJECT] * n, payloads=sent)
    with allocated_in(*RULES) as kept:
        desk.shard.settle(settlement)
        del lease
        assert 200 < kept() / n < 400

    assert desk.shard.lanes[RUN].dead.first == 0
