"""Documents that their storage refuses: finds out whether their credentials have expired, and waits for new ones.

Owns what becomes of messages whose document was refused. A document that is forbidden by itself fails as ever. One that
can be read by now is given back, uncounted. Where the storage also refuses a file that it gave before, the credentials
have expired: the consumer gives the messages back uncounted, and holds the run up until it can read one of these files
again. A consumer that has not read anything there yet follows the others. Knows neither how a file is read
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
from dqlab.cluster.transport.blocking import Answer, Blocked, hold
from dqlab.cluster.transport.wire import Packed, unpack
from dqlab.documents.document import sealed_document
from dqlab.documents.refusals import refuses, root_of
from dqlab.documents.storage import local_path, storage_of
from dqlab.errors import DqlabError
from dqlab.frame import Outcome
from dqlab.rules.ranges import Ranges
from dqlab.stats.runs import UNREAD

__all__ = ["Refusals"]

logger = logging.getLogger("dqlab.consumer")

TRY_S = 10.0
"""Seconds that a file may take to be read, or refused; one that takes longer was not refused."""
AGAIN_S = 1.0, 5.0
"""Seconds until a storage is tried again, at first and later; its runs are held up meanwhile, which is reported to
their shards again each time."""

IN_VAIN_S = 600.0
"""Seconds for which no document of a run and a storage is given back because it can be read, once one was in vain."""
STORAGES = 16
"""Storages that are tried for one chunk at a time; documents of others fail as ever."""
RUNS, STRETCHES = 32, 1000
"""Most runs for which the messages that were given back are remembered, and most stretches of their ids in one run; a
run with more gives nothing back for that reason."""

_File = tuple[str, str]
"""A URL, and the name of its options."""


class _Refused(NamedTuple):
    """A document that was refused: its message's position, and the file of its storage that was read last before."""

    position: int
    file: _File
    before: _File | None


class _Calls(Protocol):
    async def call(self, function: str, body: bytes, /) -> Packed: ...


