"""Puts documents of a run again, each in its place, and new ones behind all; by keys, or at each look at an input."""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from dqlab.cluster.transport import orders, queue_calls
from dqlab.cluster.transport.orders import Code
from dqlab.cluster.transport.reports import Progress
from dqlab.config import seconds
from dqlab.documents import Documents
from dqlab.errors import BadOption, RunError, RunNotFound, in_words
from dqlab.numbers import many
from dqlab.rules.puts import Submitted
from dqlab.rules.ranges import ENDLESS, Ranges
from dqlab.runs.marks import tell
from dqlab.runs.submit.elements import key_of, repeats
from dqlab.runs.submit.mapping import Submitter
from dqlab.runs.submit.sender import RunSender, UnsentFrame
from dqlab.runs.update.plan import Trust, UpdatePlan, input_of, placed

if TYPE_CHECKING:
    from dqlab.runs.run import Run

TOGETHER = 64
"""Frames of one call, at most."""


class UpdateSender(RunSender):
    """Sends documents to the shards that have them already, and what is new to any."""

    _homes: dict[int, int]
    """By the end of a gap, the shard that its documents go to."""

    def put_back(self, progress: Progress, ordinals: Iterable[int]) -> None:
        """Give the next documents these ordinals, ascending, and those that follow the ones behind all others."""
        # A frame goes to one shard: two results of a document in two shards would both be read.
        self.frames_per_call = 1
        self.go_on([counts.all for counts in progress.by_shard], progress.came)
        self._end = max((hi for _, hi in self.held), default=0)
        wanted = Ranges((ordinal, ordinal + 1) for ordinal in ordinals)
        self.again = wanted.size
        gaps = sorted(
            (*span, number)
            for number, shard in enumerate(progress.shards)
            for lo, hi in shard.came
            for span in wanted.within(lo, hi)
        )
        self._homes = {hi: shard for _, hi, shard in gaps}
        self._gaps = deque([*((lo, hi) for lo, hi, _ in gaps), (self._end, ENDLESS)])

    def choose(self) -> int:
        """Return the shard of the next frame."""
        home = self._homes.get(self._gaps[0][1])
        return super().choose() if home is None else home

    def _parcel(self) -> list[UnsentFrame]:
        """Take the frames of one call, of which those for scattered documents have one each."""
        room = self.taken_bytes + self.frame_bytes
        parcel = super()._parcel()
        while len(parcel) < TOGETHER and self.buffer and self.taken_bytes < room:
            if self._homes.get(self._gaps[0][1]) != self.shard:
                break
            parcel.append(self._number(self.gather(), self.shard))
        return parcel

    def _confirmed(self, batch: UnsentFrame, first: int | None) -> None:
        super()._confirmed(batch, first)
        if batch.ordinal < self._end:
            self.here[batch.shard] -= len(batch.payloads)  # they count there already


class UpdateSubmitter(Submitter):
    """Puts documents again and new ones, and then ends the run's input as `submitted` says."""

    def __init__(
        self,
        name: str,
        elements: Iterable[Any],
        documents: Sequence[Any],
        sender: UpdateSender,
        submitted: Submitted | str,
    ) -> None:
        # submitted: what is recorded of the input, or its digest, where that is no longer the one of before.
        super().__init__(name, elements, sender)
        self.count = sum(sender.here) - sender.again
        self._documents, self._record = documents, submitted

    def reading(self) -> Iterator[Any]:
        """Return the documents to put."""
        return iter(self._documents)

    def _submitted(self, held: Ranges) -> orders.RecordSubmitted:
        record = self._record
        if isinstance(record, str):
            through = held.gaps(0, ENDLESS)[0][0]
            record = Submitted(through, record, Ranges(held.within(through, ENDLESS)), record)
        return orders.RecordSubmitted(self.sender.run, record, self.sender.producer)


