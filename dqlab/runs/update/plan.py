"""What an input has that a run lacks, by key and version.

Of the run there are hashes: the same few bytes for each document, however long its key and its version are. A key is
found by 96 bits, so that two of them are not taken for one. Hashes are those of this process, which nobody can foresee.
"""

from __future__ import annotations

import re
from array import array
from collections import Counter
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import chain
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, get_args

from dqlab.clock import SystemClock
from dqlab.cluster.transport.reports import Progress
from dqlab.documents import Document, label_of, labelled
from dqlab.documents.document import file_version
from dqlab.documents.parts import Row
from dqlab.errors import BadOption, RunError, RunExists, UsageError
from dqlab.numbers import few_of, many, minute
from dqlab.rules.book import CodeRecord
from dqlab.rules.ranges import Ranges
from dqlab.runs.submit.elements import as_mapped, repeats
from dqlab.runs.submit.sampling import OtherInput, checked
from dqlab.waits import shown

if TYPE_CHECKING:
    from dqlab.runs.reading.results import Results
    from dqlab.runs.run import Run

EQUAL = "changes no result"
"""Note of a code version that a user declared equal to the one before it."""
Trust = Literal["version", "size"]
"""What tells whether a document has changed."""

SAID_EVERY = 10_000
"""Documents between two reports of how many were listed."""
UPDATED = "~"
"""Begins the digest of an input that was not put in its order, so that no input in order is taken for it."""
NAMED = 5
"""Keys that an error names."""
_STAMP = re.compile(r"(\d{1,19})(-.*)?")
"""A version that was made of a size, or of a size and a time."""


@dataclass(frozen=True, eq=False)
class UpdatePlan:
    """What `Run.update` does: counts, and the documents to run.

    Attributes
    ----------
    run : str
        Name of the run.
    new, changed : list
        Documents whose key the run does not have; (ordinal, document) of those with another version.
    again : int
        Documents among `changed` that have the same version, and run again because that was asked for.
    gone : int
        Documents of the run that the input no longer has.
    keep_gone : bool
        Whether the results of those stay all the same.
    kept : int
        Documents of the run that have the same version.
    unknown : int
        Documents that the run keeps without knowing whether they changed: the run or the input has no version of them.
    failed : int
        Documents that failed. An update does not run them: `Run.retry` does.
    reasons : dict of str to int
        How many have changed in "size", in "time" alone, or in another "version", such as an ETag or a checksum.
    made : dict of int to int
        By the number of a code version, how many of the kept results it has made.
    lacking : dict of str to int
        For a run with a sink: by column that rows of the code of an update have, how many kept results lack it, as far
        as a row of each code shows. ``run.redo(fn, keys=list(run.results(code=1).keys()))`` fills them.
    code : int
        Number of the code version that an update runs.

    Examples
    --------
    >>> plan = run.plan(dq.Documents.from_glob("papers/**/*.txt"))  # doctest: +SKIP
    >>> print(plan)  # doctest: +SKIP
    run 'extract': 3,112 new, 18 changed, 4 gone; 1,995,000 kept
    """

    run: str
    new: list[Document] = field(repr=False)
    changed: list[tuple[int, Document]] = field(repr=False)
    again: int
    digest: str = field(repr=False)
    """Digest of the input that the run had; another one since then refuses the plan."""
    input: Iterable[Any] = field(repr=False)
    """The documents that were compared with the run."""
    gone: int = 0
    kept: int = 0
    unknown: int = 0
    failed: int = 0
    reasons: dict[str, int] = field(default_factory=dict)
    made: dict[int, int] = field(default_factory=dict)
    lacking: dict[str, int] = field(default_factory=dict)
    code: int = 0
    keep_gone: bool = False
    evidence: str = field(default="", repr=False)
    """When the input was listed, and what was compared."""
    gone_at: Ranges = field(default_factory=Ranges, repr=False)

    @property
    def only_again(self) -> bool:
        """Whether the run keeps exactly the documents that it has, in the same versions."""
        return not self.new and not self.gone_at and len(self.changed) == self.again

    @property
    def empty(self) -> bool:
        """Whether the run is up to date."""
        return not (self.new or self.changed or self.gone_at)

    @property
    def older(self) -> int:
        """Kept results that other code has made than an update runs."""
        return sum(results for number, results in self.made.items() if number != self.code)

    def __str__(self) -> str:
        return f"run {self.run!r}: {self.summary}"

    @property
    def summary(self) -> str:
        """Its counts in one line."""
        changed = f"{len(self.changed) - self.again:,} changed"
        if self.reasons:
            changed += f" ({', '.join(f'{n:,} in {what}' for what, n in self.reasons.items())})"
        parts = [f"{len(self.new):,} new", changed, f"{self.gone:,} gone{' and kept' if self.keep_gone else ''}"]
        parts += [f"{self.again:,} again"] if self.again else []
        said = f"{', '.join(parts)}; {self.kept:,} kept"
        if self.empty:
            gone = f", {self.gone:,} gone and kept" if self.gone else ""
            said = f"nothing to do, {self.evidence}{gone}"
        if self.older:
            each = [f"{n:,} by v{number}" for number, n in self.made.items()]
            made = f"of them {', '.join(each)}" if len(each) > 1 else f"made by v{next(iter(self.made))}"
            said += f", {made} (the code is v{self.code}: compare shows what that would change)"
        if self.lacking:
            said += f"; {', '.join(f'{n:,} lack the column {column!r}' for column, n in self.lacking.items())}"
        if self.unknown:
            said += f"; {self.unknown:,} without a version are kept, changed or not"
        if self.failed:
            said += f"; {self.failed:,} failed before, run.retry() runs them"
        whole = sum(type(each.part) is Row and each.part.stamp is None for _, each in self.changed)
        if whole and not self.again:
            said += f"; {whole:,} of the changed are all rows of files that were written again, which "
            said += "dq.Documents.from_parquet(..., version=) compares one by one"
        return said


