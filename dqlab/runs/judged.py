"""`Marks`: which results of a rehearsal their user found right or wrong, and what that says about all of them."""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from typing import TYPE_CHECKING, Any

from dqlab.cluster.transport.orders import Judge
from dqlab.errors import BadOption
from dqlab.stats.sample import Seen, share_of, wilson
from dqlab.texts import one_line

if TYPE_CHECKING:
    from dqlab.runs.rehearsal import Rehearsal
    from dqlab.runs.run import Run
    from dqlab.stats.sample import Interval


class Marks:
    """Which results of a run's sample are right and which are wrong, in the judgement of its users.

    The queue keeps them with the run: who maps the same documents again has them too.

    Examples
    --------
    >>> run.marks.right("a.pdf", "b.pdf").wrong("c.pdf")  # doctest: +SKIP
    2 of 3 right: 21 to 94 %
    """

    def __init__(self, run: Run) -> None:
        self._run = run

    def right(self, *keys: Any) -> Marks:
        """Mark results of the sample as right, by the keys of their documents, or positions without keys.

        Raises
        ------
        BadOption
            A document is not in the sample, or not done. Nothing was marked.
        """
        return self._mark(keys, right=True)

    def wrong(self, *keys: Any) -> Marks:
        """Mark results of the sample as wrong; see `right`."""
        return self._mark(keys, right=False)

    def forget(self, *keys: Any) -> Marks:
        """Take marks back; see `right`."""
        return self._mark(keys, right=None)

    def to_dict(self) -> dict[Any, bool]:
        """Return the marks, True for right, by the keys of documents."""
        marks = self._ordinals()
        return {each.key: marks[each.ordinal] for each in self._run.rehearsal.tried if each.ordinal in marks}

    @property
    def share(self) -> tuple[float, float]:
        """Between which shares of all results are right, with a probability of 95 %; (0, 1) without marks."""
        marks, rehearsal = self._ordinals(), self._run.rehearsal
        if not marks:
            return 0.0, 1.0
        if rehearsal.total is None:  # of an iterator nobody knows how many follow
            return wilson(sum(marks.values()) / len(marks), len(marks))
        found = _share(rehearsal, marks)
        return found.low, found.high

    def __len__(self) -> int:
        return len(self._ordinals())

    def __iter__(self) -> Iterator[Any]:
        return iter(self.to_dict())

    def __repr__(self) -> str:
        marks = self._ordinals()
        low, high = self.share
        said = f"{sum(marks.values())} of {len(marks)} right"
        return f"{said}: {100 * low:.0f} to {100 * high:.0f} %" if marks else "no result is marked"

    def _ordinals(self) -> dict[int, bool]:
        return {ordinal: bool(right) for ordinal, right in self._run._progress().record.marks}

    def _mark(self, keys: tuple[Any, ...], *, right: bool | None) -> Marks:
        done = {each.key: each.ordinal for each in self._run.rehearsal.tried if each.outcome == "done"}
        for key in keys:
            if not isinstance(key, Hashable) or key not in done:
                problem = (
                    "is no document of the sample that is done: run.rehearsal.table lists them. Nothing was marked."
                )
                raise BadOption(option="key", value=one_line(key, 80), problem=problem)
        if keys:
            self._run.handle.link.sync(
                self._run.handle.order(Judge(self._run.id, [[done[key], right] for key in keys]))
            )
        return self


def _share(rehearsal: Rehearsal, marks: dict[int, bool]) -> Interval:
    """Return the share of all results that are right, as far as each stratum has marks."""
    sample = rehearsal.sample
    seen: list[Seen] = []
    for at, stratum in enumerate(sample.strata):
        groups: dict[Hashable, list[int]] = {}
        for pick in sample.picks:
            if pick.stratum == at and pick.at in marks:
                group = groups.setdefault(pick.group, [0, 0])
                group[0] += 1
                group[1] += marks[pick.at]
        seen.append(Seen(stratum.count, tuple((n, hits) for n, hits in groups.values())))
    return share_of(seen)
