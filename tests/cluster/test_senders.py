"""What waits on its way into a queue: bounded in bytes too, and cut into frames that fit."""

from __future__ import annotations

import threading
import time
from itertools import accumulate
from types import SimpleNamespace
from typing import Any

import pytest

from dqlab.documents import Document
from dqlab.documents.parts import Row
from dqlab.frame import NO_ID, Kind
from dqlab.runs.submit.sender import BUFFER_BYTES, Entry, PutSender, RunSender, Ticket, UnsentFrame

MiB = 1 << 20
ENTRY = Entry(Kind.ELEMENT)


@pytest.fixture
def waiting() -> threading.Event:
    """Set when a thread waits for room, and looks whether the scheduler is still there."""
    return threading.Event()


@pytest.fixture
def handle(waiting: threading.Event) -> Any:
    """A queue of one shard to which nothing is sent: frames are taken by hand."""
    return SimpleNamespace(name="q", shards=1, link=SimpleNamespace(check_scheduler=waiting.set))


def make(kind: Any, handle: Any, *first: Any, **options: Any) -> Any:
    sender = kind(handle, *first, run=NO_ID, producer=b"p" * 16, **options)
    sender.awake = True  # so that it does not look for an event loop
    return sender


def run_sender(handle: Any, sizes: list[int], **options: Any) -> RunSender:
    sender: RunSender = make(RunSender, handle, ENTRY, **options)
    for size in sizes:
        sender.append(Document(f"{size}.pdf", "", "", n_pages=size), bytes(size))
    return sender


def test_puts_of_large_values_wait_for_room_in_bytes(handle: Any, waiting: threading.Event) -> None:
    """Eight thousand documents of half a megabyte are four gigabytes in the notebook's kernel."""
    sender, ticket = make(PutSender, handle), Ticket(100)
    putting = threading.Thread(target=lambda: [sender.extend([(ENTRY, [bytes(MiB)])], ticket) for _ in range(6)])
    putting.start()

    assert waiting.wait(10)
    assert sender.buffered_bytes == BUFFER_BYTES + MiB
    while len(sender.buffer) > 2:
        sender.gather()
    putting.join(10)
    assert not putting.is_alive()
    assert sender.buffered_bytes == 3 * MiB


def test_a_run_of_large_elements_waits_for_room_in_bytes(handle: Any, waiting: threading.Event) -> None:
    """Likewise where the input is iterated: it is taken lazily, and never held whole."""
    sender = run_sender(handle, [])
    handing = threading.Thread(target=lambda: [sender.append(None, bytes(BUFFER_BYTES // 8)) for _ in range(9)])
    handing.start()

    assert waiting.wait(10)
    while len(sender.buffer) > 4:
        sender.gather()
    handing.join(10)
    assert not handing.is_alive()


class Interrupted(bytes):
    """A payload during whose counting another thread has its turn, as it may at any line."""

    def __len__(self) -> int:
        time.sleep(0)
        return super().__len__()


def test_bytes_in_the_buffer_are_counted_right_by_many_threads(handle: Any) -> None:
    """A count that drifts upwards would let everybody wait for ever."""
    sender, ticket = make(PutSender, handle), Ticket(1)
    payload = Interrupted(b"x" * 10)
    threads = [
        threading.Thread(target=lambda: [sender.extend([(ENTRY, [payload])], ticket) for _ in range(1000)])
        for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    taken = 0
    while taken < 4000:
        taken += len(sender.gather().payloads) if sender.buffer else 0
    for thread in threads:
        thread.join()

    assert sender.buffered_bytes == 0


@pytest.mark.parametrize("sizes", [[600_000, 600_000, *[10] * 500], [*[10] * 500, 900_000, *[10] * 500], [200_000] * 9])
def test_frames_are_cut_by_the_size_of_what_they_hold(handle: Any, sizes: list[int]) -> None:
    """A frame above the bound of its lane would wait for room that never comes."""
    sender = run_sender(handle, sizes, max_bytes=1_000_000)
    frames = []
    while sender.buffer:
        frames.append(sender.gather())

    assert [len(payload) for frame in frames for payload in frame.payloads] == sizes
    assert [weight for frame in frames for weight in frame.weights or ()] == sizes
    for frame in frames:
        assert len(frame.payloads) == 1 or sum(map(len, frame.payloads)) <= sender.frame_bytes
    assert sender.buffered_bytes == 0


def test_ordinals_stay_those_of_the_input_however_frames_are_cut(handle: Any) -> None:
    """A cut that lost its place would file results under other documents."""
    sender = run_sender(handle, [10] * 100 + [300_000] * 3 + [10] * 100)
    sender.go_on([0], [(0, 50), (120, 130)])
    at = []
    while sender.buffer:
        frame = sender.gather()
        at += range(sender.sent, sender.sent + len(frame.payloads))
        sender.sent += len(frame.payloads)

    assert at == [*range(50, 120), *range(130, 130 + 203 - 70)]


@pytest.mark.parametrize("at_once", [True, False])
def test_a_frame_begins_where_a_row_group_does_and_says_so(handle: Any, at_once: bool) -> None:
    """Also where all before it had been sent before the group began."""
    sender = run_sender(handle, [])
    rows = [("a", 0, 2500), ("a", 1, 10), ("a", 2, 1200), ("b", 2, 700)]
    frames = []
    for where, group, n in rows:
        for at in range(n):
            sender.append(Document(f"{where}:{at}", "", f"/{where}", part=Row(group, at)), b"-")
            if not at_once and len(sender.buffer) == 500:
                frames.append(sender.gather())
        if not at_once and sender.buffer:
            frames.append(sender.gather())
    while sender.buffer:
        frames.append(sender.gather())

    begins = [
        at
        for at, frame in zip(accumulate([0, *(len(f.payloads) for f in frames)]), frames, strict=False)
        if frame.opens
    ]
    assert begins == [2500, 3710]  # the small group goes with the one behind it
    assert sum(len(frame.payloads) for frame in frames) == sum(n for _, _, n in rows)


def test_each_shard_learns_where_a_row_group_begins(handle: Any) -> None:
    """A shard that is not told puts the group behind the one before it, which another process may run."""
    handle.shards = 3
    sender = run_sender(handle, [])
    for group in range(3):
        for at in range(5 * sender.frame_messages):
            sender.append(Document(f"{group}:{at}", "", "/a", part=Row(group, at)), f"{group}".encode())
    frames: list[list[UnsentFrame]] = [[] for _ in range(handle.shards)]
    while sender.buffer:
        sender.shard = sender.choose()
        frames[sender.shard].append(sender.gather())

    for of_shard in frames:
        held = [frame.payloads[0] for frame in of_shard]
        assert sorted(set(held)) == [b"0", b"1", b"2"]
        begins = [at > 0 and held[at - 1] != group for at, group in enumerate(held)]
        assert [frame.opens for frame in of_shard] == begins


def test_single_puts_share_a_frame_only_while_it_fits(handle: Any) -> None:
    """Two values of 600 kB do not fit a queue that holds one megabyte."""
    sender, ticket = make(PutSender, handle, max_bytes=1_000_000), Ticket(3)
    for size in (600_000, 600_000, 10):
        sender.extend([(ENTRY, [bytes(size)])], ticket)

    assert [len(sender.gather().payloads) for _ in range(3)] == [1, 1, 1]
