"""Other code for a run: that of a comparison, of an edit, or of a retry; and which code made how many results."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal, get_args

from dqlab.cluster.statistics.joins import done_by
from dqlab.cluster.transport.isolation import Executor, Isolation, isolation
from dqlab.cluster.transport.orders import Adopt, Code, LearnCode
from dqlab.cluster.transport.reports import Progress
from dqlab.cluster.transport.sealed import blob_hash, with_settings
from dqlab.errors import BadOption, RunError, RunExists
from dqlab.numbers import many
from dqlab.plan import called
from dqlab.rules.book import CodeRecord
from dqlab.runs.compare.comparison import Comparison
from dqlab.runs.update.plan import EQUAL, Again
from dqlab.stats import CodeStats
from dqlab.texts import one_line

if TYPE_CHECKING:
    from dqlab.runs.run import Run

Redo = Literal["all", "changed", "failed", "none"]


@dataclass(frozen=True, slots=True)
class Version(CodeStats):
    """A code version of a run, with how many results it made."""

    results: int = 0
    """Results of the run that this code made."""


def accept(run: Run, found: Comparison, redo: Redo) -> int:
    """Take the code of a comparison for a run, as `Run.accept` describes."""
    if not isinstance(found, Comparison):
        raise BadOption(option="comparison", value=found, problem="is what run.compare(fn) returns. Nothing changed.")
    if redo not in get_args(Redo):
        raise BadOption(option="redo", value=redo, problem="is 'all', 'changed', 'failed' or 'none'. Nothing changed.")
    progress = run._progress()
    if found.id != run.id:
        problem = f"is of run {found.run!r}, or of an earlier one of that name; this is {run.name!r}. Nothing changed."
        raise BadOption(option="comparison", value=f"<{found.versions}>", problem=problem)
    if len(found.pairs) != found.sample or found.sealed is None:
        raise BadOption(option="comparison", value=f"<{found.versions}>", problem="has not ended. Nothing changed.")
    if progress.record.input.digest != found.input:
        raise RunExists(run=run.name, difference="other documents than were compared", steps="Compare again.")
    if progress.record.codes[-1]["hash"] != found.newest:
        reason = "it has got other code since it was compared. Nothing changed; compare with what it has now."
        raise RunError(run=run.name, reason=reason)
    plan = None
    if redo in ("all", "changed") and run.updates is not None:  # first: it may refuse the input
        again: Again = "all" if redo == "all" else [pair.key for pair in found.changed]
        plan = run.plan(found.documents, again, keep_gone=True)  # what leaves the run is for an update to say
    take(run, found.sealed, progress)
    if plan is not None and run.updates is not None:
        run.updates(run, plan, found.sealed)
        return plan.again
    return run._send_through(found.sealed) if redo == "failed" else 0


def accept_code(run: Run, fn: Callable[..., Any]) -> None:
    """Declare that other code makes the same results, as `Run.accept_code` describes."""
    run._wait.raise_other_documents()
    code = run._new_code(fn)
    take(run, code._replace(code={**code.code, "note": EQUAL}), run._progress())


def take(run: Run, code: Code, progress: Progress) -> None:
    """Record other code as the run's newest, which the rest of a run that goes on runs too."""
    if progress.record.codes[-1]["hash"] != code.code["hash"]:
        order = LearnCode if progress.complete else Adopt
        run.handle.link.sync(run.handle.order(order(run.id, code)))


def versions(progress: Progress) -> list[Version]:
    """Return the code versions of a run, oldest first, with how many results each made."""
    codes = progress.record.codes
    made = done_by([shard.lane for shard in progress.shards], progress.record.lane) or (progress.counts.acked,)
    return [
        Version(code["name"], code["short"], n, code["cell"], note=code.get("note", ""), results=results)
        for n, (code, results) in enumerate(zip(codes, made, strict=True), 1)
    ]


