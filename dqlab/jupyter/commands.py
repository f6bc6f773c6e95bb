"""The commands: each makes one or two public calls of Python, and prints a line about them."""

from __future__ import annotations

import time
import warnings
from argparse import Namespace
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, replace
from html import escape
from typing import TYPE_CHECKING, Any

from traitlets import TraitError

from dqlab.checkup.examine import TIMEOUT
from dqlab.datasets.sinks import sink_named
from dqlab.documents import Documents
from dqlab.documents.listing import summarize
from dqlab.errors import DqlabError, RunExists, UsageError
from dqlab.errors.rendering import StoppedWaiting
from dqlab.hpc.clusters import give_up
from dqlab.hpc.recipes import Recipe, spoken
from dqlab.hpc.systems import KINDS
from dqlab.jupyter.grammar import COMMANDS
from dqlab.jupyter.line import Line
from dqlab.jupyter.messages import (
    Said,
    attached,
    end,
    find_letter,
    in_words_of_a_line,
    name_taken,
    standing,
    submitted,
    warned,
)
from dqlab.jupyter.prompts import Choice, asked, hint, offer, sample_for
from dqlab.lab import Lab, describe_workers
from dqlab.live.display import conclude, ended_in_view, is_watched
from dqlab.live.layout import first_differences
from dqlab.numbers import many
from dqlab.printed import Logs
from dqlab.rules.retry import Retry
from dqlab.runs.code.sealing import explain
from dqlab.runs.compare.accepting import Means
from dqlab.runs.compare.comparing import compare as compared
from dqlab.runs.compare.comparison import Comparison
from dqlab.runs.failures import Failures
from dqlab.runs.pool import QueuePool
from dqlab.runs.reading.results import Results
from dqlab.runs.run import RowsStay, Run
from dqlab.runs.session import Durability
from dqlab.runs.submit.elements import repeats
from dqlab.runs.update.plan import UpdatePlan
from dqlab.stats import Counts, RunList, Snapshot
from dqlab.texts import one_line
from dqlab.waits import shown

if TYPE_CHECKING:
    from dqlab.datasets.table import RunTable  # it loads pyarrow

COMPARING = 20.0
"""Seconds that a cell waits for the comparison of its documents with those of a run."""
_AS_WRITTEN = (
    *("name", "on_existing", "executor", "batch", "timeout", "memory", "max_messages_per_process", "gpus"),
    *("concurrency", "budget", "weight", "priority", "delay", "at", "stop_if", "logs"),
)
"""Options of `submit` that `map` takes as they are."""


def connect(line: Line, options: Namespace) -> Lab:
    """Connect to a cluster, or start one."""
    target = _batch_system(options) or line.target(options.target)
    if isinstance(target, Lab) and not target.closed:
        lab = target
        line.session.use(lab)
    else:
        given = {"n": options.n, "store": options.store, "name": options.name}
        lab, before = line.session.connect(target, options.timeout, **given)
        if before is not None:
            line.say(end(before))
    if options.out is not None:
        kept = options.store or lab.store
        where = f", queues are kept in {kept}" if kept is not None else ""
        at = lab.session.link.address.removeprefix("tcp://")  # a notebook would turn that into a link to nowhere
        line.say(f"{lab.name}: {describe_workers(lab, lab.stats().workers)} at {at}{where}; dashboard {lab.panel()}")
    return lab


def documents(line: Line, options: Namespace) -> Documents:
    """Show documents."""
    value = line.documents(options.over, "EXPR")
    listed = value if isinstance(value, Documents) else Documents(value)
    if options.out is not None and listed.filtered and (none := summarize(listed).none):  # nothing else shows it
        line.say(none)
    return listed