Again: TypeAlias = Collection[Any] | Callable[[str], object] | Literal["all"]
"""Keys of documents that run again though they have not changed, or a function of a key, or all."""


def plan_of(
    run: Run,
    elements: Iterable[Any],
    progress: Progress,
    again: Again = (),
    *,
    code: CodeRecord | None = None,
    trust: Trust = "version",
    keep_gone: bool = False,
) -> UpdatePlan:
    """Compare an input with the documents of a run that has ended, or raise and change nothing.

    `code` is what an update runs, by default the run's newest.
    """
    _check_ended(run, progress)
    if trust not in get_args(Trust):
        raise BadOption(option="trust", value=trust, problem="is 'version' or 'size'. Nothing changed.")
    trusted = _size_of if trust == "size" else str
    results, index, dead = _read(run, progress, trusted)
    at_wall = SystemClock().wall()
    others, chosen, noted = set[str](), _chooser(again), index.noted
    """Keys that are listed and have no result."""
    new: list[Document] = []
    changed: list[tuple[int, Document]] = []
    unknown, failed, repeated, compared = 0, 0, 0, ""
    for element in _documents(elements):
        key = str(element.key)
        at = index.find(key)
        if noted[at] if at >= 0 else key in others:
            reason = f"two documents have the key {key!r}: which of them the run has cannot be known."
            raise UsageError(reason=f"{reason} Nothing changed. Give them keys of their own, as with key=.")
        if at >= 0:
            noted[at] = LISTED
        else:
            others.add(key)
        letter = dead.get(key)
        if at < 0 and not letter:
            new.append(element)
            continue
        same = _same(index, at, letter and letter[1], element, trusted)
        if same is False or chosen(key):
            changed.append((letter[0] if letter else results.ordinal(at), element))
            repeated += same is not False
        elif letter:
            failed += 1
        elif same:
            noted[at], compared = KEPT, trusted(element.version)
        else:
            unknown += 1
    gone = Ranges((at, at + 1) for at in map(results.ordinal, index.unlisted()))
    for key in (key for key in dead.keys() - others if index.find(key) < 0):
        gone.add(dead[key][0], dead[key][0] + 1)
    kept = index.kept_by_code()
    if gone and not (new or changed or failed or unknown or kept.total()):
        reason = "the input has no documents, as where it was read before. Nothing changed. run.drop() drops the run."
        raise RunError(run=run.name, reason=reason)
    made, runs = _made_by(progress.record.codes, code, kept)
    listed = many(len(new) + len(changed) + kept.total() + unknown + failed, "document")
    return UpdatePlan(
        run.name,
        new,
        sorted(changed, key=lambda each: each[0]),
        repeated,
        progress.record.input.digest,
        elements,
        gone.size,
        kept.total(),
        unknown,
        failed,
        _reasons(run, changed, dead),
        made,
        _lacking(run, (code or progress.record.codes[-1])["short"], results, index, kept),
        runs,
        keep_gone,
        f"{listed} listed at {minute(at_wall)} with the keys and versions{_property(compared)} it has",
        Ranges() if keep_gone else gone,
    )


