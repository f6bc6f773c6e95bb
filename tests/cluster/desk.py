"""A queue actor over a log, without a worker around it, and calls to it."""

from __future__ import annotations

import shutil
import tempfile
import weakref
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from dqlab.cluster.shard.actor import QueueActor
from dqlab.cluster.transport.wire import pack, unpack
from dqlab.frame import NO_ID, Frame, Kind, Outcome, Piece, Settlement
from dqlab.log.files import UnsyncedFiles
from dqlab.log.log import Log
from dqlab.log.writer import LogOptions
from dqlab.rules.retry import QueueOptions, Retry

__all__ = ["DeskActor", "SilentReporter", "finish", "frame", "lease", "opened", "put"]


class SilentReporter:
    """No client listens to this queue."""

    def touch(self) -> None:
        pass

    def close(self) -> None:
        pass


class DeskActor(QueueActor):
    """A queue actor without a worker around it, with its log in a directory of its own unless it has a store."""

    def __init__(self, name: str, index: int, epoch: int, options: dict[str, Any], *more: Any, **others: Any) -> None:
        directory = tempfile.mkdtemp()
        weakref.finalize(self, shutil.rmtree, directory, ignore_errors=True)
        if epoch > 1:  # an earlier epoch has left its log
            log = Log.open(Path(directory) / f"{index:03}", options=LogOptions(reserve_bytes=0), files=UnsyncedFiles())
            list(log.replay())
            log.close()
        place = {} if "store" in options else {"scratch": directory}
        super().__init__(name, index, epoch, options | place, *more, **others)

    async def start(self, body: bytes) -> bytes:
        await self._open()
        self._reporter: Any = SilentReporter()
        self._begun = True
        return pack({})


async def opened(
    directory: Path | None = None,
    *,
    run: bytes = NO_ID,
    record: dict[str, Any] | None = None,
    consumers: Sequence[str] = (),
    **more: Any,
) -> DeskActor:
    """Return an actor; over a log when a directory is given, with a run when its record is.

    `consumers` are those that may come back with what they had of an earlier one.
    """
    chosen = QueueOptions()
    options = {
        **{name: getattr(chosen, name) for name in ("visibility_timeout", "max_deliveries", "maxsize", "max_bytes")},
        "retry": {"retries": Retry().retries},
        "results_maxsize": 1 << 30,
        **more,
    }
    if directory is not None:
        options["store"] = {"directory": str(directory), "reserve_bytes": 0}
    actor = DeskActor("q", 0, 1, options, consumers=consumers)
    await actor.start(pack({}))
    if record is not None:
        await actor.control(pack({"op": "open", "open": {"run": run, "record": record}}))
    return actor


def frame(n: int, *, run: bytes = NO_ID, sequence: int = 0, payload: bytes = b"x") -> bytes:
    """Return a frame of `n` messages."""
    return Frame.encode(
        [payload] * n, kind=Kind.VALUE, run=run, producer=b"p" * 16, sequence=sequence, ordinal=1000 * sequence
    )


async def put(actor: QueueActor, n: int, *, run: bytes = NO_ID, sequence: int = 0) -> dict[str, Any]:
    """Put a frame; return the answer."""
    answer, _ = unpack(await actor.put(pack({"frames": 1, "wait": 0.0}, frame(n, run=run, sequence=sequence))))
    return answer


async def lease(actor: QueueActor, consumer: str, want: int = 100) -> dict[str, Any]:
    """Lease messages; return the lease, with the `epoch`, the `run` and the number `n` of its messages."""
    answer, parts = unpack(await actor.lease(pack({"consumer": consumer, "session": "s", "credit": [1, want, 1]})))
    frames = [Frame.decode(bytes(part)) for part in parts]
    pieces = [
        Piece(first, each.ordinal, each.count) for first, each in zip(answer["lease"]["firsts"], frames, strict=True)
    ]
    return {**answer["lease"], "epoch": answer["epoch"], "run": frames[0].run, "pieces": pieces}


async def finish(
    actor: QueueActor, held: dict[str, Any], results: Sequence[bytes], outcome: Outcome = Outcome.ACK
) -> dict[str, Any]:
    """Settle all of a lease; return the answer."""
    blob = Settlement.encode(
        held["pieces"], bytes([outcome]) * len(results), list(results),
        run=held["run"], epoch=held["epoch"], lease=held["id"],
    )  # fmt: skip
    answer, _ = unpack(await actor.settle(pack({"consumer": "c"}, blob)))
    return answer