def submit(line: Line, options: Namespace) -> Run:
    """Map a function over documents."""
    function = line.function(options.fn)
    if options.out is not None and options.out == options.fn.partition(".")[0]:
        raise UsageError(
            reason=f"-o {options.out} would replace the function {options.fn} by its run, and no line could "
            f"retry with it. Store the run under another name: -o {options.out}_run. Nothing was submitted."
        )
    documents = line.documents(options.over)
    retry = Retry(options.retries) if options.retries is not None else None
    pool = line.lab.queue(options.queue or line.queue)
    with in_words_of_a_line(options.fn, defined=options.defined):
        with warned() as notices:
            run = _mapped(
                line,
                options,
                pool,
                function,
                documents,
                **{name: getattr(options, name) for name in _AS_WRITTEN},
                retry=retry,
                limit=dict(options.limit) if options.limit else None,
                cap=dict(options.cap) if options.cap else None,
                rehearse=sample_for(options.rehearse, documents, line.lab.stats, function, yes=options.yes),
                sink=None if options.sink is None else sink_named(options.sink),
                cell=line.cell,
            )
        if options.out is not None:
            line.store(options.out, run)  # before errors below, so that the variable is the run that they are about
        if run.doubt is not None:
            return run
        line.session.submitted(line.lab, run)
        retries = options.on_existing == "retry-failed"
        line.say(submitted(run, documents, options.over, function=options.fn, retries=retries))
        if options.on_existing == "update" and run.updated is not None:
            line.say(str(run.updated))
        for notice in notices:
            line.say(notice)
        if run.waits_for_go:
            if asked(run, options.rate, line.say, yes=options.yes):
                line.session.show(run)
            line.session.said(run)  # drawn below, it would stand as one that is done
            if not options.yes:
                return run
        elif not retries and run.submitter is not None and not run.submitter.verifies:
            for how in hint(options.rehearse, documents, yes=options.yes):
                line.say(how)
        if options.watch:
            line.session.show(run)
        return _waited(line, run, stored=options.out is not None) if options.wait else run


def _mapped(line: Line, options: Namespace, pool: QueuePool, function: Any, documents: Any, **more: Any) -> Run:
    """Map, or where a run of that name has other code or documents, show it with the next steps instead of an error."""
    try:
        run = pool.map(function, documents, **more)
        _raise_other_documents(run)
        return run
    except RunExists as error:
        lab = line.lab
        found = lab.attach(error.run)
        plan = _planned(found, documents, function)
        if not error.other_code:
            if plan is None:
                raise
            if plan.empty:  # the documents of the last update, in another order than they were put
                line.say(str(plan))
                return found
        counts = Counts(**found.counts)
        taken = name_taken(error, options.fn, defined=options.defined, dead=counts.dead, left=counts.left)
        run = found.undecided(function, taken)

        def start_over() -> Run:
            new = pool.map(function, documents, **(more | {"on_existing": "new"}))
            line.session.submitted(lab, new)
            line.replace(run, new)
            return new

        def keep() -> Run:
            kept = lab.attach(run.name)
            line.replace(run, kept)
            return kept

        def compare() -> Comparison:
            # With the documents of the cell: this process may not have mapped them before.
            return found.compare(function, documents=documents)

        def update() -> None:
            assert plan is not None, "as its button is shown"
            run.update(plan, function)
            line.session.submitted(lab, run)

        line.session.submitted(lab, run)
        plan = None if plan is None or plan.empty else plan
        if options.out is not None:
            line.store(options.out, run)  # before the view is drawn, which names the variable
        edited = compare if error.other_code else None
        choice = Choice(run, function, start_over, keep, edited, update if plan is not None else None)
        offer(choice, list(choice.sentences(error, options.fn, defined=options.defined, plan=plan)), line.say)
        if options.watch:
            line.session.show(run)
        return run


def _raise_other_documents(run: Run) -> None:
    """Raise `RunExists` here, rather than at `wait`, if a run that has ended has other documents than were mapped."""
    submitter = run.submitter
    if submitter is None or not submitter.verifies or not run._progress().sealed:
        return
    with shown("comparing the input with what the run has"):
        submitter.join(COMPARING)
    if isinstance(submitter.error, RunExists):
        raise submitter.error


def _planned(run: Run, documents: Any, function: Callable[..., Any]) -> UpdatePlan | None:
    """Return what an update of a run would do, or None where it can do nothing, or comparing takes too long."""
    if not repeats(documents) or run._progress().rehearsed:
        return None
    until = time.monotonic() + COMPARING

    def listed() -> Iterator[Any]:
        for document in documents:
            if time.monotonic() > until:
                raise UsageError(reason="the listing takes too long")
            yield document

    try:
        plan = run.plan(listed(), fn=function)
    except (DqlabError, OSError):  # it has not ended, or its documents have no keys: the other choices stand
        return None
    return replace(plan, input=documents)


def attach(line: Line, options: Namespace) -> Run:
    """Return an existing run, with the results it has even where a cell has other code for it."""
    line.session.keep(options.run)
    run = line.lab.attach(options.run)
    if options.out is not None:  # nothing else is shown then
        line.say(attached(run, options.out))
    return run


