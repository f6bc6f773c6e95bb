"""What an input has that a run lacks, by key and version."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import chain
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from dqlab.cluster.transport.progress import Progress
from dqlab.documents import Document, label_of
from dqlab.errors import RunError, UsageError
from dqlab.numbers import few_of, many
from dqlab.rules.ranges import Ranges
from dqlab.runs.update.index import Index
from dqlab.waits import shown

if TYPE_CHECKING:
    from dqlab.runs.reading.results import Results
    from dqlab.runs.run import Run

__all__ = ["UPDATED", "Again", "UpdatePlan", "plan_of"]

SAID_EVERY = 10_000
"""Documents between two reports of how many were listed."""
UPDATED = "~"
"""Begins the digest of an input that was not put in its order, so that no input in order is taken for it."""
NAMED = 5
"""Keys that an error names."""


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
    kept : int
        Documents of the run that have the same version.
    unknown : int
        Documents that the run keeps without knowing whether they changed: the run or the input has no version of them.
    failed : int
        Documents that failed. An update does not run them: `Run.retry` does.
    older : int
        Kept results that older code than the run's newest has made.

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
    gone: int
    kept: int
    unknown: int
    failed: int
    older: int
    digest: str = field(repr=False)
    """Digest of the input that the run had; another one since then refuses the plan."""
    gone_at: Ranges = field(repr=False)

    input: Iterable[Any] = field(repr=False)
    """The documents that were compared with the run."""

    @property
    def only_again(self) -> bool:
        """Whether the input has exactly the documents of the run, in the same versions."""
        return not self.new and not self.gone and len(self.changed) == self.again

    @property
    def empty(self) -> bool:
        """Whether the run is up to date."""
        return not (self.new or self.changed or self.gone)

    def __str__(self) -> str:
        parts = [f"{len(self.new):,} new", f"{len(self.changed) - self.again:,} changed", f"{self.gone:,} gone"]
        parts += [f"{self.again:,} again"] if self.again else []
        said = f"run {self.run!r}: {', '.join(parts)}; {self.kept:,} kept"
        if self.empty:
            listed = many(self.kept + self.unknown + self.failed, "document")
            said = f"run {self.run!r}: nothing to do, {listed} with the keys and versions it has"
        if self.unknown:
            said += f"; {self.unknown:,} without a version are kept, changed or not"
        if self.failed:
            said += f"; {self.failed:,} failed before, run.retry() runs them"
        if self.older:
            said += f"; {self.older:,} of the kept results were made by older code"
        return said


Again: TypeAlias = Collection[Any] | Callable[[str], object] | Literal["all"]
"""Keys of documents that run again though they have not changed, or a function of a key, or all."""


def plan_of(run: Run, elements: Iterable[Any], progress: Progress, again: Again = ()) -> UpdatePlan:
    """Compare an input with the documents of a run that has ended, or raise and change nothing."""
    left = progress.counts.left
    if not progress.sealed or left:
        what = f"{many(left, 'document')} of it have not ended" if left else "it is still being submitted"
        reason = f"it can be updated when it has ended, and {what}. Nothing changed. run.wait() waits for its end."
        raise RunError(run=run.name, reason=reason)
    results = run.results_now()
    index = _index_of(run, results)
    dead = {str(letter.key): (letter.ordinal, letter.document.version) for letter in run.failures()}
    others, chosen = set[str](), _chooser(again)
    """Keys that are listed and have no result."""
    new: list[Document] = []
    changed: list[tuple[int, Document]] = []
    unknown, failed, repeated = 0, 0, 0
    for element in _documents(elements):
        key, version = str(element.key), element.version
        at, same = index.find(key, version)
        if index.note(at) if at >= 0 else key in others:
            reason = f"two documents have the key {key!r}: which of them the run has cannot be known."
            raise UsageError(reason=f"{reason} Nothing changed. Give them keys of their own, as with key=.")
        if at < 0:
            others.add(key)
        if letter := dead.get(key):  # the version that failed is the newer one
            same = letter[1] == version if letter[1] and version else None
        if at < 0 and not letter:
            new.append(element)
        elif same is False or chosen(key):
            changed.append((letter[0] if letter else results.ordinal(at), element))
            repeated += same is not False
        elif letter:
            failed += 1
        elif same:
            index.keep(at)
        else:
            unknown += 1
    gone = Ranges((at, at + 1) for at in map(results.ordinal, index.unlisted()))
    for key in (key for key in dead.keys() - others if index.find(key, "")[0] < 0):
        gone.add(dead[key][0], dead[key][0] + 1)
    newest, kept = progress.record.codes[-1]["short"], index.kept_by_code()
    if gone and not (new or changed or failed or unknown or kept.total()):
        reason = "the input has no documents, as where it was read before. Nothing changed. run.drop() drops the run."
        raise RunError(run=run.name, reason=reason)
    return UpdatePlan(
        run.name,
        new,
        sorted(changed, key=lambda each: each[0]),
        repeated,
        gone.size,
        kept.total(),
        unknown,
        failed,
        sum(n for code, n in kept.items() if code not in ("", newest)),
        progress.record.input.digest,
        gone,
        elements,
    )


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


def _chooser(again: Again) -> Callable[[str], object]:
    if again == "all":
        return lambda key: True
    return again if callable(again) else {str(key) for key in again}.__contains__


def _index_of(run: Run, results: Results) -> Index:
    """Return which results a run has, or raise where they have no keys of their own."""
    index = Index(results)
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
