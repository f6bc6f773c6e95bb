"""What is known of one run: its counts, its speed, when it will be done, why documents failed."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import overload

from dqlab.keywords import SuggestsAttributes
from dqlab.stats.counts import Counts, RunState, StopReason

__all__ = [
    "NO_ROOM",
    "UNANSWERED",
    "UNREAD",
    "UNWRITTEN",
    "ClassStats",
    "CodeStats",
    "Eta",
    "RunFacts",
    "RunList",
    "RunStats",
]

NO_ROOM = "no room for more results"
"""How the reason of a run begins that paused itself because its queue can keep no more results."""

SHORTEST = 0.5
"""Seconds of a run from which its speed is one: before, it is that of its beginning."""

UNANSWERED = "no consumer answers"
"""How the reason of a run begins whose queue has consumers, on workers that have been silent for too long."""

UNWRITTEN = "its rows cannot be written"
"""How the reason of a run begins that is held up because its sink refuses rows."""

UNREAD = "its documents cannot be read"
"""How the reason of a run begins that is held up because a storage refuses what it gave before."""


@dataclass(frozen=True, slots=True)
class CodeStats:
    """The function a run uses now. `version` counts from 1 within the run; `short` starts its hash.

    `rest` are the earlier versions that documents which have yet to run keep, after a retry with other code. `did` are
    the documents that each version has acked, the first one first; empty where there is but one.
    """

    name: str
    short: str = ""
    version: int = 1
    cell: int | None = None
    rest: tuple[int, ...] = ()
    did: tuple[int, ...] = ()

    @property
    def words(self) -> str:
        """The version, and those of the rest: "v2, the rest v1"."""
        rest = " and ".join(f"v{each}" for each in self.rest)
        return f"v{self.version}, the rest {rest}" if rest else f"v{self.version}"


@dataclass(frozen=True, slots=True)
class Eta:
    """When a run will end, seconds since 1970 UTC: in one case of ten before `p10`, in nine before `p90`."""

    p10: float
    p50: float
    p90: float


@dataclass(frozen=True, slots=True)
class ClassStats:
    """Failures with the same fingerprint. `first` and `last` are seconds since 1970 UTC."""

    fingerprint: str
    error: str
    message: str
    at: str
    dead: int
    retrying: int
    first: float
    last: float
    key: str | None = None
    """One of the documents that failed so."""
    failed: int = 0
    """Deliveries that ended so, since the run began."""
    versions: tuple[str, ...] = ()
    """Which code failed so: "parse v1". Empty where the function never answered."""


@dataclass(frozen=True, slots=True)
class RunStats(SuggestsAttributes):
    """One run. `units` is None where nothing is known of its documents' lengths; `total` is None while submitting.

    `weighed_in` is what `units` count: "pages", or "bytes" where pages are unknown and all sizes are known.

    `idle` is the time between an end and the retry that followed it: nothing was asked of the run then. `stop` is the
    reason of a run that is STOPPED, and `why` gives it in words. `mean_seconds` is the mean of the seconds that
    its documents took in the function. A Snapshot has `classes` in the run that was asked for
    alone, `classes_total` in all. `owner` is the user who made it, with the notebook it was made in, where these are
    known. `rate` and `units_rate` are of the last minute in which there was work. A run is `stuck` when nothing of it
    waits, and a consumer has held one of its documents for so long that it needs the user. It was `paused` for so many
    seconds of `elapsed`, as far as its cluster has seen it: the log does not keep when that was.
    """

    name: str
    queue: str
    state: RunState
    counts: Counts
    units: Counts | None = None
    why: str = ""
    code: CodeStats = field(default_factory=lambda: CodeStats(name="?"))
    total: int | None = None
    retrying: int = 0
    started: float = 0.0
    ended: float | None = None
    idle: float = 0.0
    at: float = 0.0
    rate: float | None = None
    units_rate: float | None = None
    consumers: int = 0
    classes: tuple[ClassStats, ...] = ()
    classes_total: int = 0
    eta: Eta | None = None
    stop: StopReason | None = None
    mean_seconds: float | None = None
    owner: str = ""
    stuck: bool = False
    paused: float = 0.0
    weighed_in: str = "pages"

    @property
    def unit(self) -> str:
        """Word for what progress counts: "pages" when they are known, else "bytes", else "documents"."""
        return self.weighed_in if self.units is not None else "documents"

    @property
    def progress(self) -> Counts:
        """The counts that progress is measured in."""
        return self.units if self.units is not None else self.counts

    @property
    def share(self) -> float | None:
        """Settled share, 0 to 1; None before the total is known; 1 only at the true end.

        What was cancelled never counts, so that a cancelled run has the share that it had got to.
        """
        if self.total is None:
            return None
        if self.counts.left == 0 and not self.counts.cancelled:
            return 1.0
        progress = self.progress
        return min((progress.settled - progress.cancelled) / progress.all, 0.999999) if progress.all else 0.0

    @property
    def all_ran(self) -> bool:
        """Whether every document that is known of has run to its end."""
        return self.counts.settled - self.counts.cancelled >= max(self.total or 0, self.counts.all)

    @property
    def dead_share(self) -> float:
        """Dead documents as a share of those that ran, 0 to 1: cancelling the others does not change it."""
        ran = self.counts.settled - self.counts.cancelled
        return self.counts.dead / ran if ran else 0.0

    @property
    def elapsed(self) -> float:
        """Seconds from the start to the end, or to this snapshot, without those between an end and a retry."""
        return max(0.0, (self.ended if self.ended is not None else self.at) - self.started - self.idle)

    @property
    def since_start(self) -> float:
        """Seconds from the start to this snapshot, pauses included."""
        return max(0.0, self.at - self.started)

    @property
    def mean_rate(self) -> float | None:
        """Documents acked or dead per second over the whole run; None without any, and of a moment."""
        return self.counts.worked / self.elapsed if self.counts.worked and self.elapsed >= SHORTEST else None

    @property
    def mean_units_rate(self) -> float | None:
        """What `units` count, per second over the whole run, of acked and dead documents; None without any."""
        if self.units is None or not self.units.worked or self.elapsed < SHORTEST:
            return None
        return self.units.worked / self.elapsed

    @property
    def classes_more(self) -> int:
        """Failure classes that exist beyond those in `classes`."""
        return max(0, self.classes_total - len(self.classes))

    @property
    def dead_more(self) -> int:
        """Dead documents of the classes beyond those in `classes`."""
        return max(0, self.counts.dead - sum(entry.dead for entry in self.classes))

    @property
    def empty(self) -> bool:
        """The input had no documents; a run that failed before its first document is not empty."""
        return self.total == 0 and self.state is not RunState.INCOMPLETE

    @property
    def finished(self) -> bool:
        """Nothing more will happen by itself."""
        return self.state in (RunState.DONE, RunState.CANCELLED)

    @property
    def resting(self) -> bool:
        """Finished, or the input ended early and all that was submitted is settled."""
        return self.finished or (self.state is RunState.INCOMPLETE and self.counts.left == 0)

    @property
    def unanswered(self) -> bool:
        """Kept from going on because the workers of all its consumers are silent."""
        return self.why.startswith(UNANSWERED) and self.state is RunState.WAITING

    @property
    def unwritten(self) -> bool:
        """Kept from going on by its sink."""
        return self.why.startswith(UNWRITTEN) and self.state is RunState.WAITING

    @property
    def unread(self) -> bool:
        """Kept from going on by the storage of its documents."""
        return self.why.startswith(UNREAD) and self.state is RunState.WAITING

    @property
    def held(self) -> bool:
        """Kept from going on: paused, by a user or by itself, or without a consumer."""
        return self.state in (RunState.PAUSED, RunState.STOPPED, RunState.WAITING)

    @property
    def put_off(self) -> int:
        """Documents that wait because their function put them off with `dq.Later`; at least so many.

        Those to be retried after a failure are delayed too. They are subtracted, including those that are ready by now.
        """
        return max(0, self.counts.delayed - self.retrying)

    @property
    def only_put_off(self) -> bool:
        """It goes on, and none but documents that were put off wait."""
        return self.state is RunState.RUNNING and self.put_off > 0 and not self.counts.ready

    @property
    def fails_throughout(self) -> bool:
        """It paused itself because its first documents all failed; the other reason to do so is no room for results."""
        return self.stop is StopReason.ALL_FAILED

    @property
    def all_failed(self) -> bool:
        """Everything that it settled failed, and it has paused itself for that, or rests: its code has to change."""
        return self.fails_throughout or (self.resting and self.counts.dead > 0 and not self.counts.acked)

    @property
    def eta_in(self) -> float | None:
        """Seconds until it will probably be done."""
        return None if self.eta is None else max(0.0, self.eta.p50 - self.at)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFacts:
    """What is known of one run from the shards of its queue, joined: the one way to its `RunStats`.

    Attributes
    ----------
    state : RunState
        What it is doing; see `run_state`.
    sealed : bool
        The input has ended, and `total` is known.
    incomplete : str or None
        Why the input ended early.
    noted : str
        What was noted when it was paused; "" once it continues.
    paused_by : str
        Who paused its queue last.
    halted : str
        Why it paused itself because its first documents all failed.
    full : bool
        It paused itself because its queue can keep no more results.
    trouble : str
        Why results cannot be written to disk.
    blocked : str
        Why the queue's store can confirm nothing.
    unanswered : str
        Since when its queue's consumers are silent, all of them.
    """

    name: str
    queue: str
    state: RunState
    counts: Counts
    units: Counts | None
    retrying: int
    sealed: bool
    total: int | None
    incomplete: str | None
    noted: str
    paused_by: str
    halted: str
    full: bool
    trouble: str
    blocked: str
    code: CodeStats
    started: float
    ended: float | None
    idle: float
    owner: str = ""
    unanswered: str = ""
    weighed_in: str = "pages"

    @property
    def stop(self) -> StopReason | None:
        """Why it paused itself; None when it did not."""
        if self.state is not RunState.STOPPED:
            return None
        if self.halted:
            return StopReason.ALL_FAILED
        return StopReason.DISK_FULL if self.trouble else StopReason.RESULTS_FULL

    @property
    def why(self) -> str:
        """What blocks it, paused it, or ended it early; "" when there is nothing to report."""
        if self.halted:
            return self.halted
        if self.full:
            return f"{NO_ROOM}: {self.trouble}" if self.trouble else NO_ROOM
        if self.blocked and (self.counts.left or not self.sealed):
            return self.blocked
        if self.state is RunState.WAITING:
            return self.unanswered or f"no consumer serves queue {self.queue}"
        return self.incomplete or self.noted or (self.paused_by if self.state is RunState.PAUSED else "")

    def stats(
        self,
        *,
        at: float,
        consumers: int,
        rate: float | None = None,
        units_rate: float | None = None,
        classes: Sequence[ClassStats] = (),
        classes_total: int = 0,
        eta: Eta | None = None,
        mean_seconds: float | None = None,
        stuck: bool = False,
        paused: float = 0.0,
    ) -> RunStats:
        """Return its statistics, with what takes several reports to know; `at` is seconds since 1970 UTC.

        A run that rests, or is kept from going on, has no current speed: over the last minute it would still show the
        one it had before.
        """
        stats = RunStats(
            name=self.name,
            queue=self.queue,
            state=self.state,
            counts=self.counts,
            units=self.units,
            why=self.why,
            code=self.code,
            total=self.total if self.sealed else None,
            retrying=self.retrying,
            started=self.started,
            ended=self.ended,
            idle=self.idle,
            at=at,
            rate=rate,
            units_rate=units_rate,
            consumers=consumers,
            classes=tuple(classes),
            classes_total=classes_total,
            eta=eta,
            stop=self.stop,
            mean_seconds=mean_seconds,
            owner=self.owner,
            paused=paused,
            stuck=stuck and self.state is RunState.RUNNING and not self.counts.waiting,
            weighed_in=self.weighed_in,
        )
        return replace(stats, rate=None, units_rate=None) if stats.resting or stats.held else stats


class RunList(Sequence[RunStats]):
    """Statistics of several runs; a notebook shows them as a table, which it would not do with a list."""

    def __init__(self, runs: Iterable[RunStats] = ()) -> None:
        self._runs = tuple(runs)

    def __len__(self) -> int:
        return len(self._runs)

    @overload
    def __getitem__(self, index: int) -> RunStats: ...
    @overload
    def __getitem__(self, index: slice) -> RunList: ...
    def __getitem__(self, index: int | slice) -> RunStats | RunList:
        return RunList(self._runs[index]) if isinstance(index, slice) else self._runs[index]
