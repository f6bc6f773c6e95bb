"""Decides the outcomes of documents that their storage has refused, and pauses a run whose storage refuses everything.

A document that is forbidden by itself fails as usual. Where the storage also refuses the file that the same process
read last, credentials have expired: the messages are given back, uncounted, and the run pauses itself until a user
resumes it. This module knows neither how a file is read (`documents.refusals`) nor how an outcome is settled (`slot`).
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
from contextlib import suppress
from typing import NamedTuple, Protocol

from dqlab.cluster.consumer.running.chunk import Chunk, Done
from dqlab.cluster.transport.calls import ControlCall, WatchCall
from dqlab.cluster.transport.wire import Packed, unpack
from dqlab.documents.document import sealed_document
from dqlab.documents.refusals import reconnect, refuses, root_of
from dqlab.documents.storage import local_path, located
from dqlab.errors import DqlabError
from dqlab.frame import NO_ID, Outcome
from dqlab.rules.journal import Op
from dqlab.stats.runs import UNREAD

__all__ = ["Refusals"]

logger = logging.getLogger("dqlab.consumer")

TRY_S = 10.0
"""Seconds that a storage may take to give or refuse a file; a slower one counts as not refused."""

_File = tuple[str, str]
"""A URL, and the name of its options."""


class _Refused(NamedTuple):
    """A document that was refused."""

    position: int
    """Of its message, in the chunk."""
    before: _File | None
    """The file of the same storage that its process read last before."""


class _Calls(Protocol):
    async def call(self, function: str, body: bytes, /) -> Packed: ...


class Refusals:
    """The runs of one consumer whose documents are refused."""

    # `here` names this process where a reason asks for new credentials.
    def __init__(self, consumer: str, here: str) -> None:
        self._consumer, self._here = consumer, f"{here}, process {os.getpid()} on {socket.gethostname()}"
        self.renewed = 0.0
        """When credentials may have been renewed; an older process of a slot still has the old ones. Seconds of
        `time.monotonic`."""
        self._paused: dict[bytes, set[_File]] = {}
        """Files that were refused, by the run that was paused for it."""
        self._turn = asyncio.Lock()
        """Held while storages are tried: other slots of a run meet the same refusal and need not try too."""

    def begin(self, run: bytes) -> None:
        """Let what runs next of a run open its files with new credentials, if the run was paused for them."""
        if (files := self._paused.pop(run, None)) is not None:
            self.renewed = time.monotonic()
            for url, storage in files:
                reconnect(located(url, storage))

    async def decide(self, chunk: Chunk, shards: Mapping[int, _Calls]) -> None:
        """Decide the outcomes of a chunk that are undecided now."""
        undecided, again, far = chunk.refusals(), set[int](), set[int]()
        if not chunk.early and chunk.run != NO_ID:  # acknowledged messages cannot be given back
            try:
                async with self._turn:
                    storages = _by_storage(chunk, undecided)
                    far = {each.position for refused in storages.values() for each in refused}
                    again = await self._to_give_back(chunk, storages, shards)
            except Exception:  # go on, since an undecided outcome would never be settled
                logger.exception("event=refusal_undecided consumer=%s run=%s", self._consumer, chunk.run.hex())
        for place, (index, _, packed, key) in undecided:
            if index in again:
                chunk.done.replace(place, [(index, Outcome.RETURN, b"", None)])
            else:
                meta, (failure,) = unpack(packed)
                # Retried as often as the run says, though many servers call a refused file missing: another consumer
                # may be about to find that credentials have expired.
                outcome = Outcome.FAIL if index in far else Outcome(meta["outcome"])
                chunk.done.replace(place, [(index, outcome, bytes(failure), key)])

    async def _to_give_back(
        self, chunk: Chunk, storages: Mapping[str, Sequence[_Refused]], shards: Mapping[int, _Calls]
    ) -> set[int]:
        """Return the positions of refused documents to give back, whose run is paused."""
        again = set[int]()
        if not storages:
            return again
        progress, _ = await WatchCall(chunk.run).ask(shards[min(shards)].call)  # the first shard has the run's record
        paused = progress.lane.halted.startswith(UNREAD)  # by another consumer, which may have read something there
        for root, refused in storages.items():
            before = refused[-1].before
            if before is None:
                closed = paused
            elif reason := await _refuses(before):
                closed = True
                self._paused.setdefault(chunk.run, set()).add(before)
                if not paused:
                    await self._pause(chunk.run, root, reason, shards)
                    paused = True
            else:
                closed = False
                if reason == "" and chunk.lease.process is not None:
                    self.renewed = time.monotonic()  # its process may have the credentials of before
            if closed:
                again |= {each.position for each in refused}
        return again

    async def _pause(self, run: bytes, root: str, reason: str, shards: Mapping[int, _Calls]) -> None:
        """Pause a run in all its shards, with the reason."""
        why = (
            f"{UNREAD}: {root.partition(' ')[2]} refuses files that it returned before ({reason}). Renew the "
            f"credentials of {self._here}"
        )
        logger.warning("event=documents_refused consumer=%s run=%s %s", self._consumer, run.hex(), why)
        order = {"op": Op.HALT, "run": run, "halted": why}
        await asyncio.gather(*(ControlCall(order).ask(shard.call) for shard in shards.values()))


def _by_storage(chunk: Chunk, undecided: Sequence[tuple[int, Done]]) -> dict[str, list[_Refused]]:
    """Return the documents behind URLs among undecided outcomes, by storage."""
    found: dict[str, list[_Refused]] = {}
    for _, (index, _, packed, _) in undecided:
        document = sealed_document(chunk.messages()[index])
        if document is None or not _is_far(document.where):
            continue
        root = root_of(document.where)
        before = unpack(packed)[0]["read"].get(root)
        found.setdefault(root, []).append(_Refused(index, None if before is None else tuple(before)))
    return found


def _is_far(where: str) -> bool:
    with suppress(DqlabError):  # not a URL
        return local_path(where) is None
    return False


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
