"""What is remembered of an input that was submitted in part."""

from __future__ import annotations

import inspect
import sys
import threading
from collections import namedtuple
from collections.abc import Callable, Iterable, Sequence
from random import Random
from types import SimpleNamespace
from typing import Any, cast

import pytest

from dqlab.cluster.transport.orders import RecordSubmitted
from dqlab.documents import Document
from dqlab.rules.puts import Submitted
from dqlab.rules.ranges import Ranges
from dqlab.runs.submit.elements import Digest
from dqlab.runs.submit.mapping import Submitter
from dqlab.runs.submit.sender import RunSender


def digest_of(elements: list[bytes], confirmed: int = 0) -> Digest:
    digest = Digest(lambda: confirmed)
    for element in elements:
        digest.update(None, element)
    return digest


INPUT = [b"%d" % n for n in range(2000)]


def test_digest_forgets_what_is_confirmed() -> None:
    """A run of a hundred million elements holds none of them."""
    digest = digest_of(INPUT, confirmed=1700)

    assert sum(len(inputs) for _, _, inputs in digest._blocks) <= 600
    assert digest.at(1700) == digest_of(INPUT[:1700]).at(1700)
    with pytest.raises(AssertionError, match="the first 100 elements was forgotten"):
        digest.at(100)  # it was that of all elements


def test_digest_is_the_same_where_another_thread_records_it_meanwhile() -> None:
    """Elements are added without a lock."""
    digest, counts, over = Digest(lambda: 0), [0], threading.Event()

    def record() -> None:
        while not over.is_set():
            digest.at(0)
            counts.append(digest.count)

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    recording = threading.Thread(target=record)
    recording.start()
    try:
        for element in INPUT * 200:
            digest.update(None, element)
    finally:
        over.set()
        recording.join()
        sys.setswitchinterval(interval)

    assert digest.count == 200 * len(INPUT)
    assert digest.at(digest.count) == digest_of(INPUT * 200).at(200 * len(INPUT))
    assert counts == sorted(counts)


class Resting:
    """A sender whose queue holds 400 elements; the input goes on as soon as that was looked up."""

    run, producer, max_bytes = b"r" * 16, b"p" * 16, None

    def __init__(self) -> None:
        self.through, self.held, self.records = 0, Ranges(), list[RecordSubmitted]()
        self.handle = SimpleNamespace(link=self, order=self.records.append)
        self.submitter = Submitter("r", [], cast("RunSender", self))

    def sync(self, call: Any) -> Any:
        if not inspect.iscoroutine(call):
            return None
        with pytest.raises(StopIteration) as held:
            call.send(None)
        self.put(1000)
        for element in INPUT[1000:]:
            self.submitter.digest.update(None, element)
        return held.value.value

    def put(self, through: int) -> None:
        self.through = through
        self.held.add(0, through)


def test_record_has_the_digest_of_what_it_names_though_the_input_goes_on_meanwhile() -> None:
    """A client that dies then could not submit that input again: it would be another one."""
    sender = Resting()
    for element in INPUT[:1000]:
        sender.submitter.digest.update(None, element)
    sender.put(400)

    sender.submitter._send_note()

    (record,) = sender.records
    assert record.known == Submitted(400, digest_of(INPUT[:400]).at(400))
    sender.submitter.digest.update(None, b"next")
    assert sender.submitter.digest.at(2000) == digest_of(INPUT).at(2000)
    assert not [first for first, _, inputs in sender.submitter.digest._blocks if first + len(inputs) <= 1000]


def test_documents_are_known_by_key_and_version() -> None:
    """Where they lie may change."""
    digests = []
    for key, version, where in [("a", "1", "/x/a"), ("a", "1", "/y/a"), ("a", "2", "/x/a")]:
        digest = Digest(lambda: 0)
        digest.update(Document(key, version, where), b"")
        digests.append(digest.at(1))

    assert digests[0] == digests[1] != digests[2]


@pytest.mark.parametrize(
    "held",
    [[], [(0, 700)], [(0, 700), (900, 1100), (1300, 1301)], [(5, 9)]],
    ids=["nothing", "all", "gaps", "no first"],
)
def test_submitted_survives_the_run_record(held: list[tuple[int, int]]) -> None:
    """Another process reads it."""
    submitted = digest_of(INPUT).submitted(Ranges(held), Submitted())

    again = Submitted.of(submitted.record())

    assert again == submitted
    assert Ranges(again.held) == Ranges(held)
    assert again.end == max((hi for _, hi in held), default=0)


