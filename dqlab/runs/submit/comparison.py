"""Compares an input with a run that is still being submitted under the same name, and puts nothing."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from itertools import islice
from typing import Any

from dqlab.cluster.transport.progress import Progress
from dqlab.cluster.transport.sealed import SealError, seal_or_explain
from dqlab.documents.named_rows import sealer_of_rows
from dqlab.errors import CallTimeout
from dqlab.numbers import many
from dqlab.rules.ranges import ENDLESS
from dqlab.rules.submitted import Submitted
from dqlab.runs.submit.digest import Digest
from dqlab.runs.submit.mapping import Submitter
from dqlab.runs.submit.sender import RunSender

__all__ = ["Comparison"]

LOOK_EVERY = 0.2
"""Seconds between two looks at the run's progress."""
LOOKS_LEFT = 15
"""Looks after which the scheduler is asked whether a client still submits the run."""


class Comparison(Submitter):
    """Reads an input as far as the run's record goes, and follows the record until the run is submitted."""

    def __init__(
        self,
        name: str,
        elements: Iterable[Any],
        sender: RunSender,
        *,
        progress: Callable[[], Progress],
        earlier: Submitter | None,
        there: int,
        left: Callable[[Progress], object],
        then: Callable[[], object] | None,
    ) -> None:
        super().__init__(name, elements, sender, verify=True)
        self.digest = Digest(lambda: ENDLESS)  # confirms all: only the digest of what was read last is asked for
        self.earlier = earlier
        """The run's submitter in this process; None when another client submits the run."""
        self._progress = progress
        self._there = there
        """Documents that the queue holds at the start."""
        self._due = then
        """Called when these have been compared, and None afterwards."""
        self._left = left
        """Seals the run if no client submits it any more."""
        self._given_up = threading.Event()

    @property
    def sending(self) -> bool:
        """Whether the run is still being submitted by this process."""
        return self.earlier is not None and self.earlier.sending

    @property
    def undecided(self) -> bool:
        """Whether documents that the queue held at the start are still to be compared."""
        # Documents that are put later do not count: nobody waits for a decision about them.
        return super().undecided and self.count < max(1, self._there)

    @property
    def chain(self) -> list[Submitter]:
        """The comparison, and the run's submitter in this process."""
        return [self, *(self.earlier.chain if self.earlier is not None else [])]

    def stop(self, error: BaseException) -> None:
        """Stop comparing, and end the submission."""
        if self.earlier is not None:
            self.earlier.stop(error)
        self._give_up(error)

    def end(self) -> None:
        """End the comparison and the submission."""
        if self.earlier is not None:
            self.earlier.end()
        super().end()

    def supersede(self, error: BaseException) -> None:
        """Stop comparing, because the run was mapped again."""
        # An earlier `map` may still wait to have failures retried, which `_due` does once the inputs are the same.
        if self._due is None:
            self._give_up(error)

    def _give_up(self, error: BaseException) -> None:
        super().stop(error)
        self._given_up.set()

    def _submit(self) -> None:
        elements, compared, looks = self._taken(), -1, 0
        while True:
            known, progress, ended = self._known()
            for _ in islice(elements, known.through - self.count):
                pass
            if self.count < known.through:
                amount = many(known.through, "document") + ("" if ended else " or more")
                raise self._differing(f"{amount}, these are {self.count:,}")
            if self.count > compared:  # only what was read since: computing a digest joins the elements
                compared = self.count
                if known.digest and self.digest.at(compared) != known.digest:
                    # A difference ends the comparison at once; the submission itself continues.
                    raise self._differing("other documents")
            whole = progress.sealed and progress.incomplete is None and not progress.cancelled
            # Of an input that was cut off, nobody knows whether it had more elements.
            if ended and whole and next(elements, None) is not None:
                raise self._differing(f"{many(known.through, 'document')}, these are more")
            if ended or compared >= max(1, self._there):
                self._raise_given_up()
                # Cleared first: from here on `supersede` may give up, and the next pass must not call it again.
                due, self._due = self._due, None
                if due is not None and not progress.cancelled:
                    due()
            if ended:
                self._raise_cut_off(progress)
                return
            if self.earlier is not None:
                self.earlier.finished.wait(LOOK_EVERY)
                continue
            self._given_up.wait(LOOK_EVERY)
            looks += 1
            if looks % LOOKS_LEFT == 0:
                with suppress(CallTimeout):  # a shard does not answer now; the next look asks again
                    self._left(progress)

    def _known(self) -> tuple[Submitted, Progress, bool]:
        """Return what the queue holds of the run's input, the run's progress, and whether no more input follows."""
        while True:
            self._raise_given_up()
            over = self.earlier is not None and self.earlier.finished.is_set()  # read first: it seals, then ends
            try:
                progress = self._progress()
            except CallTimeout:  # a shard is being recreated
                continue
            return progress.record.input, progress, over or (self.earlier is None and progress.sealed)

    def _taken(self) -> Iterator[tuple[Any]]:
        """Yield the elements as they are read and hashed."""
        seal = sealer_of_rows(self.sealer())
        # True only while the input's own code runs, so that an error of the queue is never blamed on the input.
        self.by_input = True
        elements = iter(self.reading())
        while True:
            self.by_input = False
            self._raise_given_up()
            self.by_input = True
            try:
                element = next(elements)
            except StopIteration:
                self.by_input = False
                return
            self.by_input = False
            try:
                payload = seal(element)
            except SealError:
                payload = seal_or_explain(element, f"element {self.count}")
            self.digest.update(element, payload)
            self.count += 1
            yield (element,)

    def _raise_cut_off(self, progress: Progress) -> None:
        """Raise why the run lacks part of its input, if that is known."""
        # These elements may continue where the run was cut off, so agreement so far is no success.
        earlier = self.earlier
        if earlier is not None and earlier.error is not None:
            self.count, self.by_input = earlier.count, earlier.by_input
            raise earlier.error
        cut_off = progress.cut_off(self.name)
        if cut_off is not None:
            raise cut_off
