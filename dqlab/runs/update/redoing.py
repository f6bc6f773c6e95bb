"""Runs documents of a run again, each in its place: an update in which nothing is new, and nothing gone."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from typing import TYPE_CHECKING, Any

from dqlab.cluster.transport import queue_calls
from dqlab.cluster.transport.reports import Progress
from dqlab.errors import BadOption, RunError
from dqlab.rules.ranges import Ranges
from dqlab.runs.submit.elements import key_of
from dqlab.runs.update.plan import UpdatePlan, input_of, placed

if TYPE_CHECKING:
    from dqlab.runs.run import Run


def redo(
    run: Run,
    fn: Callable[..., Any] | None,
    keys: Collection[Any] | None,
    where: str | None,
    documents: Iterable[Any] | None,
) -> int:
    """Run documents with these keys, or whose results meet a condition, again, as `Run.redo` describes."""
    if where is not None:
        if keys is not None:
            raise BadOption(option="where", value=where, problem="or keys=, which names them too. Nothing was run.")
        keys = run.table().query(f"select _key from results where {where}")["_key"].tolist()
    if isinstance(keys, str) or not (keys is None or isinstance(keys, Collection)):
        raise BadOption(option="keys", value=keys, problem="are keys of documents, in a list. Nothing was run.")
    progress = _settled(run)
    given = input_of(run, documents)
    wanted, found = None if keys is None else set(keys), set[Any]()
    here = Ranges(span for shard in progress.shards for span in shard.covered)
    chosen = []
    for at, element, _ in placed(run, given, progress):
        key = key_of(element, at)
        if at in here and (wanted is None or key in wanted):
            chosen.append((at, element))
            found.add(key)
    if len(missing := (wanted or set()) - found):
        named = ", ".join(map(repr, list(missing)[:3]))
        raise BadOption(option="keys", value=named, problem="has no result in this run. Nothing was run.")
    if not chosen:
        return 0
    code = run._new_code(fn) if fn is not None else run.handle.link.sync(queue_calls.newest_code(run.handle, run.id))
    assert run.updates is not None, "every run of a lab has it"
    run.updates(run, UpdatePlan.of_redo(run.name, chosen, progress.record.input.digest, given), code)
    return len(chosen)


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
