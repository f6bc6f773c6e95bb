"""What people order of a shard: lanes opened and dropped, pauses, cancels, retries."""

from __future__ import annotations

from collections.abc import Iterable
from types import EllipsisType

from dqlab.errors import BadOption
from dqlab.frame import NO_ID
from dqlab.rules.holdings import Holdings
from dqlab.rules.ids import END
from dqlab.rules.lane import Lane
from dqlab.rules.options import QueueOptions
from dqlab.rules.ranges import Ranges
from dqlab.rules.retry import Retry
from dqlab.rules.states import State
from dqlab.rules.sweeps import cancel, lose, purge, retry, revoke

__all__ = ["Orders"]

_EVERYTHING = ((0, END),)


class Orders(Holdings):
    """Orders about a run's lane, or about the whole queue."""

    def open_lane(
        self,
        run: bytes,
        *,
        retry: Retry | None = None,
        max_deliveries: int | None = None,
        visibility_timeout: float | None = None,
        maxsize: int | EllipsisType | None = ...,
        max_bytes: int | EllipsisType | None = ...,
    ) -> Lane:
        """Return the lane of a run, made with these options if there is none yet.

        Parameters
        ----------
        retry, max_deliveries, visibility_timeout : optional
            None = as the queue has it.
        maxsize, max_bytes : int or None, optional
            None = no limit; left out = as the queue has it.

        Raises
        ------
        BadOption
            As `QueueOptions`.
        """
        if run not in self.lanes:
            given = self.options
            options = QueueOptions(
                visibility_timeout=given.visibility_timeout if visibility_timeout is None else visibility_timeout,
                max_deliveries=given.max_deliveries if max_deliveries is None else max_deliveries,
                retry=given.retry if retry is None else retry,
                maxsize=given.maxsize if isinstance(maxsize, EllipsisType) else maxsize,
                max_bytes=given.max_bytes if isinstance(max_bytes, EllipsisType) else max_bytes,
            )
            self.lanes[run] = Lane(run, options, self.journal, self.activity)
        return self.lanes[run]

    def seal_lane(self, run: bytes, total: int) -> None:
        """Refuse further puts: `total` messages of the run were put here. Those that are not here are lost."""
        lane = self.lane(run)
        lane.total = total
        lane.counts[State.LOST] = max(0, total - (sum(lane.counts) - lane.counts[State.LOST]))
        self.activity.touch(run)

    def reopen_lane(self, run: bytes) -> None:
        """Take puts again: the run's input, which was cut off, goes on."""
        self.lane(run).total = None
        self.activity.touch(run)

    def drop_lane(self, run: bytes) -> None:
        """Cancel what is left of a run, free its frames and forget it; lane 0 starts anew.

        An unknown run changes nothing. The producers of lane 0 live on, so their numbers are kept.
        """
        self.tick()
        lane = self.lanes.pop(run, None)
        if lane is None:
            return
        for lease in self.leases.of_run(run):
            revoke(lease, Ranges(_EVERYTHING), self.leases, self.effects)
        for batch in lane.batches:
            self.journal.freed(batch)
        self.fairness.forget(run)
        self.activity.forget(run)
        if run == NO_ID:
            self.lanes[NO_ID] = Lane(NO_ID, self.options, self.journal, self.activity)
        else:
            self.producers.forget(run)
        self.end_drain()

    def cancel(self, run: bytes, ids: Iterable[tuple[int, int]] | None = None) -> int:
        """Cancel what is ready, delayed or leased in a run, or among half-open ranges of its ids; return how many."""
        self.tick()
        cancelled = cancel(self.lane(run), _EVERYTHING if ids is None else ids, self.leases, self.effects)
        self.end_drain()
        return cancelled

    def lose(self, run: bytes, ids: Iterable[tuple[int, int]]) -> int:
        """Count as lost what is not yet settled among ranges of ids: its bytes cannot be read; return how many."""
        self.tick()
        lost = lose(self.lane(run), ids, self.leases, self.effects)
        self.end_drain()
        return lost

    def purge(self, run: bytes | None, state: State) -> int:
        """Cancel all messages of a run (None = of all) that are READY, DELAYED or DEAD; return how many.

        Raises
        ------
        BadOption
            Another state.
        """
        if state not in (State.READY, State.DELAYED, State.DEAD):
            raise BadOption(option="state", value=state.name.lower(), problem="one of ready, delayed, dead.")
        self.tick()
        lanes = list(self.lanes.values()) if run is None else [self.lane(run)]
        purged = sum(purge(lane, _EVERYTHING, state) for lane in lanes)
        self.end_drain()
        return purged

    def retry(self, run: bytes, ids: Iterable[tuple[int, int]], function: bytes | None = None) -> int:
        """Deliver dead messages again, in their old places and with new counts; return how many.

        Parameters
        ----------
        function : bytes, 16, optional
            What these messages run from now on, in place of their frames' function.
        """
        self.tick()
        return retry(self.lane(run), ids, function)

    def adopt(self, run: bytes, function: bytes) -> int:
        """Have every later delivery of a run's messages run this function; return how many are ready or delayed.

        A message that runs now ends as it began; should it come back, it runs the new function too.
        """
        self.tick()
        lane = self.lane(run)
        lane.overrides.assign(*_EVERYTHING[0], function)
        self.activity.touch(run)
        return lane.counts[State.READY] + lane.counts[State.DELAYED]

    def pause(self, run: bytes | None) -> None:
        """Lease nothing more of a run, or of the whole queue with None; puts are still taken."""
        self.tick()
        if run is None:
            self.paused = True
        else:
            self.lane(run).paused = True
            self.activity.touch(run)

    def resume(self, run: bytes | None) -> None:
        """End a pause; with None that of the whole queue, and its draining. Runs paused by name stay paused."""
        self.tick()
        if run is None:
            self.paused = self.draining = False
        else:
            self.lane(run).paused = False
            self.activity.touch(run)

    def drain(self) -> None:
        """Refuse puts, and pause when nothing is ready, delayed or leased any more."""
        self.draining = True
        self.tick()
