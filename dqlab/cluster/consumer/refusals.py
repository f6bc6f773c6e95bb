"""Decides the outcomes of documents that their storage has refused, and waits for new credentials.

- A document that is forbidden by itself fails as usual.
- One that can be read by now is given back, uncounted.
- Where the storage also refuses a file that it gave before, the credentials have expired: the messages are given back,
  uncounted, and the run is held up until one of these files can be read again.

A consumer that has read nothing from the storage yet follows the others. This module knows neither how a file is read
(`documents.refusals`) nor how an outcome is settled (`slot`).
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import logging
import os
import socket
import threading
import time
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from itertools import islice
from typing import NamedTuple, Protocol

from dqlab.cluster.consumer.running.chunk import Chunk, Done
from dqlab.cluster.transport.blocking import Answer, hold
from dqlab.cluster.transport.wire import Packed, unpack
from dqlab.documents.document import sealed_document
from dqlab.documents.refusals import refuses, root_of
from dqlab.documents.storage import local_path, storage_of
from dqlab.errors import DqlabError
from dqlab.frame import Outcome
from dqlab.rules.ranges import Ranges
from dqlab.stats import Blocked

__all__ = ["Refusals"]

logger = logging.getLogger("dqlab.consumer")

TRY_S = 10.0
"""Seconds that a storage may take to give or refuse a file; a slower one counts as not refused."""
AGAIN_S = 1.0, 5.0
"""Shortest and longest pause before a storage is tried again; each try reports the held-up run to its shards."""

IN_VAIN_S = 600.0
"""Seconds for which no readable document of a run and a storage is given back, after one came back refused again."""
STORAGES = 16
"""Storages to try for one chunk; documents of others fail as usual."""
RUNS, STRETCHES = 32, 1000
"""Most runs whose given-back messages are remembered, and most stretches of their ids in one run; a run with more gives
no readable document back."""

_File = tuple[str, str]
"""A URL, and the name of its options."""


class _Refused(NamedTuple):
    """A document that was refused."""

    position: int
    """Of its message, in the chunk."""
    file: _File
    before: _File | None
    """The file of the same storage that was read last before."""


class _Calls(Protocol):
    async def call(self, function: str, body: bytes, /) -> Packed: ...


class Refusals:
    """The runs of one consumer whose documents are refused."""

    # `here` names this process where a reason asks for new credentials.
    def __init__(self, consumer: str, here: str) -> None:
        self._consumer, self._here = consumer, f"{here}, process {os.getpid()} on {socket.gethostname()}"
        self._waits: dict[bytes, asyncio.Task[None]] = {}
        """The tasks that wait for storages, by the run that they hold up."""
        self.renewed = 0.0
        """When a storage last gave a file that it had refused; an older process of a slot still has the old
        credentials. Seconds of `time.monotonic`."""
        self._again: dict[bytes, Ranges] = {}
        """Ids of messages that were given back because their documents can be read by now, by run."""
        self._in_vain: dict[tuple[bytes, str], float] = {}
        """When one of these was refused again, by run and storage, seconds of `time.monotonic`."""
        self._turn = asyncio.Lock()
        """Held while storages are tried: other slots of a run meet the same refusal and need not try too."""

    async def decide(self, chunk: Chunk, shards: Mapping[int, _Calls]) -> None:
        """Decide the outcomes of a chunk that are undecided now."""
        undecided, again = chunk.refusals(), set[int]()
        if not chunk.early:  # acknowledged messages cannot be given back
            try:
                async with self._turn:
                    again = await self._to_give_back(chunk, _by_storage(chunk, undecided), shards)
            except Exception:  # go on, since an undecided outcome would never be settled
                logger.exception("event=refusal_undecided consumer=%s run=%s", self._consumer, chunk.run.hex())
        for place, (index, _, packed, key) in undecided:
            if index in again:
                chunk.done[place] = index, Outcome.RETURN, b"", None
            else:
                meta, (failure,) = unpack(packed)
                chunk.done[place] = index, Outcome(meta["outcome"]), bytes(failure), key

    async def _to_give_back(
        self, chunk: Chunk, storages: Mapping[str, Sequence[_Refused]], shards: Mapping[int, _Calls]
    ) -> set[int]:
        """Return the positions of refused documents to give back."""
        # Of each storage only the last document is tried, and the file that was read before it.
        if chunk.run in self._waits:
            return {each.position for refused in storages.values() for each in refused}
        again, tried = set[int](), dict(islice(storages.items(), STORAGES))
        reasons = await asyncio.gather(*(_reasons(refused[-1]) for refused in tried.values()))
        for (root, refused), (before, now) in zip(tried.items(), reasons, strict=True):
            indexes, last = {each.position for each in refused}, refused[-1]
            if now and await self._is_closed(chunk, root, last, before, shards):
                again |= indexes
                continue
            if now and last.before is None:  # the wait of other consumers may have just ended
                now = await _refuses(last.file)
            if now == "":
                again |= self._readable_now(chunk, root, indexes)
        return again

    async def _is_closed(
        self, chunk: Chunk, root: str, refused: _Refused, reason: str | None, shards: Mapping[int, _Calls]
    ) -> bool:
        """Return whether the storage refuses what it gave before, and if so hold up the run."""
        if refused.before is None:  # this consumer has read nothing there, but others may have
            return chunk.run in self._waits or (await self._hold(chunk.run, shards, "")).others
        if not reason or chunk.run in self._waits:
            return bool(reason)
        why = (
            f"its documents cannot be read: {root.partition(' ')[2]} refuses files that it returned before "
            f"({reason}). Renew the credentials of {self._here}; the run then continues by itself"
        )
        logger.warning("event=documents_refused consumer=%s run=%s %s", self._consumer, chunk.run.hex(), why)
        if not (await self._hold(chunk.run, shards, why)).wanted:
            return False
        waits = self._wait(chunk.run, shards, why, [refused.before, refused.file])
        self._waits[chunk.run] = asyncio.get_running_loop().create_task(waits, name="dqlab-refused")
        return True

    def _readable_now(self, chunk: Chunk, root: str, indexes: Collection[int]) -> set[int]:
        """Return the positions of documents to give back because they can be read by now."""
        # The credentials were renewed meanwhile, or the process that ran the message still had the old ones. Each
        # message is given back once: if it is refused again, something else refuses it, such as a service that its
        # function calls.
        given = self._again.pop(chunk.run, None) or Ranges()
        self._again[chunk.run] = given
        if len(self._again) > RUNS:
            del self._again[next(iter(self._again))]
        ids = {index: chunk.id_at(index) for index in indexes}
        now = time.monotonic()
        self._in_vain = {each: since for each, since in self._in_vain.items() if now - since < IN_VAIN_S}
        if any(id in given for id in ids.values()):
            self._in_vain[chunk.run, root] = now
        if (chunk.run, root) in self._in_vain or given.intervals >= STRETCHES:
            return set()
        for id in ids.values():
            given.add(id, id + 1)
        # Replace the processes of slots that started before now, unless the one that ran this chunk is already older
        # than `renewed` and is replaced anyway.
        if chunk.process is None or chunk.process_began >= self.renewed:
            self.renewed = now
        return set(ids)

    async def _wait(self, run: bytes, shards: Mapping[int, _Calls], why: str, files: Sequence[_File]) -> None:
        """Hold up a run until one of `files` can be read, or its results are no longer wanted."""
        pause = AGAIN_S[0]
        try:
            while True:
                await asyncio.sleep(pause)
                pause = min(2 * pause, AGAIN_S[1])
                refused = [await _refuses(file) for file in files]
                if not all(refused):
                    self.renewed = time.monotonic()
                    break
                if not (await self._hold(run, shards, why)).wanted:
                    break
        finally:
            del self._waits[run]  # before messages are delivered again, so that a new refusal is decided afresh
        await self._hold(run, shards, "")
        logger.info("event=documents_given consumer=%s run=%s", self._consumer, run.hex())

    async def _hold(self, run: bytes, shards: Mapping[int, _Calls], why: str) -> Answer:
        """Report to a run's shards why its documents cannot be read, "" when they can."""
        calls = [ref.call for ref in shards.values()]
        return await hold(calls, run, self._consumer, Blocked.DOCUMENTS, why)

    def close(self) -> None:
        """Stop waiting for storages."""
        # Shards drop the reports of a consumer that has ended, so nothing is taken back here.
        for waits in list(self._waits.values()):
            waits.cancel()


