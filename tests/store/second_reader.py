"""A second reader of a shard's directory, written from docs/reference/log-format.md alone; it imports nothing of dqlab.

Slow and plain: one record a message, no ranges. It stops at the first damage instead of searching on.
"""

from __future__ import annotations

import json
import struct
import zlib
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Any

import msgpack

READY, DELAYED, LEASED, ACKED, DEAD, CANCELLED, LOST = range(7)
FINAL = (ACKED, CANCELLED, LOST)
PUT, SETTLE, STATE, RUN, FUNCTION, LEASE = range(16, 22)
COPIED = 1
PLAIN = bytes(16)
Position = tuple[int, int, int]  # segment, offset, size
Record = tuple[int, int, int, int, float, bytes, Position]  # type, flags, count, base, seconds since 1970, body


@dataclass
class Message:
    frame: Position
    at: int
    state: int = READY
    due: float = 0.0  # seconds since 1970


@dataclass
class Lane:
    counts: Counter[int] = field(default_factory=Counter)
    messages: dict[int, Message] = field(default_factory=dict)
    results: list[tuple[int, int, int, int, Position]] = field(default_factory=list)  # first id, ordinal, n, at, place


class SecondReader:
    """Reads one shard's log; `now` is seconds since 1970. Ask `counts`, `payloads` of what is not final, `results`."""

    def __init__(self, directory: Path, now: float) -> None:
        self.directory = directory
        self.manifest = self.read_manifest()
        self.uuid = bytes.fromhex(self.manifest["uuid"])
        self.segments = {entry["seq"]: entry for entry in self.manifest["segments"]}
        self.lanes: dict[bytes, Lane] = {PLAIN: Lane()}
        self.functions: dict[bytes, bytes] = {}
        self.early: dict[bytes, set[int]] = {}
        for record in self.replay(self.read_checkpoints()):
            self.apply(*record)
        for run, id in [(run, id) for run, ids in self.early.items() for id in ids if run in self.lanes]:
            self.move(run, id, id + 1, DEAD, only=(READY, DELAYED))
        for lane in self.lanes.values():
            for message in lane.messages.values():
                if message.state == DELAYED and message.due <= now:
                    message.state = READY
                    lane.counts.update({DELAYED: -1, READY: 1})

    def counts(self) -> dict[bytes, dict[int, int]]:
        return {run: {state: n for state, n in lane.counts.items() if n} for run, lane in self.lanes.items()}

    def payloads(self) -> dict[int, bytes]:
        waiting = {id: m for lane in self.lanes.values() for id, m in lane.messages.items() if m.state not in FINAL}
        return {id: payload_of(self.body_at(m.frame), m.at) for id, m in waiting.items()}

    def results(self) -> dict[bytes, dict[int, bytes]]:
        found: dict[bytes, dict[int, bytes]] = {run: {} for run in self.lanes}
        for run, first, n, at, place in [(run, r[0], *r[2:]) for run, lane in self.lanes.items() for r in lane.results]:
            entries = settlement_of(opened(self.body_at(place))[1])[1]
            found[run].update((first + i, entries[at + i]) for i in range(n))
        return found

    def read_manifest(self) -> dict[str, Any]:
        data = max(self.directory.glob("MANIFEST-??????????")).read_bytes()
        assert data[-15:] == b"crc32 %08x\n" % zlib.crc32(data[:-15])
        manifest: dict[str, Any] = json.loads(data[:-15])
        assert manifest["format"][0] == 1
        assert manifest["incompatible"] in (0, 1)
        return manifest

    def read_checkpoints(self) -> tuple[int, int] | None:
        for name in reversed(self.manifest["checkpoints"]):
            data = (self.directory / name).read_bytes()
            if zlib.crc32(data[:-4]) != int.from_bytes(data[-4:], "little"):
                continue
            magic, version, uuid, segment, offset, entries, length = struct.unpack_from("<8sI16sQQIQ", data)
            assert (magic, version, uuid) == (b"DQLABCKP", 1, self.uuid)
            body = zlib.decompress(data[56 + 16 * entries :][:length])
            self.restore(msgpack.unpackb(body, strict_map_key=False))
            return segment, offset
        return None

    def restore(self, state: dict[str, Any]) -> None:
        assert state["version"] == 1
        self.functions.update(state["functions"])
        for run, ranges in state["early"]:
            self.take_early(run, ranges)
        for entry in state["lanes"]:
            run = entry["run"]
            lane = self.lanes[run] = Lane(Counter(dict(enumerate(entry["counts"]))))
            lane.counts[READY] += lane.counts.pop(LEASED)
            columns = [column(entry[name]) for name in ("first", "count", "place", "place_low")]
            states = {first: values.replace(b"\2", b"\0") for first, values in entry["states"]}
            for first, count, high, low in zip(*columns, strict=True):
                for i, value in enumerate(states.get(first, bytes(count))):
                    lane.messages[first + i] = Message(position(high, low), i, value)
            for id, *_, delay, _ in entry["trouble"]:
                lane.messages[id].due = state["at"] + delay / 1e6
            if entry["book"] is not None:
                numbers, places = column(entry["book"]["results"]), column(entry["book"]["places"])
                rows = zip(*(numbers[i::4] for i in range(4)), *(places[i::2] for i in range(2)), strict=True)
                lane.results = [(*row[:4], position(*row[4:])) for row in rows]

    def body_at(self, place: Position) -> bytes:
        segment, offset, size = place
        found = self.parse(self.bytes_of(segment), offset, segment)
        assert found is not None
        assert found[6][2] == size
        return found[5]

    def bytes_of(self, segment: int) -> bytes:
        entry = self.segments[segment]
        data = (self.directory / f"{segment:010d}-{entry['epoch']:010d}.seg").read_bytes()
        assert struct.unpack_from("<8s12xQQ", data) == (b"DQLABSEG", segment, entry["epoch"])
        assert zlib.crc32(data[:60]) == int.from_bytes(data[60:64], "little")
        return data if entry["length"] is None else data[: entry["length"]]

    def parse(self, data: bytes, offset: int, segment: int) -> Record | None:
        if offset + 48 > len(data):
            return None
        magic, type, flags, size, count, length, base, aux, _, epoch, body_crc, crc = struct.unpack_from(
            "<IBBHIIQQIIII", data, offset
        )
        seed = zlib.crc32(self.uuid[:8] + segment.to_bytes(8, "little"))
        body = data[offset + 48 : offset + 48 + length]
        right = zlib.crc32(data[offset : offset + 44], seed) == crc and zlib.crc32(body) == body_crc
        if not right or (magic, size, epoch) != (0x525144D9, 48, self.segments[segment]["epoch"]):
            return None
        return type, flags, count, base, aux / 1e9, body, (segment, offset, 48 + length)

    def replay(self, start: tuple[int, int] | None) -> Iterator[Record]:
        entries = self.manifest["segments"]
        if start is not None:
            entries = entries[[entry["seq"] for entry in entries].index(start[0]) :]
        for entry in entries:
            offset = start[1] if start is not None and start[0] == entry["seq"] else 64
            data = self.bytes_of(entry["seq"])
            while record := self.parse(data, offset, entry["seq"]):
                yield record
                offset += record[6][2]
            assert entry["length"] in (None, offset), "a sealed segment is damaged"

    def apply(self, type: int, flags: int, count: int, base: int, wall: float, body: bytes, place: Position) -> None:
        if flags & COPIED and self.moved(type, count, base, body, place):
            return
        if type == PUT:
            assert body[:3] == b"DQ\1"
            if (run := body[24:40]) in self.lanes:
                self.lanes[run].messages |= {base + i: Message(place, i) for i in range(count)}
                self.lanes[run].counts[READY] += count
        elif type == SETTLE:
            self.settle(*opened(body), wall, place)
        elif type == STATE:
            self.moves(msgpack.unpackb(body), wall)
        elif type == RUN:
            self.order(*msgpack.unpackb(body, strict_map_key=False))
        elif type == FUNCTION:
            self.functions[body[:16]] = body[16:]
        elif type == LEASE:
            self.take_early(*msgpack.unpackb(body))

    def moved(self, type: int, count: int, base: int, body: bytes, place: Position) -> bool:
        """Whether the original of a copy is known, which is read from its new place then."""
        if type == PUT:
            messages = self.lanes.get(body[24:40], Lane()).messages
            known = [messages[id] for id in range(base, base + count) if id in messages]
            for message in known:
                message.frame = place
            return bool(known)
        lane = self.lanes.get(opened(body)[1][24:40], Lane())
        old, before = (base >> 27, base & 0x7FFFFFF, place[2]), lane.results
        lane.results = [(*row[:4], place if row[4] == old else row[4]) for row in before]
        return lane.results != before

    def settle(self, ruling: bytes, settlement: bytes, wall: float, place: Position) -> None:
        if (run := settlement[24:40]) not in self.lanes:
            return
        acked, _, moves, *_ = msgpack.unpackb(ruling) if ruling else (settlement_of(settlement)[0], [], [])
        for first, ordinal, n, at in acked:
            self.move(run, first, first + n, ACKED)
            self.lanes[run].results.append((first, ordinal, n, at, place))
        self.moves(moves, wall)

    def take_early(self, run: bytes, ranges: list[tuple[int, int]]) -> None:
        self.early.setdefault(run, set()).update(id for lo, hi in ranges for id in range(lo, hi))

    def order(self, op: str, run: bytes, meta: dict[str, Any]) -> None:
        if op == "open":
            self.lanes.setdefault(meta["open"]["run"], Lane())
        elif op == "drop" and self.lanes.pop(run, None) is not None and run == PLAIN:
            self.lanes[PLAIN] = Lane()
        elif run in self.lanes and op == "cancel":
            self.move(run, 0, 1 << 53, CANCELLED, only=(READY, DELAYED))
        elif run in self.lanes and op == "retry":
            for lo, hi in meta["ids"]:
                self.move(run, lo, hi, READY, only=(DEAD,))

    def moves(self, rows: list[Any], wall: float) -> None:
        for run, lo, hi, state, _suspect, delay, _counts in rows:
            if run in self.lanes:
                self.move(run, lo, hi, state, due=wall + delay / 1e6)

    def move(self, run: bytes, lo: int, hi: int, state: int, *, due: float = 0.0, only: tuple[int, ...] = ()) -> None:
        lane = self.lanes[run]
        if not only:
            self.early.get(run, set()).difference_update(range(lo, hi))  # something was heard of them
        for message in [message for id, message in lane.messages.items() if lo <= id < hi]:
            if message.state not in FINAL and (not only or message.state in only):
                lane.counts[message.state] -= 1
                lane.counts[state] += 1
                message.state, message.due = state, due