class Refusals:
    """The runs of one consumer whose documents are refused.

    Parameters
    ----------
    consumer : str
        Its name.
    here : str
        This process, for reasons.
    """

    def __init__(self, consumer: str, here: str) -> None:
        self._consumer, self._here = consumer, f"{here}, process {os.getpid()} on {socket.gethostname()}"
        self._waits: dict[bytes, asyncio.Task[None]] = {}
        """By run that is held up, what waits for its storage."""
        self.renewed = 0.0
        """When a storage gave again what it had refused; a slot's process that is older has the credentials of before.
        Seconds of `time.monotonic`."""
        self._again: dict[bytes, Ranges] = {}
        """By run, the ids of messages that were given back because their documents can be read by now."""
        self._in_vain: dict[tuple[bytes, str], float] = {}
        """By run and storage, when one of these came again, refused as before, seconds of `time.monotonic`."""
        self._turn = asyncio.Lock()
        """One storage is tried at a time: slots of a run meet the same refusal."""

    async def decide(self, chunk: Chunk, shards: Mapping[int, _Calls]) -> None:
        """Decide what becomes of the outcomes of a chunk that are undecided by now."""
        undecided, again = chunk.refusals(), set[int]()
        if not chunk.early:
            try:
                async with self._turn:
                    again = await self._to_come_again(chunk, _by_storage(chunk, undecided), shards)
            except Exception:  # whatever it was, an outcome that stays undecided is settled never
                logger.exception("event=refusal_undecided consumer=%s run=%s", self._consumer, chunk.run.hex())
        for place, (index, _, packed, key) in undecided:
            if index in again:
                chunk.done[place] = index, Outcome.RETURN, b"", None
            else:
                meta, (failure,) = unpack(packed)
                chunk.done[place] = index, Outcome(meta["outcome"]), bytes(failure), key

    async def _to_come_again(
        self, chunk: Chunk, storages: Mapping[str, Sequence[_Refused]], shards: Mapping[int, _Calls]
    ) -> set[int]:
        """Return the positions of refused documents that are given back.

        Of each storage the last one is tried, and what was read before it.
        """
        if chunk.run in self._waits:
            return {each.position for refused in storages.values() for each in refused}
        again, tried = set[int](), dict(islice(storages.items(), STORAGES))
        reasons = await asyncio.gather(*(_reasons(refused[-1]) for refused in tried.values()))
        for (root, refused), (before, now) in zip(tried.items(), reasons, strict=True):
            indexes, last = {each.position for each in refused}, refused[-1]
            if now and await self._is_closed(chunk, root, last, before, shards):
                again |= indexes
                continue
            if now and last.before is None:  # others may have waited until just now
                now = await _refuses(last.file)
            if now == "":
                again |= self._once_more(chunk, root, indexes)
        return again

    async def _is_closed(
        self, chunk: Chunk, root: str, refused: _Refused, reason: str | None, shards: Mapping[int, _Calls]
    ) -> bool:
        """Return whether a storage that refuses a document refuses what it gave before too; hold up the run then."""
        if refused.before is None:  # nothing was read here, perhaps by others
            return chunk.run in self._waits or (await self._hold(chunk.run, shards, "")).others
        if not reason or chunk.run in self._waits:
            return bool(reason)
        why = (
            f"{UNREAD}: {root.partition(' ')[2]} refuses what it gave before ({reason}). Renew the credentials of "
            f"{self._here}; it goes on by itself"
        )
        logger.warning("event=documents_refused consumer=%s run=%s %s", self._consumer, chunk.run.hex(), why)
        if not (await self._hold(chunk.run, shards, why)).wanted:
            return False
        waits = self._wait(chunk.run, shards, why, [refused.before, refused.file])
        self._waits[chunk.run] = asyncio.get_running_loop().create_task(waits, name="dqlab-refused")
        return True

    def _once_more(self, chunk: Chunk, root: str, indexes: Collection[int]) -> set[int]:
        """Return the positions of documents that were refused, can be read by now, and are given back for that.

        Their credentials were renewed meanwhile, or what ran them still had those of before. Each message is given back
        once: one that comes again was not refused by this storage, as when its function asks a service.
        """
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
        if chunk.process is None or chunk.process_began >= self.renewed:  # else it is replaced in any case
            self.renewed = now
        return set(ids)

    async def _wait(self, run: bytes, shards: Mapping[int, _Calls], why: str, files: Sequence[_File]) -> None:
        """Hold up a run until one of some files can be read, or its results are no longer wanted."""
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
            del self._waits[run]  # before messages come again: what is refused then is decided for itself
        await self._hold(run, shards, "")
        logger.info("event=documents_given consumer=%s run=%s", self._consumer, run.hex())

    async def _hold(self, run: bytes, shards: Mapping[int, _Calls], why: str) -> Answer:
        """Report to a run's shards why its documents cannot be read, "" when they can."""
        calls = [ref.call for ref in shards.values()]
        return await hold(calls, run, self._consumer, Blocked.DOCUMENTS, why)

    def close(self) -> None:
        """Wait for nothing more; the reports of a consumer end with it."""
        for waits in list(self._waits.values()):
            waits.cancel()


def _by_storage(chunk: Chunk, undecided: Sequence[tuple[int, Done]]) -> dict[str, list[_Refused]]:
    """Return the documents behind URLs among outcomes that are undecided, by `root_of` them."""
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
    with suppress(DqlabError):  # one that is no URL
        return local_path(where) is None
    return False


async def _reasons(refused: _Refused) -> tuple[str | None, str | None]:
    """Return why what was read before a document is refused, and why the document is; see `_refuses`.

    In this order: were the credentials renewed in between, a document that is refused first would seem to be forbidden
    by itself.
    """
    before = None if refused.before is None else await _refuses(refused.before)
    return before, await _refuses(refused.file)


async def _refuses(file: _File) -> str | None:
    """Return in words why a file is refused; "" where it is not, None where that is not known in time."""
    found: concurrent.futures.Future[str | None] = concurrent.futures.Future()
    found.set_running_or_notify_cancel()  # a cancelled one would not take the result of its thread

    def look() -> None:
        try:
            found.set_result(refuses(*file))
        except Exception:  # noqa: BLE001 - whatever it is, it is met where the file is read
            found.set_result(None)

    # In a thread of its own: a server that does not answer would hold up a pool, and a process that ends.
    threading.Thread(target=look, name="dqlab-refused", daemon=True).start()
    try:
        async with asyncio.timeout(TRY_S):
            return await asyncio.wrap_future(found)
    except TimeoutError:
        return None