def status(line: Line, _: Namespace) -> Snapshot | None:
    """Show all queues and runs."""
    snapshot = line.lab.stats()
    if held := _held(line, {queue.name for queue in snapshot.queues}):
        line.say(f"queues of the store are open elsewhere: {held}")
        if not snapshot.queues:
            return None
    if not snapshot.workers:  # nothing else removes the last reports of queues that are gone
        kept = f"; durable ones are in {line.lab.store}" if line.lab.store is not None else ""
        line.say(f"no worker is left, and what transient queues held is lost{kept}. Begin again: %dq connect -o lab")
        return replace(snapshot, queues=(), runs=(), queues_total=0, runs_total=0)
    if snapshot.queues and not held:
        _say_resting(line, snapshot)
    return snapshot


def wait(line: Line, options: Namespace) -> Run:
    """Wait until a run is done."""
    run = line.run(options.run)
    with in_words_of_a_line():
        return _waited(line, run, options.timeout, stored=options.out is not None)


def results(line: Line, options: Namespace) -> Results | RunTable:
    """Wait for a run and return its values, or with ``--table`` the table of those that there are now."""
    if options.table:
        return line.run(options.run).table()
    with in_words_of_a_line():
        return line.run(options.run).results(errors=options.errors)


def failed(line: Line, options: Namespace) -> Failures:
    """Return the dead documents of a run."""
    run = line.run(options.run)
    failures = run.failures()
    if options.run is None and not failures:
        line.say(f"{run.name}, the last run, has no dead documents; %dq status shows the others")
    return failures


def logs(line: Line, options: Namespace) -> Logs:
    """Return what a document has printed, and say why where that is nothing."""
    found = line.run(options.run).logs(options.key, options.since)
    if not found and options.since is None:
        none = "was kept: output is of what failed, was slow, or was submitted with --logs all"
        line.say(f"nothing that {one_line(options.key)} printed {none}")
    return found


def retry(line: Line, options: Namespace) -> int:
    """Retry dead documents."""
    run = line.run(options.run)
    name = options.fn or run.versions[-1].name
    defined = options.fn is not None or callable(line.names.get(name))
    means = Means(options.memory, options.timeout, options.executor, options.note or "")
    if options.rest and not (defined or means):
        raise UsageError(reason=f"--rest gives the run new code, and no {name} is defined here. Nothing was sent.")
    function = line.function(name) if defined else None
    left = Counts(**run.counts).left
    count = run.send_again(function, options.where, rest=options.rest, means=means)
    rest = ""
    if function is not None and left:
        gives = "the rest of the run has" if options.rest else "--rest gives documents that wait"
        rest = f"; {gives} this code too"
    code = f"{name} as it is defined now" if defined else f"the code it had; no {name} is defined here"
    code += f" ({means.words})" if means else ""
    if not count and (none := run.why_none(options.where)):
        line.say(none)
        if options.rest and rest:
            line.say(f"{run.name}: {rest.removeprefix('; ')}")
        return Said(count)
    line.say(f"{run.name}: {many(count, 'document')} sent again with {code}{rest}")
    return Said(count)


def compare(line: Line, options: Namespace) -> Comparison:
    """Compare other code with that of a run, and show the first differences while the sample runs."""
    run, function = line.run(options.run), line.function(options.fn)
    over, equal, score = (
        None if word is None else evaluate(word, option)
        for word, option, evaluate in (
            (options.over, "--over", line.documents),
            (options.equal, "--equal", line.evaluate),
            (options.score, "--score", line.evaluate),
        )
    )
    told = 0

    def tell(found: Comparison) -> None:
        nonlocal told
        for difference in (lines := first_differences(found, told)):
            line.say(difference)
        told += len(lines)

    asked = {"sample": options.sample, "equal": equal, "score": score, "noise": options.noise, "elements": over}
    found = compared(run, function, **asked, seen=tell)
    if options.out is not None:
        line.say(found.summary)
    return found


def update(line: Line, options: Namespace) -> Run | UpdatePlan | None:
    """Bring a run up to date with its input as it is now, or say what that would do."""
    run = line.run(options.run)
    if options.over is not None:
        documents = line.evaluate(options.over, "--over")
    elif (mapped := run._wait.elements) is not None and repeats(mapped):
        documents = mapped
    else:
        why = "is not known in this kernel" if mapped is None else "can be read only once"
        raise UsageError(reason=f"the input of {run.name} {why}. Name its documents: --over EXPR. Nothing changed.")
    name = options.fn or run.versions[-1].name
    function = line.function(name) if options.fn is not None or callable(line.names.get(name)) else None
    how = {"trust": options.trust, "keep_gone": options.keep_gone}
    if options.plan:
        plan = run.plan(documents, fn=function, **how)
        line.say(str(plan))
        return plan if options.out is not None else None
    run.update(documents, function, **how)
    line.session.submitted(line.lab, run)
    line.say(str(run.updated))
    return run


