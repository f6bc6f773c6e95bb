"""Submits a sample of a run's input before the rest: draws it, and puts it under its true ordinals.

The run then stands as one whose input ended early, with the reason `REHEARSED`. Submitting the rest is what completes
any such run, so nothing of the sample runs again.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain, islice
from typing import Any

from dqlab.cluster.transport import orders
from dqlab.cluster.transport.sealed import SealError, make_sealer, seal_or_explain
from dqlab.documents import Document
from dqlab.documents.named_rows import sealer_for
from dqlab.documents.parts import Row
from dqlab.documents.storage import naming
from dqlab.numbers import many
from dqlab.rules.book import REHEARSED
from dqlab.rules.puts import Submitted
from dqlab.rules.ranges import ENDLESS, Ranges
from dqlab.runs.submit.elements import Digest, repeats, unit_of, weigher
from dqlab.runs.submit.mapping import Submitter
from dqlab.runs.submit.sender import RunSender
from dqlab.stats.sample import Draw, Pick, Sample
from dqlab.waits import shown

SAID_EVERY = 10_000
"""Documents between two reports of how many were listed."""


@dataclass(frozen=True, eq=False)
class Drawn:
    """An input, and the sample that was drawn from it."""

    given: Iterable[Any]
    """The input as it was mapped."""
    elements: Iterable[Any]
    """All of it, also where `given` is an iterator that drawing has begun to use up."""
    sample: Sample
    unit: str
    """Unit of the weights."""

    @property
    def asks(self) -> bool:
        """Whether there are documents besides the sample."""
        return self.sample.total is None or self.sample.total > len(self.sample.picks)

    @property
    def ordinals(self) -> Ranges:
        """The ordinals of the sample."""
        return Ranges((pick.at, pick.at + 1) for pick in self.sample.picks)

    def __str__(self) -> str:
        n, total = len(self.sample.picks), self.sample.total
        if total is None:
            return f"the first {many(n, 'document')} of an iterator"
        return f"{n:,} of {many(total, 'document')}"

    def submitted(self, held: Ranges) -> Submitted:
        """Return the record of what the queue holds of the sample."""
        marks = {pick.at + 1: pick.mark for pick in self.sample.picks}
        through = held.gaps(0, ENDLESS)[0][0]
        beyond = Ranges(held.within(through, ENDLESS))
        end = max((hi for _, hi in beyond), default=0)
        return Submitted(through, marks.get(through, ""), beyond, marks.get(end, ""))

    def contains(self, before: Submitted) -> bool:
        """Return whether all that a queue holds is of this sample of this input."""
        held, mine = Ranges(before.held), self.ordinals
        if any(mine.gaps(lo, hi) for lo, hi in held):
            return False
        ours = self.submitted(held)
        same = not (before.digest and ours.digest) or before.digest == ours.digest
        return same and (not before.end_digest or before.end_digest == ours.end_digest)

    def missing(self, held: Iterable[tuple[int, int]]) -> list[Pick]:
        """Return the documents of the sample that a queue does not hold."""
        there = Ranges(held)
        return [pick for pick in self.sample.picks if pick.at not in there]


def draw(elements: Iterable[Any], n: int, options: Sequence[str] = ()) -> Drawn:
    """Draw `n` documents from all of an input, or take the first ones of an iterator."""
    unit = unit_of(elements)
    if not repeats(elements):
        iterator = iter(elements)
        first = list(islice(iterator, n))
        more = list(islice(iterator, 1))
        sample = _drawn(first, n, unit, options, apart=True).sample(None if more else len(first))
        return Drawn(elements, chain(first, more, iterator), sample, unit)
    drawing = _drawn(elements, n, unit, options)
    return Drawn(elements, elements, drawing.sample(drawing.count), unit)


def _drawn(elements: Iterable[Any], n: int, unit: str, options: Sequence[str], *, apart: bool = False) -> Draw:
    """Pass over the elements, with rows of a row group drawn together unless `apart`."""
    drawing = Draw(n)
    weigh: Callable[[Any], int] | None = None
    for at, element, group, digest in _passed(elements, options, apart=apart):
        if not at:
            weigh = weigher(unit, element)
        if drawing.offer(1 if weigh is None else weigh(element), group):
            drawing.keep(element, digest.at(at + 1), group)
    return drawing


class OtherInput(Exception):
    """An input is not the one that was submitted before."""


def checked(
    elements: Iterable[Any], before: Submitted, options: Sequence[str] = ()
) -> Iterator[tuple[int, Any, Hashable]]:
    """Yield each element with its position and row group, and raise `OtherInput` for another input than before."""
    known, count = {before.end: before.end_digest} | {before.through: before.digest}, 0
    for at, element, group, digest in _passed(elements, options):
        count = at + 1
        if known.get(count) and digest.at(count) != known[count]:
            raise OtherInput
        yield at, element, group
    if count < max(known):
        raise OtherInput


def draw_placed(placed: Iterable[tuple[int, Any, Hashable]], strata: Sequence[tuple[Ranges, int]]) -> list[Sample]:
    """Draw so many documents of each set of ordinals, from documents with their ordinals and row groups."""
    drawings = [Draw(n) for _, n in strata]
    for at, element, group in placed:
        for drawing, (ordinals, _) in zip(drawings, strata, strict=True):
            if at in ordinals and drawing.offer(1, group):
                drawing.keep((at, element), "", group)
    return [_placed(drawing.sample(drawing.count)) for drawing in drawings]


def _placed(sample: Sample) -> Sample:
    """Return a sample of some documents of an input with their ordinals in it."""
    alone = not sample.groups
    picks = [(pick, *pick.element) for pick in sample.picks]
    placed = [replace(pick, at=at, element=each, group=at if alone else pick.group) for pick, at, each in picks]
    return replace(sample, picks=tuple(placed))


def _passed(
    elements: Iterable[Any], options: Sequence[str], *, apart: bool = False
) -> Iterator[tuple[int, Any, Hashable, Digest]]:
    """Yield each element with its position, the row group that it is read with, and the digest so far."""
    plain, count = naming(make_sealer(), options), 0
    # All is confirmed, so to speak: the digest is only asked for the elements so far.
    digest = Digest(lambda: count)
    seal = plain
    with shown("reading the input, to draw a sample of it") as wait:
        for at, element in enumerate(elements):
            count = at
            if type(element) is Document:
                payload, part = b"", element.part
                group = (element.where, part.group) if type(part) is Row and not apart else None
            else:
                group, seal = None, sealer_for(type(element), plain)
                try:
                    payload = seal(element)
                except SealError:
                    payload = seal_or_explain(element, f"element {at}")
            digest.update(element, payload)
            yield at, element, group, digest
            if at % SAID_EVERY == 0:
                wait.step(f"{many(at, 'document')} so far")


class SampleSubmitter(Submitter):
    """Puts a sample of the input, or what a queue lacks of it, and leaves the run to be completed."""

    def __init__(
        self,
        name: str,
        drawn: Drawn,
        sender: RunSender,
        go: Callable[..., object],
        *,
        reopen: bool = False,
        verify: bool = False,
        then: Callable[[], object] | None = None,
    ) -> None:
        super().__init__(name, drawn.elements, sender, reopen=reopen, verify=verify, then=then)
        self.drawn = drawn
        self.go = go
        """Submits the rest, or given a number, a larger sample."""
        self._missing = drawn.missing(sender.held)
        self.count = sender.held.size
        sender.put_at(pick.at for pick in self._missing)

    def reading(self) -> Iterator[Any]:
        """Return the documents to put."""
        return iter([pick.element for pick in self._missing])

    def _submitted(self, held: Ranges) -> orders.RecordSubmitted:
        return orders.RecordSubmitted(self.sender.run, self.drawn.submitted(held), self.sender.producer)

    def _report_end(self, incomplete: str | None) -> None:
        super()._report_end(incomplete or f"{REHEARSED}{self.drawn}")