def opened(body: bytes) -> tuple[bytes, bytes]:
    at = 4 + int.from_bytes(body[:4], "little")
    return body[4:at], body[at:]


def payload_of(frame: bytes, at: int) -> bytes:
    (count,) = struct.unpack_from("<I", frame, 4)
    lengths, start = lengths_of(frame, 72, count)
    start += (4 * count if frame[3] & 0x10 else 0) + sum(lengths[:at])
    return frame[start : start + lengths[at]]


def lengths_of(blob: bytes, start: int, count: int) -> tuple[tuple[int, ...], int]:
    """The lengths that begin there, and where they end."""
    if blob[3] & 0x40:
        return struct.unpack_from("<I", blob, start) * count, start + 4
    return struct.unpack_from(f"<{count}I", blob, start), start + 4 * count


def settlement_of(blob: bytes) -> tuple[list[tuple[int, int, int, int]], list[bytes]]:
    """Its pieces as (first id, ordinal, n, at), and its entries."""
    assert blob[:3] == b"DS\1"
    count, n_pieces = struct.unpack_from("<4xI36xI", blob)
    numbers, pieces, at = struct.unpack_from(f"<{3 * n_pieces}Q", blob, 48), [], 0
    for first, ordinal, n in zip(numbers[::3], numbers[1::3], numbers[2::3], strict=True):
        pieces.append((first, ordinal, n, at))
        at += n
    start = 48 + 24 * n_pieces + (0 if blob[3] & 0x80 else count + -count % 4)
    lengths, start = lengths_of(blob, start, count)
    ends = list(accumulate(lengths, initial=start + (4 * count if blob[3] & 0x20 else 0)))
    return pieces, [blob[a:b] for a, b in pairwise(ends)]


def column(data: bytes) -> tuple[int, ...]:
    return struct.unpack(f"<{len(data) // 8}Q", data)


def position(high: int, low: int) -> Position:
    return (high >> 22, (high << 5 | low >> 27) & 0x7FFFFFF, low & 0x7FFFFFF)