def test_input_that_ended_before_a_gap_was_filled_leaves_the_end_as_it_was() -> None:
    """The elements behind it were not seen this time."""
    before = digest_of(INPUT).submitted(Ranges([(0, 700), (900, 1100)]), Submitted())

    now = digest_of(INPUT[:850]).submitted(Ranges([(0, 800), (900, 1100)]), before)

    assert (now.through, list(now.beyond), now.end_digest) == (800, [(900, 1100)], before.end_digest)
    assert now.digest == digest_of(INPUT[:800]).at(800)


def test_input_that_ended_in_a_filled_gap_is_known_as_far_as_it_was_read() -> None:
    """All is in the queue up to 1100, but only 900 elements have been seen again."""
    before = digest_of(INPUT).submitted(Ranges([(0, 700), (900, 1100)]), Submitted())

    now = digest_of(INPUT[:900]).submitted(Ranges([(0, 1100)]), before)

    assert (now.through, list(now.beyond), now.end_digest) == (900, [(900, 1100)], before.end_digest)


def test_records_of_older_logs_are_read() -> None:
    """They have gaps in the text of the digest, or nothing beside it."""
    assert Submitted.of({"submitted": 50, "digest": "d"}) == Submitted(50, "d")
    text = {"submitted": 50, "digest": "d+e+60-80+90-91", "beyond": [], "end_digest": ""}
    assert Submitted.of(text) == Submitted(50, "d", Ranges([(60, 80), (90, 91)]), "e")


def test_what_shards_hold_beside_the_record_is_known_without_a_digest_of_its_end() -> None:
    """Who died while submitting did not record the last ones."""
    known = Submitted(50, "d", Ranges([(60, 80)]), "e")

    assert known.extended([(40, 55), (70, 80)]) == Submitted(50, "d", Ranges([(50, 55), (60, 80)]), "e")
    assert known.extended([(70, 90)]) == Submitted(50, "d", Ranges([(60, 90)]), "")


class Collecting:
    """A sender that keeps what it is handed."""

    run, producer, max_bytes, failure, through = b"r" * 16, b"p" * 16, 1 << 18, None, 0

    def __init__(self) -> None:
        self.held, self.messages, self.at_once = Ranges(), list[tuple[Any, bytes]](), list[int]()
        self.handle = SimpleNamespace(link=self, order=lambda order: order)
        self.opening = SimpleNamespace(record={})

    def sync(self, call: Any) -> Ranges:
        if inspect.iscoroutine(call):
            call.close()
        return self.held

    def append(self, element: Any, payload: bytes) -> None:
        self.append_all((element,), (payload,), len(payload))

    def append_all(self, elements: Sequence[Any], payloads: Sequence[bytes], size: int) -> None:
        assert size == sum(map(len, payloads))
        self.messages.extend(zip(elements, payloads, strict=True))
        self.at_once.append(len(elements))


def _put(elements: Iterable[Any]) -> tuple[list[tuple[Any, bytes]], int, str, str, list[int]]:
    """Submit an input, and return its messages, how many were read, their digest, why it ended, and the slices."""
    sender = Collecting()
    submitter = Submitter("r", elements, cast(RunSender, sender))
    try:
        submitter._submit()
    except Exception as error:  # noqa: BLE001 - compared
        ended = f"{type(error).__name__}: {error}"
    else:
        ended = ""
    submitter._ended.set()
    return sender.messages, submitter.count, submitter.digest.at(submitter.count), ended, sender.at_once


def _homeless(x: int) -> Any:
    return namedtuple("Pandas", "Index a")(x, str(x))  # type: ignore[call-arg, arg-type]


MAKE: list[Callable[[int], Any]] = [
    *[int, str, lambda x: {"x": x, "y": [x] * 3}, lambda x: Document(f"{x}.txt", "1", f"/d/{x}.txt")],
    *[_homeless, lambda x: b"l" * (x % 7) * 20_000, lambda x: (x, (x,))],
]


@pytest.mark.parametrize("seed", range(12))
def test_elements_pickled_together_are_put_as_those_pickled_one_by_one(seed: int) -> None:
    """Same messages, same digest, and the same error behind the same elements."""
    drawn = Random(seed)
    elements = [drawn.choice(MAKE)(x) for x in range(drawn.randrange(1, 900))]
    for bad in drawn.sample([threading.Lock(), b"n" * (1 << 19)], drawn.randrange(3)):
        elements.insert(drawn.randrange(len(elements)), bad)

    one_by_one, together = _put(iter(elements)), _put(tuple(elements))

    assert together[:4] == one_by_one[:4]
    assert set(one_by_one[4]) <= {1}
    assert max(_put(tuple(range(2000)))[4]) == 256


def test_large_elements_do_not_wait_for_others() -> None:
    """A slice of them would hold up the first one, and fill memory."""
    assert max(_put((b"l" * 200_000,) * 50)[4]) == 1
