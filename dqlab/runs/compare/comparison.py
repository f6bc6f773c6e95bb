"""`Comparison`: what new code changes in a sample of a run's documents, and what that says about all of them."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property
from reprlib import Repr
from typing import TYPE_CHECKING, Any

from dqlab import numbers
from dqlab.cluster.transport.orders import Code
from dqlab.errors import RunError
from dqlab.imports import import_whole
from dqlab.numbers import many
from dqlab.runs.reading.dataframes import frame_of, index_of
from dqlab.stats.sample import SHARE_LEVEL, Interval, Seen, chance, share_of

if TYPE_CHECKING:
    import pandas as pd

LONG = 0.001
"""Seconds of a document below which the time is mostly that of the call, and no ratio is named."""
ALIKE = 1.15
"""Ratio of times below which one code is not called slower or faster than the other."""


class Became(StrEnum):
    """What new code made of a document."""

    EQUAL = "equal"
    CHANGED = "changed"
    NEWLY_FAILS = "newly fails"
    NEWLY_WORKS = "newly works"
    STILL_FAILS = "still fails"
    NONE = "no result"
    """It was cancelled or lost, or its result cannot be read here."""


_OTHER = frozenset({Became.CHANGED, Became.NEWLY_FAILS, Became.NEWLY_WORKS})
_WORDS = {
    Became.EQUAL: "equal",
    Became.CHANGED: "changed",
    Became.NEWLY_FAILS: "newly fail",
    Became.NEWLY_WORKS: "newly works",
    Became.STILL_FAILS: "still fail",
    Became.NONE: "without a result",
}


@dataclass(frozen=True)
class Compared:
    """One document of a sample under the old code and under the new one.

    Attributes
    ----------
    key : str or int
        The document's key, or its position if it has none.
    ordinal : int
        Its position in the run's input, by which the two are paired.
    became : Became
        "equal", "changed", "newly fails", "newly works", "still fails" or "no result".
    before, after : object
        The results; None where there is none.
    error : str
        Why it failed, under the new code or else under the old one; "" without a failure.
    code : str
        The short code version that made `before`; "" where that is unknown.
    seconds_before, seconds_after : float
        How long the last attempt took; NaN where that is unknown.
    attempts : int
        Attempts of the new code.
    score_before, score_after : float
        What `score` gave; NaN without it.
    """

    key: Any
    ordinal: int
    became: Became
    before: Any = None
    after: Any = None
    error: str = ""
    code: str = ""
    seconds_before: float = math.nan
    seconds_after: float = math.nan
    attempts: int = 1
    score_before: float = math.nan
    score_after: float = math.nan
    group: Hashable = None
    """Documents of one group are no independent observations."""
    failed: bool = False
    """Whether it had failed before, which is a stratum of its own."""
    marked: bool | None = None
    """Whether its old result is marked as right; None without a mark. All marked ones are in the sample."""

    @property
    def is_changed(self) -> bool:
        """Whether it would look otherwise with the new code."""
        return self.became in _OTHER


@dataclass(frozen=True, eq=False)
class Comparison:
    """What new code changes in a sample of a run's documents.

    Attributes
    ----------
    run : str
        Name of the run.
    sample : int
        Documents of the sample.
    total : int
        Documents of the run that had an outcome when it was drawn.
    pairs : tuple of Compared
        What became of each, by position in the input; while it goes on, of those that are done.
    """

    run: str
    id: bytes
    newest: str
    """Hash of the newest code that the run had."""
    old: tuple[int, ...]
    """Numbers of the versions that made the old results."""
    new: int
    """Number that the new version has, or would have."""
    sample: int
    settled: int
    """Documents with a result, of which `dead` others have none."""
    dead: int
    pairs: tuple[Compared, ...] = ()
    noise: tuple[Compared, ...] | None = None
    """Documents of the sample under their old code again; None where that was not tried."""
    without_noise: str = ""
    """Why the old code was not tried again although it should have been."""
    input: str = ""
    """Digest of the input that the sample was drawn from."""
    sealed: Code | None = field(default=None, repr=False)
    """The new code, as it ran."""
    documents: Any = field(default=None, repr=False)
    """The input that the sample was drawn from."""

    @property
    def total(self) -> int:
        """Documents of the run that had an outcome when the sample was drawn."""
        return self.settled + self.dead

    @cached_property
    def counts(self) -> dict[Became, int]:
        """How many documents became what; they add up to those of `pairs`."""
        found = Counter(pair.became for pair in self.pairs)
        return {became: found[became] for became in Became}

    @property
    def changed(self) -> tuple[Compared, ...]:
        """The documents of the sample that would look otherwise: changed, newly failing, newly working."""
        return tuple(pair for pair in self.pairs if pair.is_changed)

    @cached_property
    def share(self) -> Interval:
        """The share of all documents that would change, from 0 to 1, with the range that has it in 19 of 20 cases."""
        return _share(self.pairs, self.settled, self.dead)

    @cached_property
    def noise_share(self) -> Interval | None:
        """The share that changes when the old code runs again; None where that was not tried."""
        return _share(self.noise, self.settled, 0) if self.noise else None

    @property
    def beyond_noise(self) -> bool | None:
        """Whether more changes than by running the old code again; None where that was not tried.

        Equal shares are taken for different ones in at most one of twenty cases.
        """
        if not self.noise:
            return None
        mine = [pair.is_changed for pair in self.pairs if not pair.failed]
        again = [each.is_changed for each in self.noise]
        return chance(sum(mine), len(mine), sum(again), len(again)) <= 1 - SHARE_LEVEL

    @property
    def slower(self) -> float | None:
        """Seconds of the new code over those of the old, for documents that both can do; None where unknown."""
        return self._ratio(0.0)

    @property
    def summary(self) -> str:
        """What was found in a line, with lines for what the old code changes by itself, for marks and for scores."""
        head = f"{self.versions} on {self._drawn}: {' · '.join(self._parts())}"
        more = (self._noise_words(), self._mark_words(), self._score_words())
        return "\n".join(each for each in (head, *more) if each)

    @property
    def versions(self) -> str:
        """The versions, as in "v2 → v3"."""
        return f"{', '.join(f'v{each}' for each in self.old)} → v{self.new}"

    def to_frame(self) -> pd.DataFrame:
        """Return a pandas DataFrame indexed by key, with a row for each document of the sample.

        Raises
        ------
        ImportError
            pandas is not installed (it is in the extra ``lab``).
        """
        import_whole("pandas")
        columns = ["became", "before", "after", "error", "seconds_before", "seconds_after", "attempts"]
        columns += ["score_before", "score_after"] if self._scored else []
        rows = [{name: _plain(getattr(pair, name)) for name in columns} for pair in self.pairs]
        frame: pd.DataFrame = frame_of(rows, index_of([pair.key for pair in self.pairs]), columns)
        return frame

    def __str__(self) -> str:
        return self.summary

    __repr__ = __str__

    def checked(self) -> Comparison:
        """Return it, or raise `RunError` if its counts do not add up to the sample."""
        if len(self.pairs) != self.sample or len({pair.ordinal for pair in self.pairs}) != self.sample:
            reason = f"{many(self.sample, 'document')} were compared and {len(self.pairs):,} have an outcome. Nothing "
            raise RunError(run=self.run, reason=f"{reason}was changed; compare again.")
        return self

    def _ratio(self, least: float) -> float | None:
        """Return the ratio of the seconds if those of the slower code are at least `least` for each document."""
        took = [(pair.seconds_before, pair.seconds_after) for pair in self.pairs if pair.became in _DONE]
        took = [(old, new) for old, new in took if not math.isnan(old + new)]
        before, after = sum(old for old, _ in took), sum(new for _, new in took)
        return after / before if before and max(before, after) >= least * len(took) else None

    # --- in words -------------------------------------------------------------------------------

    @property
    def _drawn(self) -> str:
        done = f"{len(self.pairs):,} of " if len(self.pairs) < self.sample else ""
        if self.sample == self.total:
            return f"{done}all {many(self.total, 'document')}"
        return f"{done}{self.sample:,} of {many(self.total, 'document')}"

    def _parts(self) -> list[str]:
        counts = self.counts
        parts = [
            f"{counts[became]:,} {words}"
            for became, words in _WORDS.items()
            if counts[became] or became in (Became.EQUAL, Became.CHANGED)
        ]
        again = sum(pair.attempts > 1 for pair in self.pairs)
        parts += [f"{again:,} at a second attempt or later"] if again else []
        if (ratio := self._ratio(LONG)) is not None and not 1 / ALIKE < ratio < ALIKE:
            times = max(ratio, 1 / ratio)
            parts.append(f"{times:,.{int(times < 10)}f} x {'slower' if ratio > 1 else 'faster'}")
        if self.pairs and self.sample < self.total:
            parts.append(_would_change(self.share, len(self.changed)))
        return parts

    def _noise_words(self) -> str:
        share = self.noise_share
        if share is None or self.noise is None:
            return self.without_noise
        hits = sum(each.is_changed for each in self.noise)
        bound = f"at most {numbers.share(share.high)}" if not hits else _range(share)
        said = f"noise: {hits} of {many(len(self.noise), 'repeat')} of the old code changed too, {bound}"
        if not self.changed:
            return said
        return f"{said}; {'more than that' if self.beyond_noise else 'no more than that, perhaps,'} changes"

    def _mark_words(self) -> str:
        """Say how many of the results that a user marked would change."""
        changed = {right: [pair.is_changed for pair in self.pairs if pair.marked is right] for right in (False, True)}
        return ", ".join(
            f"of {len(those):,} marked {'right' if right else 'wrong'} {sum(those):,} would change"
            for right, those in changed.items()
            if those
        )

    @property
    def _scored(self) -> list[tuple[float, float]]:
        scores = [(pair.score_before, pair.score_after) for pair in self.pairs]
        return [(old, new) for old, new in scores if not math.isnan(old + new)]

    def _score_words(self) -> str:
        scored = self._scored
        if not scored:
            return ""
        better, worse = sum(new > old for old, new in scored), sum(new < old for old, new in scored)
        old, new = (sum(column) / len(scored) for column in zip(*scored, strict=True))
        by_chance = min(1.0, 2 * _tail(max(better, worse), better + worse))
        verdict = "" if by_chance <= 1 - SHARE_LEVEL else ", which may be chance"
        return f"score {old:.3g} → {new:.3g} on {len(scored):,}: better for {better:,}, worse for {worse:,}{verdict}"


_DONE = frozenset({Became.EQUAL, Became.CHANGED})


def _tail(k: int, n: int) -> float:
    """Return how probable `k` or more heads of `n` coins are."""
    return float(sum(math.comb(n, each) for each in range(k, n + 1)) / 2**n)


def _share(pairs: Sequence[Compared], settled: int, dead: int) -> Interval:
    """Estimate the share of documents that would change."""
    strata = []
    marked = sum(pair.marked is not None for pair in pairs)
    for of, failed, whole in ((settled - marked, False, False), (dead, True, False), (marked, False, True)):
        groups: dict[Hashable, list[int]] = {}
        for pair in pairs:
            if (pair.failed, pair.marked is not None) == (failed, whole) and pair.became is not Became.NONE:
                found = groups.setdefault(pair.group, [0, 0])
                found[0] += 1
                found[1] += pair.is_changed
        strata.append(Seen(of, tuple((n, hits) for n, hits in groups.values())))
    return share_of(strata)


def _would_change(share: Interval, hits: int) -> str:
    if not hits:
        return f"0 of {share.n:,}: at most {numbers.share(share.high)} of all would change"
    return f"{_range(share)} of all would change"


def _range(share: Interval) -> str:
    """Spell a share with its range, as in "5.7 % (3.5-8.9)"."""
    low, high = (numbers.share(each).removesuffix(" %") for each in (share.low, share.high))
    return f"{numbers.share(share.likely)} ({low}-{high})"


def _plain(value: Any) -> Any:
    return str(value) if isinstance(value, Became) else value


# --- the difference of two results ----------------------------------------------------------------

_AROUND = 12
"""Characters shown on either side of what differs."""
_short = Repr()
_short.maxstring = _short.maxother = 400
_short.maxdict = _short.maxlist = 20


def difference(before: Any, after: Any, width: int = 60) -> tuple[str, str]:
    """Return two results as texts that show where they differ, each of at most about `width` characters."""
    if isinstance(before, dict) and isinstance(after, dict):
        mine, its = ({key: repr(value) for key, value in each.items()} for each in (before, after))
        keys = [key for key in {**before, **after} if mine.get(key) != its.get(key)]
        if len(keys) < len({**before, **after}):  # the others are the same
            before, after = ({key: each[key] for key in keys if key in each} for each in (before, after))
    one, other = (each if isinstance(each, str) else _short.repr(each) for each in (before, after))
    start = _alike(one, other)
    end = _alike(one[start:][::-1], other[start:][::-1])
    return _cut(one, start, len(one) - end, width), _cut(other, start, len(other) - end, width)


def _alike(one: str, other: str) -> int:
    """Return how many characters two texts begin with alike."""
    most = min(len(one), len(other))
    return next((at for at in range(most) if one[at] != other[at]), most)


def _cut(text: str, start: int, stop: int, width: int) -> str:
    """Return the part of a text around what differs, which is between `start` and `stop`."""
    if len(text) <= width:
        return text
    low = max(0, start - _AROUND)
    high = min(len(text), max(stop + _AROUND, low + width - 2), low + 2 * width)
    return f"{'…' * (low > 0)}{text[low:high]}{'…' * (high < len(text))}"
