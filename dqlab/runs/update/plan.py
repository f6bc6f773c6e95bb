"""What an input has that a run lacks, by key and version."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from dqlab.cluster.transport.progress import Progress
from dqlab.documents import Document, label_of
from dqlab.errors import RunError, UsageError
from dqlab.numbers import few_of, many
from dqlab.rules.ranges import Ranges
from dqlab.waits import shown

if TYPE_CHECKING:
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
    known, made = _known_of(run)
    dead = {str(letter.key): (letter.ordinal, letter.document.version) for letter in run.failures()}
    listed, chosen = set[str](), _chooser(again)
    new: list[Document] = []
    changed: list[tuple[int, Document]] = []
    kept, unknown, failed, repeated = Counter[str](), 0, 0, 0
    with shown("comparing the input with what the run has") as wait:
        for at, element in enumerate(elements):
            if type(element) is not Document:
                reason = (
                    f"element {at} is {type(element).__name__!r}, and only documents have keys and versions by which "
                    "an input can be compared: map dq.Documents. Nothing changed."
                )
                raise UsageError(reason=reason)
            key = str(element.key)
            if key in listed:
                reason = f"two documents have the key {key!r}: which of them the run has cannot be known."
                raise UsageError(reason=f"{reason} Nothing changed. Give them keys of their own, as with key=.")
            listed.add(key)
            before = dead.get(key) or known.get(key)  # the version that failed is the newer one
            if before is None:
                new.append(element)
            elif before[1] and element.version and before[1] != element.version:
                changed.append((before[0], element))
            elif chosen(key):
                changed.append((before[0], element))
                repeated += 1
            elif key in dead:
                failed += 1
            elif before[1] and element.version:
                kept[made[before[0]]] += 1
            else:
                unknown += 1
            if at % SAID_EVERY == 0:
                wait.step(f"{many(at, 'document')} so far")
    if not listed and known:
        reason = "the input has no documents, as where it was read before. Nothing changed. run.drop() drops the run."
        raise RunError(run=run.name, reason=reason)
    gone = Ranges((at, at + 1) for key, (at, _) in (dead | known).items() if key not in listed)
    newest = progress.record.codes[-1]["short"]
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


def _chooser(again: Again) -> Callable[[str], object]:
    if again == "all":
        return lambda key: True
    return again if callable(again) else {str(key) for key in again}.__contains__


def _known_of(run: Run) -> tuple[dict[str, tuple[int, str]], dict[int, str]]:
    """Return ordinal and version of each result by its key, and the code that made it by ordinal."""
    known: dict[str, tuple[int, str]] = {}
    made: dict[int, str] = {}
    twice: list[str] = []
    for ordinal, key, version, code in run.results_now().identities():
        if key is None:
            reason = "its documents have no keys, so an input cannot be compared with them. Nothing changed."
            raise RunError(run=run.name, reason=f"{reason} Map dq.Documents under another name.")
        if (key := str(label_of(key))) in known:
            twice.append(key)
        known[key], made[ordinal] = (ordinal, version), code
    if twice:
        named = few_of([repr(key) for key in twice[:NAMED]])
        reason = f"it has several documents with the same key, such as {named}. Nothing changed."
        raise RunError(run=run.name, reason=reason)
    return known, made