def redo(
    run: Run,
    fn: Callable[..., Any] | None,
    keys: Collection[Any] | None,
    where: str | None,
    documents: Iterable[Any] | None,
) -> int:
    """Run documents with these keys, or whose results meet a condition, again, as `Run.redo` describes."""
    if where is not None:
        if keys is not None:
            raise BadOption(option="where", value=where, problem="or keys=, which names them too. Nothing was run.")
        keys = run.table().query(f"select _key from results where {where}")["_key"].tolist()
    if isinstance(keys, str) or not (keys is None or isinstance(keys, Collection)):
        raise BadOption(option="keys", value=keys, problem="are keys of documents, in a list. Nothing was run.")
    progress = _settled(run)
    given = input_of(run, documents)
    wanted, found = None if keys is None else set(keys), set[Any]()
    here = Ranges(span for shard in progress.shards for span in shard.covered)
    chosen = []
    for at, element, _ in placed(run, given, progress):
        key = key_of(element, at)
        if at in here and (wanted is None or key in wanted):
            chosen.append((at, element))
            found.add(key)
    if len(missing := (wanted or set()) - found):
        named = ", ".join(map(repr, list(missing)[:3]))
        raise BadOption(option="keys", value=named, problem="has no result in this run. Nothing was run.")
    if not chosen:
        return 0
    code = run._new_code(fn) if fn is not None else run.handle.link.sync(queue_calls.newest_code(run.handle, run.id))
    assert run.updates is not None, "every run of a lab has it"
    run.updates(run, UpdatePlan(run.name, [], chosen, len(chosen), progress.record.input.digest, given), code)
    return len(chosen)


def _settled(run: Run) -> Progress:
    """Return the progress of a run whose input has ended, or raise why it cannot be opened again."""
    run._wait.raise_other_documents()
    progress = run._progress(covered=True)
    if progress.sealed and progress.incomplete is None and not progress.cancelled:
        return progress
    why = "it was cancelled" if progress.cancelled else progress.incomplete or "its input is still being submitted"
    raise RunError(
        run=run.name, reason=f"{why}, and documents run again once all of it was submitted. Nothing was run."
    )


SHORTEST = 0.1
"""Seconds between two looks, at least."""


class Following:
    """Keeps a run current until `stop`, the end of this process, or a cancel or drop of what the run does.

    Attributes
    ----------
    taken : int
        Documents that were new or had changed, in all looks.
    looks : int
        Looks that were made.
    failure : str
        Why the last look failed, or "". The next one tries again.
    """

    def __init__(
        self, run: Run, given: Iterable[Any] | str, code: Code, every: float | str, trust: Trust, *, keep_gone: bool
    ) -> None:
        is_pattern = isinstance(given, str | os.PathLike)
        self.what = str(given) if is_pattern else "its input"
        self._documents = Documents.from_glob(given) if isinstance(given, str | os.PathLike) else given
        self.every = seconds(every, name="every")
        if self.every < SHORTEST:
            raise BadOption(option="every", value=every, problem=f"must be {SHORTEST} s or more. Nothing is followed.")
        if not repeats(self._documents):
            problem = "can be read only once. Pass a pattern, dq.Documents or a list. Nothing is followed."
            raise BadOption(option="documents", value=given, problem=problem)
        self.taken, self.looks, self.failure = 0, 0, ""
        self._run, self._code, self._terms = run, code, {"trust": trust, "keep_gone": keep_gone}
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._follow, name=f"dqlab-follow-{run.name}", daemon=True)

    def start(self) -> None:
        """Begin with the first look."""
        self._thread.start()

    def stop(self) -> None:
        """Make no further look; what a look has sent runs on."""
        self._stopped.set()
        tell(self._run)

    @property
    def stopped(self) -> bool:
        """Whether no further look is made."""
        return self._stopped.is_set() or not self._thread.is_alive()

    def __str__(self) -> str:
        return f"following {self.what}, {self.taken:,} taken{f'; last look: {self.failure}' if self.failure else ''}"

    def __repr__(self) -> str:
        return f"<{'Stopped ' if self.stopped else ''}{self} in {many(self.looks, 'look')}>"

    def _follow(self) -> None:
        while not self._stopped.is_set():
            try:
                if self.looks and self._run._progress().cancelled:
                    break
                self._look()
                self.failure = ""
            except RunNotFound:
                break
            except Exception as error:  # noqa: BLE001 - a listing may raise anything; the next look tries again
                self.failure = in_words(error)
                if self._run.handle.link.closed:
                    break
            self.looks += 1
            if not self._stopped.is_set():
                tell(self._run, str(self), due=self.every)
            self._stopped.wait(self.every)
        self._stopped.set()

    def _look(self) -> None:
        run = self._run
        assert run.updates is not None, "every run of a lab has it"
        run.updates(run, self._documents, self._code, waits=True, **self._terms)
        assert run.updated is not None, "as the update has left it"
        self.taken += len(run.updated.new) + len(run.updated.changed)