def mixed(progress: Progress) -> str:
    """Return in words which versions made the results of a run, or "" if one did, or equal ones."""
    made: list[tuple[int, int]] = []
    for version in versions(progress):
        if version.note == EQUAL and made:
            made[-1] = made[-1][0], made[-1][1] + version.results
        else:
            made.append((version.version, version.results))
    several = [f"{many(results, 'result')} by v{number}" for number, results in made if results]
    return ", ".join(several) if len(several) > 1 else ""


def numbered(codes: Sequence[CodeRecord], number: object, option: str) -> CodeRecord:
    """Return the code version of a number, or raise `BadOption`."""
    if type(number) is not int or not 1 <= number <= len(codes):
        raise BadOption(option=option, value=number, problem=f"is the number of a version, 1 to {len(codes)}.")
    return codes[number - 1]


def source_diff(codes: Sequence[CodeRecord], one: int, other: int) -> str:
    """Return the lines that differ between the sources of two versions, and below them what else does."""
    before, after = numbered(codes, one, "one"), numbered(codes, other, "other")
    old, new = ((code["source"] or "").splitlines() for code in (before, after))
    lines = list(difflib.unified_diff(old, new, f"v{one}", f"v{other}", lineterm=""))
    parts, own = (before.get("parts") or {}, after.get("parts") or {}), (before["name"], after["name"])
    names = [name for name in {**parts[0], **parts[1]} if parts[0].get(name) != parts[1].get(name)]
    names = [name for name in names if name not in {f"code of {each}" for each in own} or not lines]
    return "\n".join([*lines, *(f"other: {name}" for name in names)])


_NOTE = 200
"""Most characters of a note: each version's record has it, in every answer to who waits."""


@dataclass(frozen=True, slots=True)
class Means:
    """The options of a retry that are not about which documents, nor about code; falsy where none is given."""

    memory: int | str | None = None
    timeout: float | str | None = None
    executor: Executor = "auto"
    note: str = ""

    def __post_init__(self) -> None:
        if not isinstance(self.note, str):
            raise BadOption(option="note", value=self.note, problem="is a text. Nothing was sent.")

    def __bool__(self) -> bool:
        return bool(self.note) or self._limits

    @property
    def _limits(self) -> bool:
        return self.executor != "auto" or self.memory is not None or self.timeout is not None

    @property
    def words(self) -> str:
        """The note, or else what is given."""
        given = {"memory": self.memory, "timeout": self.timeout, "executor": self.executor}
        said = ", ".join(f"{name}={value}" for name, value in given.items() if value not in (None, "auto"))
        return one_line(self.note or said, _NOTE)

    def applied(
        self,
        code: Code,
        newest: CodeRecord,
        process: dict[str, Any] | None,  # the run's own
        fn: Callable[..., Any] | None,
        known: Callable[[], Callable[..., Any]],  # returns the function that the run has now
    ) -> Code:
        """Return code as a version of its own, which runs with these means, or else those of the newest one."""
        before = Isolation.of(newest.get("process", process))
        limits = self._changed(before, fn, known)
        if fn is not None and limits is not None:
            isolation("process", called(fn))  # raises for a coroutine function
        own = None if limits is None else limits.record()
        record: CodeRecord = {**code.code, "note": self.words, "process": own}
        # Functions are told apart by their bytes, so those of this version differ from the same code with other means.
        blob = with_settings(code.blob, process=own, note=self.words)
        hash = blob_hash(blob)
        return Code(hash, blob, {**record, "blob": hash})

    def _changed(
        self, before: Isolation | None, fn: Callable[..., Any] | None, known: Callable[[], Callable[..., Any]]
    ) -> Isolation | None:
        if not self._limits:
            return before
        function = fn or (known() if before is None and self.executor != "thread" else len)
        asked = isolation(self.executor, called(function), timeout=self.timeout, memory=self.memory)
        if asked is None or before is None:
            return asked
        timeout = before.timeout if asked.timeout is None else asked.timeout
        return replace(before, timeout=timeout, memory=before.memory if asked.memory is None else asked.memory)