def _by_storage(chunk: Chunk, undecided: Sequence[tuple[int, Done]]) -> dict[str, list[_Refused]]:
    """Return the documents behind URLs among undecided outcomes, by storage."""
    found: dict[str, list[_Refused]] = {}
    for _, (index, _, packed, _) in undecided:
        document = sealed_document(chunk.messages()[index])
        if document is None or not _is_far(document.where):
            continue
        root = root_of(document.where)
        before = unpack(packed)[0]["read"].get(root)
        file = str(document.where), storage_of(document.where)
        found.setdefault(root, []).append(_Refused(index, file, None if before is None else tuple(before)))
    return found


def _is_far(where: str) -> bool:
    with suppress(DqlabError):  # not a URL
        return local_path(where) is None
    return False


async def _reasons(refused: _Refused) -> tuple[str | None, str | None]:
    """Return why the file read before a document is refused, and why the document is, as `_refuses` does."""
    # In this order: if the credentials are renewed in between, a document tried first would be refused and the file
    # not, as if the document were forbidden by itself.
    before = None if refused.before is None else await _refuses(refused.before)
    return before, await _refuses(refused.file)


async def _refuses(file: _File) -> str | None:
    """Return in words why a file is refused, "" if it is not, and None if that is not known in time."""
    found: concurrent.futures.Future[str | None] = concurrent.futures.Future()
    found.set_running_or_notify_cancel()  # the timeout must not cancel it: the thread's `set_result` would raise

    def look() -> None:
        try:
            found.set_result(refuses(*file))
        except Exception:  # noqa: BLE001 - the function that reads the file meets it too
            found.set_result(None)

    # In its own daemon thread: a server that does not answer would hold up a pool, and the end of the process.
    threading.Thread(target=look, name="dqlab-refused", daemon=True).start()
    try:
        async with asyncio.timeout(TRY_S):
            return await asyncio.wrap_future(found)
    except TimeoutError:
        return None