def _same(index: Index, at: int, failed: str | None, element: Document, trusted: Callable[[str], str]) -> bool | None:
    """Return whether a document has the version that its run has, or that has failed; None where one is unknown."""
    version = trusted(element.version)
    if failed is not None:  # the newer one
        return trusted(failed) in (version, trusted(file_version(element))) if failed and version else None
    same = index.same(at, version)
    # A run that was made without versions of rows has those of their files.
    return index.same(at, trusted(file_version(element))) if same is False else same


def input_of(run: Run, documents: Iterable[Any] | None) -> Iterable[Any]:
    """Return all documents of a run, as they are given or were mapped here, or raise `RunError`."""
    given = run._wait.elements if documents is None else as_mapped(labelled(documents))
    if given is None or not repeats(given):
        why = "is not known in this process" if given is None else "can be read only once"
        steps = "Pass the same documents, a list or dq.Documents, as documents=, or --over on a line"
        raise RunError(run=run.name, reason=f"its input {why}. {steps}. Nothing was run.")
    return given


def placed(run: Run, given: Iterable[Any], progress: Progress) -> Iterator[tuple[int, Any, Hashable]]:
    """Yield the documents of a run with their ordinals and row groups, or raise `RunExists` for others."""
    record = progress.record
    try:
        if not record.input.digest.startswith(UPDATED):
            yield from checked(given, record.input, record.options)
            return
        plan = plan_of(run, given, progress, again="all", keep_gone=True)  # they no longer stand in their order
        if not plan.only_again:
            raise OtherInput
        yield from ((at, element, None) for at, element in plan.changed)
    except OtherInput:
        steps = "Pass the documents that it has as documents=, or bring it up to date first: run.update(documents)."
        raise RunExists(run=run.name, difference="other documents", steps=steps) from None


def _read(
    run: Run, progress: Progress, trusted: Callable[[str], str]
) -> tuple[Results, Index, dict[str, tuple[int, str]]]:
    """Return what a run has, with ordinal and version of what has failed by its key, or raise if it changes."""
    results = run.results_at([span for shard in progress.shards for span in shard.covered])
    index = _index_of(run, results, None if trusted is str else trusted)
    dead = {str(letter.key): (letter.ordinal, getattr(letter.document, "version", "")) for letter in run.failures()}
    have = index.count + sum(index.find(key) < 0 for key in dead)
    if have < progress.counts.acked + progress.counts.dead - progress.missing:
        reason = "some of its documents were sent again meanwhile. Nothing changed. Make another plan."
        raise RunError(run=run.name, reason=reason)
    return results, index, dead


