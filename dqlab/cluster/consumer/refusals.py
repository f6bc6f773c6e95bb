"""Documents that their storage refuses: whether their credentials have expired, and waiting until it gives them again.

Owns what becomes of messages whose document was refused. One that is forbidden by itself fails as ever. Where the
storage also refuses a file that was read before, the credentials are what it refuses: the messages are given back
uncounted, and their run is held up until one of those files can be read. A consumer that has read nothing there yet
follows those that have. Knows neither how a file is read
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
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from dqlab.cluster.consumer.running.chunk import Chunk
from dqlab.cluster.transport.holding import Answer, Blocked, hold
from dqlab.cluster.transport.wire import Packed, unpack
from dqlab.documents.document import sealed_document
from dqlab.documents.refusals import refuses, root_of
from dqlab.documents.storage import storage_of
from dqlab.frame import Outcome
from dqlab.stats.runs import UNREAD

__all__ = ["Refusals"]

logger = logging.getLogger("dqlab.consumer")

TRY_S = 10.0
"""Seconds that a file may take to be read, or refused; one that takes longer was not refused."""
AGAIN_S = 1.0, 5.0
"""Seconds until a storage is tried again, at first and later; its runs are held up meanwhile, which is reported to
their shards again each time."""

OLDER_S = 600.0
"""Seconds after a change of variables for which a process may still run that was started before."""

_File = tuple[str, str]
"""A URL, and the name of its options."""


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
        """When a storage gave again what it had refused, or this process had other variables than its slots' processes
        were started with; seconds of `time.monotonic`."""
        self._environment = dict(os.environ)
        self._again: set[tuple[bytes, int]] = set()
        """Runs and ids of messages that were given back because their process had an earlier environment."""
        self._turn = asyncio.Lock()
        """One storage is tried at a time: slots of a run meet the same refusal."""

    async def decide(self, chunk: Chunk, shards: Mapping[int, _Calls]) -> None:
        """Decide what becomes of documents of a chunk that may have been refused; it settles them then."""
        undecided = chunk.refusals()
        async with self._turn:
            refused = bool(undecided) and not chunk.early and await self._is_closed(chunk, undecided, shards)
        for place, (index, _, packed, key) in undecided:
            if refused:
                chunk.done[place] = index, Outcome.RETURN, b"", None
            else:
                meta, (failure,) = unpack(packed)
                chunk.done[place] = index, Outcome(meta["outcome"]), bytes(failure), key

    async def _is_closed(self, chunk: Chunk, undecided: Sequence[Any], shards: Mapping[int, _Calls]) -> bool:
        """Return whether the storage refuses a document and what was read before too; hold up the run then."""
        if chunk.run in self._waits:
            return True
        _, (index, _, packed, _) = undecided[-1]
        document = sealed_document(chunk.messages()[index])
        if document is None or "://" not in document.where:
            return False
        root, mine = root_of(document.where), (str(document.where), storage_of(document.where))
        before = unpack(packed)[0]["read"].get(root)
        if not await _refuses(mine):  # in this process
            return self._was_process_older(chunk, [each[0] for _, each in undecided])
        if before is None:  # nothing was read here, perhaps by others
            return (await self._hold(chunk.run, shards, "")).others
        reason = await _refuses((before[0], before[1]))
        if not reason:
            return False
        why = (
            f"{UNREAD}: {root.partition(' ')[2]} refuses what it gave before ({reason}). Renew the credentials of "
            f"{self._here}; it goes on by itself"
        )
        logger.warning("event=documents_refused consumer=%s run=%s %s", self._consumer, chunk.run.hex(), why)
        if not (await self._hold(chunk.run, shards, why)).wanted:
            return False
        waits = self._wait(chunk.run, shards, why, [(before[0], before[1]), mine])
        self._waits[chunk.run] = asyncio.get_running_loop().create_task(waits, name="dqlab-refused")
        return True

    def _was_process_older(self, chunk: Chunk, indexes: Sequence[int]) -> bool:
        """Return whether messages may have been refused because a slot's process has variables of before.

        Each message is given back for that once at most; the next process has the variables of this one.
        """
        if not chunk.process:
            return False
        now, environment = time.monotonic(), dict(os.environ)
        if environment != self._environment:
            self._environment, self.renewed = environment, now
        elif now - self.renewed > OLDER_S:
            return False
        new = {(chunk.run, chunk.id_at(index)) for index in indexes} - self._again
        self._again |= new
        return bool(new)

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


async def _refuses(file: _File) -> str:
    """Return in words why a file is refused; "" where it is not, or that is not known in time."""
    found: concurrent.futures.Future[str] = concurrent.futures.Future()
    found.set_running_or_notify_cancel()  # a cancelled one would not take the result of its thread

    def look() -> None:
        found.set_result(refuses(*file))

    # In a thread of its own: a server that does not answer would hold up a pool, and a process that ends.
    threading.Thread(target=look, name="dqlab-refused", daemon=True).start()
    try:
        async with asyncio.timeout(TRY_S):
            return await asyncio.wrap_future(found)
    except TimeoutError:
        return ""