def pause(line: Line, options: Namespace) -> Run | QueuePool:
    """Pause a run or a queue."""
    held = line.run_or_queue(options.run)
    if isinstance(held, Run) and held.stats().finished:
        line.said(held, f"{held.name} is over, so there is nothing to pause; to pause another one, name it")
        return held
    held.pause()
    line.said(held, f"{_called(held)} is paused")
    return held


def resume(line: Line, options: Namespace) -> Run | QueuePool:
    """Resume a run or a queue."""
    held = line.run_or_queue(options.run)
    held.resume()
    line.said(held, f"{_called(held)} goes on")
    return held


def cancel(line: Line, options: Namespace) -> int | None:
    """Cancel documents without a result, or without -y print how many that would be."""
    run = line.run(options.run)
    if not options.yes:
        left = many(run.stats().counts.left, "document")
        line.say(f"{run.name}: {left} without a result would be cancelled; results stay. To do it: add -y")
        return None
    count = run.cancel()
    line.say(f"{run.name}: {many(count, 'document')} cancelled")
    return Said(count)


def runs(line: Line, _: Namespace) -> RunList | None:
    """List all runs, including those of other processes."""
    found = line.lab.all_runs()  # warns of queues that are open elsewhere
    if found or not (held := _held(line, {pool.name for pool in line.lab.queues})):
        return found
    # That warning is not enough: Python shows it once for each place, and this line is typed again and again.
    line.say(f"no runs of this lab; queues of the store are open elsewhere: {held}")
    return None


def drop(line: Line, options: Namespace) -> None:
    """Delete a run, or without -y print what that would delete."""
    run = line.run(options.run)
    counts = run.stats().counts
    held = f"{many(counts.acked, 'result')} and {many(counts.dead, 'failure')}"
    left = f"; {many(counts.left, 'document')} without a result would be cancelled" if counts.left else ""
    sink = run.sink
    rows = "" if sink is None else f"; its rows in {sink} too" if options.data else f"; its rows stay in {sink}"
    if not options.yes:
        more = "" if sink is None or options.data else ", and --data to delete those too"
        line.say(f"{run.name}: {held} would be deleted permanently{left}{rows}. To do it: add -y{more}")
        return
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RowsStay)  # the line below reports it
        # Attached by name: `run` may be a cell's run with other code, which is not what is dropped.
        line.lab.attach(run.name).drop(data=options.data)
    kept = line.lab.session.pools.get(run.queue)
    durable = kept is not None and kept.durability is Durability.DURABLE
    space = f". Its disk space comes back with: %dq compact {run.queue}" if durable else ""
    line.say(f"{run.name} is dropped: {held} deleted{rows}{space}")


@dataclass(frozen=True)
class PanelLink:
    """An address that a notebook shows as a link, and that JupyterLab opens as a tab of the service."""

    title: str
    url: str
    service: str = ""

    def __repr__(self) -> str:
        return self.url

    def _repr_html_(self) -> str:
        url = escape(self.url, quote=True)
        marks = f'data-dq-panel="{escape(self.title)}" data-dq-service="{escape(self.service)}"'
        return f'<a href="{url}" target="_blank" rel="noopener" {marks}>{url}</a>'


def queues(line: Line, _: Namespace) -> Snapshot:
    """List the queues of the cluster, and those that are only in the store."""
    snapshot = line.lab.stats()
    _say_resting(line, snapshot)
    return replace(snapshot, runs=(), attention=(), attention_total=0)


def drain(line: Line, options: Namespace) -> QueuePool:
    """Stop accepting messages in a queue."""
    pool = line.pool(options.queue)
    pool.drain()
    left = Counts(**pool.counts()).left
    line.said(pool, f"queue {pool.name} takes no more; {many(left, 'message')} left. %dq resume {pool.name} ends that")
    return pool


def scale(line: Line, options: Namespace) -> QueuePool:
    """Change the number of consumers."""
    pool = line.pool(options.queue)
    pool.scale(options.n)
    amount = "a consumer on each worker" if options.n == "auto" else many(options.n, "consumer")
    line.said(pool, f"queue {pool.name}: {amount} from now on")
    return pool


def purge(line: Line, options: Namespace) -> int | None:
    """Purge messages, or without -y print how many that would delete."""
    pool = line.pool(options.queue)
    if not options.yes:
        amount = many(pool.counts()[options.state], f"{options.state} message")
        line.say(f"queue {pool.name}: {amount} would be deleted permanently. To do it: add -y")
        return None
    count = pool.purge(options.state)
    line.say(f"queue {pool.name}: {many(count, f'{options.state} message')} deleted")
    return Said(count)