def _check_ended(run: Run, progress: Progress) -> None:
    """Raise unless a run has ended."""
    left = progress.counts.left
    if not progress.sealed or left:
        what = f"{many(left, 'document')} of it have not ended" if left else "it is still being submitted"
        reason = f"it can be updated when it has ended, and {what}. Nothing changed. run.wait() waits for its end."
        raise RunError(run=run.name, reason=reason)


def _documents(elements: Iterable[Any]) -> Iterator[Document]:
    """Yield the documents of an input, and say how many there are so far."""
    with shown("comparing the input with what the run has") as wait:
        for at, element in enumerate(elements):
            if type(element) is not Document:
                reason = (
                    f"element {at} is {type(element).__name__!r}, and only documents have keys and versions by "
                    "which an input can be compared: map dq.Documents. Nothing changed."
                )
                raise UsageError(reason=reason)
            yield element
            if at % SAID_EVERY == 0:
                wait.step(f"{many(at, 'document')} so far")


def _property(version: str) -> str:
    """Return in brackets what a version was made of."""
    stamp = _STAMP.fullmatch(version)
    return f" ({'ETag or checksum' if stamp is None else 'size and time' if stamp[2] else 'size'})"


def _size_of(version: str) -> str:
    """Return the size in a version, or the version itself if it has none."""
    stamp = _STAMP.fullmatch(version)
    return version if stamp is None else stamp[1]


def _reasons(run: Run, changed: list[tuple[int, Document]], dead: dict[str, tuple[int, str]]) -> dict[str, int]:
    """Return how many documents differ from those of the run in what."""
    before = dict(dead.values())
    results = run.results_at([(at, at + 1) for at, _ in changed if at not in before])
    for first, _, versions, _ in results.identities() if changed else ():
        before |= {results.ordinal(first + n): version for n, version in enumerate(versions)}
    found = Counter[str]()
    for at, document in changed:
        old, new = _STAMP.fullmatch(before[at]), _STAMP.fullmatch(document.version)
        if before[at] and document.version and before[at] != document.version:
            found["version" if old is None or new is None else "size" if old[1] != new[1] else "time"] += 1
    return dict(found)


def _made_by(codes: list[CodeRecord], code: CodeRecord | None, kept: Mapping[str, int]) -> tuple[dict[int, int], int]:
    """Return how many kept results each code version has made, equal ones as one, and the number of `code`."""
    numbers: dict[str, int] = {}
    by_hash: dict[str, int] = {}
    number = 0
    for at, each in enumerate(codes, 1):
        number = number if number and each.get("note") == EQUAL else at
        numbers[each["short"]] = by_hash[each["hash"]] = number
    made, runs = Counter[int](), number if code is None else by_hash.get(code["hash"], len(codes) + 1)
    for short, n in kept.items():
        made[numbers.get(short, runs)] += n
    return {number: n for number, n in sorted(made.items()) if n}, runs


def _lacking(run: Run, newest: str, results: Results, index: Index, kept: Mapping[str, int]) -> dict[str, int]:
    """Return, by column that rows of the newest code have in a sink, how many kept results lack it."""
    examples, found = index.examples(), Counter[str]()
    if len(examples) < 2 or newest not in examples or run.sink is None:
        return {}
    at = sorted((results.ordinal(at), code) for code, at in examples.items())
    made = run.results_at([(each, each + 1) for each, _ in at]).made()  # with errors for what cannot be read
    rows = {code: row for (_, code), (_, row, *_) in zip(at, made, strict=True)}
    for code, row in rows.items():
        if isinstance(row, dict) and isinstance(rows[newest], dict):
            found.update({column: kept[code] for column in rows[newest].keys() - row.keys() if kept[code]})
    return dict(found)


def _chooser(again: Again) -> Callable[[str], object]:
    if again == "all":
        return lambda key: True
    return again if callable(again) else {str(key) for key in again}.__contains__


