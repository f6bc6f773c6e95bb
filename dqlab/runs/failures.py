"""Documents without a result: `Failures`, a run's dead letters, and what stands for those lost or cancelled."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby, islice
from operator import index as as_index
from typing import TYPE_CHECKING, Any, overload

from dqlab.cluster.transport import calls
from dqlab.cluster.transport.queue_calls import Handle, described
from dqlab.cluster.transport.sealed import open_here
from dqlab.conditions import Fields, condition_of
from dqlab.documents import sealed_label
from dqlab.documents.document import sealed_document
from dqlab.errors import PositionNotFound, users_code
from dqlab.errors.rendering import interruptible
from dqlab.frame import Kind
from dqlab.imports import import_whole
from dqlab.keywords import SuggestsAttributes
from dqlab.numbers import count, many
from dqlab.printed import Logs
from dqlab.rules.book import CodeRecord
from dqlab.rules.ranges import Ranges, shard_of
from dqlab.runs.objects import StaysHere
from dqlab.runs.reading.dataframes import frame_of, index_of
from dqlab.runs.submit.elements import key_of, repeats
from dqlab.stats import ClassStats
from dqlab.texts import one_line, shown

if TYPE_CHECKING:
    import pandas as pd

PAGE = 500
CLASSES = 100
"""Failure classes that a table lists at most."""
LOOKED_AT = 10_000
"""Dead documents that are read at most to find the classes that statistics leave out."""
PLACES = 50_000
"""Positions of dead documents that one call returns at most."""


@dataclass(frozen=True)
class DeadLetter:
    """One message that failed for good: it is not retried automatically.

    Attributes
    ----------
    id, ordinal : int
        The message's id, and its position in the run's input.
    reason : str
        Why it is dead: retries used up, rejected, lost after early ack …
    error, message, at, traceback, fingerprint : str
        The last exception: class, text, "function:line", text, and a hash that similar failures share. The class has
        the name that tracebacks show; classes of dqlab have only their last name, such as "ResultTooLarge".
    key : str or int
        The document's key, or the ordinal if it has none.
    deliveries, exceptions : int
        Counted deliveries and exceptions.
    version : str
        Short code version of the function that failed.
    logs : Logs
        What it printed then; see `Run.logs`.
    """

    id: int
    ordinal: int
    reason: str
    error: str
    message: str
    at: str
    traceback: str
    fingerprint: str
    key: Any
    deliveries: int
    exceptions: int
    version: str
    consumer: str
    when: float
    kind: Kind
    payload: bytes
    logs: Logs = field(default_factory=lambda: Logs.of(""), repr=False)

    @property
    def argument(self) -> Any:
        """The element or value itself, unpickled in this process; (args, kwargs) for a call."""
        return open_here(self.payload)

    @property
    def document(self) -> Any:
        """The document that failed; the same as `argument`."""
        return self.argument

    def __str__(self) -> str:
        said = f"{one_line(self.key)}: {one_line(self.error)}: {one_line(self.message, 300)}"
        return said if self.reason == self.message else f"{said} ({one_line(self.reason)})"


class Failures(Sequence[DeadLetter], StaysHere, SuggestsAttributes):
    """The dead letters of one run, ordered by id and fetched a page at a time.

    A notebook shows them as a table; `to_frame()` returns a pandas DataFrame.
    """

    _way_out = "take along list(failures)"

    def __init__(
        self,
        name: str,
        handle: Handle,
        run: bytes,
        counts: Sequence[int],
        classes: Callable[[], Sequence[ClassStats]] = tuple,
        codes: Sequence[CodeRecord] = (),
    ) -> None:
        self.name, self._classes = name, classes
        self._codes = {code.get("short"): f"{code.get('name')} v{at}" for at, code in enumerate(codes, 1)}
        self._handle, self._run, self._counts = handle, run, list(counts)

    def __repr__(self) -> str:
        lines = [f"{many(len(self), 'dead document')} of {self.name!r}"]
        lines += [f"  {one_line(letter, 108)}" for letter, _ in zip(self, range(10), strict=False)]
        if len(self) > 10:
            lines.append(f"  and {len(self) - 10:,} more")
        return "\n".join(lines)

    def __len__(self) -> int:
        return sum(self._counts)

    def __iter__(self) -> Iterator[DeadLetter]:
        return self.of(())

    def of(self, classes: Collection[str]) -> Iterator[DeadLetter]:
        """Yield the dead letters of the failure classes with these fingerprints, or all if there are none."""
        for shard in range(len(self._counts)):
            after = -1
            while page := self._handle.link.sync(self._page(shard, after, classes)):
                yield from page
                after = page[-1].id

    @overload
    def __getitem__(self, index: int) -> DeadLetter: ...
    @overload
    def __getitem__(self, index: slice) -> list[DeadLetter]: ...
    def __getitem__(self, index: int | slice) -> DeadLetter | list[DeadLetter]:
        if isinstance(index, slice):
            wanted = range(*index.indices(len(self)))
            stop = max(wanted, default=-1) + 1
            head = [letter for letter, _ in zip(self, range(stop), strict=False)]
            return [head[i] for i in wanted if i < len(head)]
        try:
            at = range(len(self))[index]
        except IndexError:
            dead = many(len(self), "dead document") if len(self) else "no dead documents"
            raise PositionNotFound(what=f"run {self.name!r}", length=dead, position=as_index(index)) from None
        for i, letter in enumerate(self):
            if i == at:
                return letter
        raise IndexError(f"{self.name!r} has fewer dead documents than before: some were sent again or discarded")

    def example(self, fingerprint: str) -> DeadLetter | None:
        """Return one dead letter of a failure class, or None if it has none any more."""
        for shard in range(len(self._counts)):
            if page := self._handle.link.sync(self._page(shard, -1, [fingerprint], 1)):
                return page[0]
        return None

    @property
    def classes(self) -> tuple[ClassStats, ...]:
        """The classes of failures, largest first, at most a hundred; empty if unknown.

        Statistics have the eight largest classes; the others are found among the first ten thousand letters.
        """
        known = {entry.fingerprint: entry for entry in self._classes() if entry.dead}
        if not known or sum(entry.dead for entry in known.values()) >= len(self):
            return tuple(known.values())
        found: dict[str, ClassStats] = {}
        amounts = Counter[str]()
        for letter in islice(self, LOOKED_AT):
            amounts[letter.fingerprint] += 1
            if letter.fingerprint not in known:
                before = found.get(letter.fingerprint)
                found[letter.fingerprint] = (
                    self._class_of(letter) if before is None else replace(before, dead=before.dead + 1)
                )
        others = sorted(found.values(), key=lambda entry: (-entry.dead, entry.error, entry.fingerprint))
        # While a run goes on, statistics are older than the letters, so letters that they lack may be of known classes.
        listed = [replace(entry, dead=max(entry.dead, amounts[mark])) for mark, entry in known.items()]
        return (*listed, *others)[:CLASSES]

    def to_frame(self) -> pd.DataFrame:
        """Return a row for each dead letter: key, error, message, at, deliveries, version, reason, traceback."""
        columns = ["error", "message", "at", "deliveries", "version", "reason", "fingerprint", "traceback"]
        with interruptible("the dead documents are where they were; read them again with run.failures().to_frame()"):
            letters = list(self)
        rows = [{name: getattr(letter, name) for name in columns} for letter in letters]
        import_whole("pandas")
        frame: pd.DataFrame = frame_of(rows, index_of([letter.key for letter in letters]), columns)
        return frame

    def places(self) -> list[tuple[int, int]]:
        """Return (ordinal, id) of every dead document, by ordinal, without fetching the letters."""
        found: list[tuple[int, int]] = []
        for shard in range(len(self._counts)):
            after: int | None = -1
            while after is not None:
                asked = calls.DeadOrdinalsCall(self._run, after, PLACES)
                answer, _ = self._handle.link.sync(self._handle.ask(shard, asked))
                found += zip(answer.ordinals, answer.ids, strict=True)
                after = answer.ids[-1] if len(answer.ids) == PLACES else None
        return sorted(found)

    def named(self, ids: Iterable[int]) -> Iterator[DeadLetter]:
        """Yield the dead letters with these ids that are still dead."""
        for shard, group in groupby(sorted(ids), shard_of):
            left = deque(group)
            while left and (page := self._handle.link.sync(self._page(shard, left[0] - 1, (), len(left)))):
                # Other ids may lie between them: documents that were sent again have newer ids than their neighbours.
                dead = {letter.id: letter for letter in page}
                while left and left[0] <= page[-1].id:
                    if (letter := dead.get(left.popleft())) is not None:
                        yield letter

    def _class_of(self, letter: DeadLetter) -> ClassStats:
        """Return the statistics of a failure class that has one known dead letter."""
        return ClassStats(
            fingerprint=letter.fingerprint,
            error=letter.error,
            message=letter.message,
            at=letter.at,
            dead=1,
            retrying=0,
            first=letter.when,
            last=letter.when,
            key=str(letter.key) if letter.key != letter.ordinal else f"#{letter.ordinal}",
            versions=(self._codes.get(letter.version, letter.version),) if letter.version else (),
        )

    async def _page(self, shard: int, after: int, classes: Collection[str], limit: int = PAGE) -> list[DeadLetter]:
        asked = calls.DeadCall(self._run, after, min(limit, PAGE), list(classes))
        answer, parts = await self._handle.ask(shard, asked)
        return [dead_letter(row, parts[2 * i], parts[2 * i + 1]) for i, row in enumerate(answer.rows)]


def letter_named(letters: Iterable[DeadLetter], word: str, keys: list[str] | None = None) -> DeadLetter | None:
    """Return the letter with this key, message id or "#POSITION", or None, and add the keys that were seen."""
    by_id = by_position = None
    for letter in letters:
        if word in (key := str(letter.key), shown(key), one_line(key)):
            return letter
        if word == str(letter.id):
            by_id = letter  # unless a later letter has it as its key: keys may be numbers
        if word == f"#{letter.ordinal}":
            by_position = letter
        if keys is not None:
            keys.append(shown(key))
    return by_id or by_position


def dead_letter(row: calls.DeadRow, record: memoryview, payload: memoryview) -> DeadLetter:
    """Return the dead letter of [id, ordinal, reason, deliveries, exceptions, kind], a failure record and a payload."""
    assert row.kind is not None, "with its payload"
    said, kind, ordinal = described(row, bytes(record)), Kind(row.kind), row.ordinal
    if kind is Kind.ELEMENT:
        label = sealed_label(payload)
        if label is None and (document := sealed_document(payload)) is not None:
            label = document.key
        if label is not None:
            # The record has the label as text, or the ordinal if the consumer died before it could record the label.
            said["key"] = label
    said["logs"] = Logs.of(said["logs"], said.pop("cut"))
    return DeadLetter(**said, ordinal=ordinal, exceptions=row.exceptions, kind=kind, payload=bytes(payload))


LOOK_FOR = 10_000
"""Documents of a listing that are read at most to name the first lost ones in an error."""


@dataclass(frozen=True, slots=True)
class AbsentDocument:
    """Stands for a document that will never have a result, in results read with ``errors="return"``.

    Attributes
    ----------
    ordinal : int
        The document's position in the run's input.
    key : str or int
        The document's key, or its ordinal if the input cannot be read again.
    """

    ordinal: int
    key: Any


@dataclass(frozen=True, slots=True)
class LostDocument(AbsentDocument):
    """A document whose message or result is gone.

    Attributes
    ----------
    reason : str
        How the document was lost.
    """

    reason: str

    def __str__(self) -> str:
        return f"{self.key}: lost: {self.reason}"


@dataclass(frozen=True, slots=True)
class CancelledDocument(AbsentDocument):
    """A document that was cancelled or purged before it had a result."""

    def __str__(self) -> str:
        return f"{self.key}: cancelled"


def keys_at(ranges: Iterable[tuple[int, int]], elements: Iterable[Any] | None) -> Iterator[tuple[int, Any]]:
    """Yield (ordinal, key) of the documents in half-open ranges; the key is the ordinal where the input has none."""
    spans, given = Ranges(ranges), 0
    if elements is not None and repeats(elements):
        stop = max((hi for _, hi in spans), default=0)
        for ordinal, element in enumerate(islice(elements, stop)):
            if ordinal in spans:
                given += 1
                yield ordinal, key_of(element, ordinal)
    # An input that has become shorter must not hide the rest.
    left = (ordinal for lo, hi in spans for ordinal in range(lo, hi))
    yield from ((ordinal, ordinal) for ordinal in islice(left, given, None))


def first_keys(ranges: Iterable[tuple[int, int]], elements: Iterable[Any] | None, n: int) -> list[Any]:
    """Return the keys of the first `n` documents in ranges, or their ordinals if finding the keys would take long."""
    spans = Ranges(ranges)
    ordinals = list(islice((ordinal for lo, hi in spans for ordinal in range(lo, hi)), n))
    if not ordinals or ordinals[-1] >= LOOK_FOR:
        return ordinals
    with users_code:  # an input that cannot be read any more must not hide what was lost
        return [key for _, key in keys_at(((ordinal, ordinal + 1) for ordinal in ordinals), elements)]
    return ordinals


# --- filters, such as ``error == 'KeyError' and deliveries < 3`` ----------------------------

_SHOWN = 5
"""Most classes that are named where no failure matches."""


def _read(failure: Any, name: str) -> Any:
    value = getattr(failure, name)
    return str(value) if name == "key" and value is not None else value


FIELDS = Fields(
    {
        "error": str,
        "message": str,
        "key": str,
        "deliveries": int,
        "version": str,
        "at": str,
        "fingerprint": str,
    },
    _read,
)
"""The fields that a filter may name; `key` may be None, and an ordinal as key is its digits."""


def compile_where(where: str | Callable[[Any], object]) -> Callable[[Any], object]:
    """Return a filter as a function of one failure, or raise `BadOption`."""
    return condition_of(where, FIELDS)


def why_none(
    run: str, failures: Iterable[Any], where: str | Callable[[Any], object] | None, fingerprint: str | None
) -> str:
    """Return in words why a filter matches none of a run's failures, or "" for a run without failures."""
    classes = Counter((failure.error, failure.fingerprint) for failure in failures)
    if not classes:
        return ""
    asked = [] if where is None else [one_line(where, 200) if isinstance(where, str) else "the function of where="]
    asked += [] if fingerprint is None else [f"fingerprint {one_line(fingerprint)!r}"]
    there = [
        f"{one_line(error, 60)} {hashed} ({count(times)})" for (error, hashed), times in classes.most_common(_SHOWN)
    ]
    more = f" and {many(len(classes) - _SHOWN, 'other')}" if len(classes) > _SHOWN else ""
    matches = f"no failure of run {run!r} matches {' and '.join(asked)}, so nothing was sent again."
    return f"{matches} There are: {', '.join(there)}{more}."