def gc(line: Line, _: Namespace) -> None:
    """Compact every queue of the store."""
    compacted = line.lab.gc()
    for name, gave in compacted.items():
        line.say(f"{name}: {gave}")
    if not compacted:
        line.say("no queue is durable here; %dq connect --store runs/ makes queues that are")


def config(line: Line, options: Namespace) -> None:
    """Show or change the defaults of lines."""
    known = line.settings.class_own_traits(config=True)
    changes = [setting.partition("=") for setting in options.settings]
    for name, equals, value in changes:
        if not equals or name not in known:
            names = ", ".join(f"{name}=..." for name in known)
            raise UsageError(
                reason=f"%dq config does not understand {name + equals + value!r}. There are: {names}. Nothing changed."
            )
    for name, _, value in changes:
        try:
            setattr(line.settings, name, value)
        except TraitError as error:
            raise UsageError(reason=f"{name}={value}: {error}. Nothing changed.") from None
    for name in known:
        line.say(f"{name} = {getattr(line.settings, name)}")


def close(line: Line, _: Namespace) -> None:
    """Close the lab, or where none is open cancel the jobs that `connect` was waiting for."""
    try:
        lab = line.lab
    except UsageError:
        given_up = give_up()
        if not given_up:
            raise
        line.say(f"{many(given_up, 'job')} cancelled; no lab had started on them")
    else:
        line.say(end(lab))


_CALLS: dict[str, Callable[[Line, Namespace], Any]] = {
    "watch": lambda line, options: line.session.show(line.run(options.run)),
    "show": lambda line, options: find_letter(line.run(options.run).failures(), options.letter),
    "slowest": lambda line, options: line.run(options.run).slowest(options.n),
    "spend": lambda line, options: line.run(options.run).spend(),
    "debug": lambda line, options: line.run(options.run).debug(options.key),
    "history": lambda line, o: (line.lab if o.queue is None else line.pool(o.queue)).history(o.span),
    "open": lambda line, o: PanelLink(o.panel, line.lab.panel(o.panel), line.lab.service),
    "compact": lambda line, options: line.pool(options.queue).compact(),
    "doctor": lambda line, options: line.lab.doctor(options.timeout or TIMEOUT),
    "explain": lambda line, options: explain(line.function(options.fn)),
}
"""Commands that are one call."""
ACTIONS: dict[str, Callable[[Line, Namespace], Any]] = {
    name: _CALLS[name] if name in _CALLS else globals()[name] for name in COMMANDS
}
"""Every command by its name."""


def _batch_system(options: Namespace) -> Recipe | None:
    """Return the recipe of a cluster on a batch system, if the line asks for one."""
    asked = {kind: said for kind in KINDS if (said := getattr(options, kind)) is not None}
    if not asked and options.jobs is not None:
        raise UsageError(reason="--jobs goes with --slurm or --pbs. Nothing was started.")
    if not asked:
        return None
    if len(asked) > 1 or options.target is not None:
        both = " and ".join([*(f"--{kind}" for kind in asked), *([options.target] if options.target else [])])
        raise UsageError(reason=f"{both}: a line connects to one cluster. Leave one of them out. Nothing was started.")
    ((kind, said),) = asked.items()
    return spoken(kind, said, options.jobs)


def _waited(line: Line, run: Run, timeout: float | str | None = None, *, stored: bool) -> Run:
    """Wait, and print how the run ended unless a live view shows it already."""
    watched = is_watched(run)
    try:
        run.until_over(timeout)
    except KeyboardInterrupt:
        raise StoppedWaiting(f"no longer waiting for {run.name}; {standing(run)}") from None
    if (watched or stored) and not ended_in_view.holds(run):
        line.say(conclude(run))
    return run


def _held(line: Line, opened: Collection[str]) -> str:
    """Return a sentence on the other lab that has queues of the store open, or "" where all of them are open here."""
    held = line.lab.held_elsewhere
    return held if held and not set(line.lab.queue_names()).issubset(opened) else ""


def _say_resting(line: Line, snapshot: Snapshot) -> None:
    """Name the queues that are only in the store, since a snapshot has only open ones."""
    known = {queue.name for queue in snapshot.queues}
    resting = [name for name in line.lab.queue_names() if name not in known]
    if resting and snapshot.queues_total == len(known):
        line.say(f"in the store {line.lab.store}, and not open: {', '.join(resting)}; %dq runs lists their runs too")


def _called(held: Run | QueuePool) -> str:
    return held.name if isinstance(held, Run) else f"queue {held.name}"