def _index_of(run: Run, results: Results, trusted: Callable[[str], str] | None) -> Index:
    """Return which results a run has, or raise where they have no keys of their own."""
    index = Index(results, trusted)
    if not index.keyed:
        reason = "its documents have no keys, so an input cannot be compared with them. Nothing changed."
        raise RunError(run=run.name, reason=f"{reason} Map dq.Documents under another name.")
    if index.twice:
        keys = chain.from_iterable(keys or () for _, keys, _, _ in results.identities())
        wanted = set(index.twice[:NAMED])
        named = few_of([repr(label_of(key)) for at, key in enumerate(keys) if at in wanted])
        reason = f"it has several documents with the same key, such as {named}. Nothing changed."
        raise RunError(run=run.name, reason=reason)
    return index


_LOW = 0xFFFFFFFF
LISTED, KEPT = 1, 2
"""Notes of a document that an input has, and of one that keeps its result."""
_UNKNOWN = hash("")


class Index:
    """Positions of a run's results by key, with their versions, and what was noted of each."""

    def __init__(self, results: Results, trusted: Callable[[str], str] | None = None) -> None:
        # trusted: returns what of a version is compared, by default all of it.
        self.keyed = True
        count = self.count = len(results)
        self._keys, self._more = array("q", [0]) * count, array("I", [0]) * count
        """Hashes of each key, and the lower half of another one of it."""
        self._versions, self._codes = array("q", [0]) * count, dict[str, int]()
        self._made = array("H", [0]) * count
        """The number of the code that made each result."""
        self.noted = bytearray(count)
        for at, keys, versions, code in results.identities():
            if keys is None:
                self.keyed = False
                return
            if "\0" in "".join(keys):
                keys = [str(label_of(key)) for key in keys]
            stop = at + len(keys)
            self._keys[at:stop] = array("q", map(hash, keys))
            self._more[at:stop] = array("I", [_other(key) for key in keys])
            self._versions[at:stop] = array("q", map(hash, versions if trusted is None else map(trusted, versions)))
            self._made[at:stop] = array("H", [self._codes.setdefault(code, len(self._codes))]) * len(keys)
        self.twice = self._filled()

    def _filled(self) -> list[int]:
        """Fill the table by which positions are found, and return those whose key another one has."""
        keys, more, twice = self._keys, self._more, list[int]()
        # Open addressing: a dictionary of as many numbers would take a hundred bytes for each.
        mask = self._mask = (1 << (2 * self.count).bit_length()) - 1
        table = self._table = array("i", [-1]) * (mask + 1)
        for at, hashed in enumerate(keys):
            slot = hashed & mask
            while (other := table[slot]) >= 0:
                if keys[other] == hashed and more[other] == more[at]:
                    twice.append(at)
                slot = slot + 1 & mask
            table[slot] = at
        return twice

    def find(self, key: str) -> int:
        """Return the position of a key, or -1."""
        keys, table, mask, hashed = self._keys, self._table, self._mask, hash(key)
        slot = hashed & mask
        while (at := table[slot]) >= 0 and not (keys[at] == hashed and self._more[at] == _other(key)):
            slot = slot + 1 & mask
        return at

    def same(self, at: int, version: str) -> bool | None:
        """Return whether the document at a position has this version, None where one of them is unknown."""
        known = self._versions[at]
        return known == hash(version) if version and known != _UNKNOWN else None

    def unlisted(self) -> Iterator[int]:
        """Yield the positions of which nothing was noted."""
        at = -1
        while (at := self.noted.find(0, at + 1)) >= 0:
            yield at

    def kept_by_code(self) -> Counter[str]:
        """Return how many of the documents that were noted as kept each code made."""
        if len(self._codes) < 2:
            return Counter({code: self.noted.count(KEPT) for code in self._codes})
        numbers = Counter(number for number, noted in zip(self._made, self.noted, strict=True) if noted == KEPT)
        return Counter({code: numbers[number] for code, number in self._codes.items()})

    def examples(self) -> dict[str, int]:
        """Return for each code the position of a result that it made."""
        return {code: self._made.index(number) for code, number in self._codes.items()}


def _other(key: str) -> int:
    return hash(f"{key}\0") & _LOW
