"""Runs documents of a run again, each in its place: an update in which nothing is new, and nothing gone."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from typing import TYPE_CHECKING, Any

from dqlab.cluster.transport import queue_calls
from dqlab.cluster.transport.progress import Progress
from dqlab.documents import labelled
from dqlab.errors import BadOption, RunError, RunExists
from dqlab.rules.ranges import Ranges
from dqlab.runs.lost import key_of, repeats
from dqlab.runs.submit.mapping import as_mapped
from dqlab.runs.submit.sampling import OtherInput, checked
from dqlab.runs.update.plan import UPDATED, UpdatePlan, plan_of

if TYPE_CHECKING:
    from dqlab.runs.run import Run


def redo(run: Run, fn: Callable[..., Any] | None, keys: Collection[Any] | None, documents: Iterable[Any] | None) -> int:
    """Run documents with these keys again, as `Run.redo` describes."""
    if isinstance(keys, str) or not (keys is None or isinstance(keys, Collection)):
        raise BadOption(option="keys", value=keys, problem="are keys of documents, in a list. Nothing was run.")
    progress = _settled(run)
    given = run._wait.elements if documents is None else as_mapped(labelled(documents))
    if given is None or not repeats(given):
        why = "is not known in this process" if given is None else "can be read only once"
        steps = "Pass the same documents, a list or dq.Documents, as documents="
        raise RunError(run=run.name, reason=f"its input {why}. {steps}. Nothing was run.")
    wanted, found = None if keys is None else set(keys), set[Any]()
    here = Ranges(span for shard in progress.shards for span in shard.covered)
    chosen = []
    try:
        for at, element in _placed(run, given, progress):
            key = key_of(element, at)
            if at in here and (wanted is None or key in wanted):
                chosen.append((at, element))
                found.add(key)
    except OtherInput:
        raise RunExists(run=run.name, difference="other documents") from None
    if len(missing := (wanted or set()) - found):
        named = ", ".join(map(repr, list(missing)[:3]))
        raise BadOption(option="keys", value=named, problem="has no result in this run. Nothing was run.")
    if not chosen:
        return 0
    code = run._new_code(fn) if fn is not None else run.handle.link.sync(queue_calls.newest_code(run.handle, run.id))
    assert run.updates is not None, "every run of a lab has it"
    run.updates(run, UpdatePlan.of_redo(run.name, chosen, progress.record.input.digest, given), code)
    return len(chosen)


def _placed(run: Run, given: Iterable[Any], progress: Progress) -> Iterator[tuple[int, Any]]:
    """Yield the documents of a run with their ordinals, or raise `OtherInput`."""
    record = progress.record
    if not record.input.digest.startswith(UPDATED):
        yield from ((at, element) for at, element, _ in checked(given, record.input, record.options))
        return
    plan = plan_of(run, given, progress, again="all", keep_gone=True)  # they no longer stand in the order of the input
    if not plan.only_again:
        raise OtherInput
    yield from plan.changed


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
