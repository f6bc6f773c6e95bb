"""What must be true of every round: each check yields a sentence for each thing that is wrong."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from itertools import pairwise

from dqlab.rules.states import State
from tests.chaos.causes import dropped_by_closing, is_fair, went_with_town
from tests.chaos.functions import answer, told, trait_of
from tests.chaos.history import History, PutsEnd
from tests.chaos.plan import Load
from tests.chaos.truth import Execution

__all__ = ["CHECKS", "violations"]

NOTICED = 2.0
"""Seconds within which it is noted that something was taken from its place."""
HELD = 10.0
"""Seconds that a consumer may still have in hand what it was given by a shard before that was taken."""
SPARE_DESCRIPTORS = 16
"""Descriptors that a client may keep for good: its loops' own, and connections that wait to be closed."""

Check = Callable[[History], Iterator[str]]
CHECKS: list[Check] = []


def violations(history: History) -> list[str]:
    """Return all that is wrong, each with the name of the check that found it."""
    return [f"{check.__name__}: {what}" for check in CHECKS for what in check(history)]


def _check(check: Check) -> Check:
    CHECKS.append(check)
    return check


@_check
def every_confirmed_message_ends_exactly_once(history: History) -> Iterator[str]:
    """As a result or as a dead letter; what a transient queue had goes only with its queue or its town."""
    for run in history.runs:
        ends = Counter(ordinal for ordinal, _ in run.results) + Counter(run.dead)
        yield from _ends(run.load.run, ends, set(range(run.load.documents)), run.load.documents)
        if sorted(run.stream) != sorted(run.results):
            yield f"{run.load.run}: results by sequence and by stream are not the same"
        if run.rows is not None and sorted(run.rows) != sorted(run.results):
            yield f"{run.load.run}: its sink has {len(run.rows)} rows, which are not its {len(run.results)} results"
    for puts in history.puts:
        ends = Counter(number for number, _ in puts.results) + Counter(puts.dead)
        safe = not went_with_town(history, puts.queue.name)
        known = [one for one in history.confirmed if one.source == puts.source and safe]
        known = [one for one in known if not dropped_by_closing(history, one)]
        yield from _ends(puts.source, ends, {n for one in known for n in range(one.lo, one.hi)}, puts.given)


def _ends(source: str, ends: Counter[int], wanted: set[int], given: int) -> Iterator[str]:
    for number in sorted(wanted - ends.keys())[:5]:
        yield f"{source}:{number} was confirmed, and has no end ({len(wanted - ends.keys())} have none)"
    for number, times in ends.items():
        if times > 1:
            yield f"{source}:{number} has ended {times} times"
        if not 0 <= number < given:
            yield f"{source}:{number} has ended, and was never put"


@_check
def every_result_was_executed_and_is_right(history: History) -> Iterator[str]:
    """A result is what the function returned in a call that really took place."""
    well = {call.key for call in history.executions if call.well}
    results = [(run.load, ordinal, value) for run in history.runs for ordinal, value in run.results]
    results += [(Load(one.source, "", "", 0, 0.0, kind=one.kind), *got) for one in history.cells for got in one.got]
    results += [(Load(puts.source, "", "", 0, 0.0), *result) for puts in history.puts for result in puts.results]
    for load, number, value in results:
        source = load.run
        if value != told(answer(source, number, load.kind)):
            yield f"{source}:{number} has the result {value}"
        if f"{source}:{number}" not in well:
            yield f"{source}:{number} has a result, and no function returned one"


@_check
def only_what_is_broken_is_dead(history: History) -> Iterator[str]:
    """A message that loses its worker is delivered again; only functions that raise make dead letters here."""
    for run in history.runs:
        for ordinal in run.dead:
            if trait_of(ordinal) != "broken":
                yield f"{run.load.run}:{ordinal} is dead, and it is {trait_of(ordinal)}"
    for puts in history.puts:
        for number in puts.dead:
            yield f"{puts.source}:{number} is dead"


@_check
def no_message_runs_twice_at_a_time(history: History) -> Iterator[str]:
    """Unless its shard or its consumer was taken away meanwhile: a new shard knows no leases."""
    by_key: dict[str, list[Execution]] = defaultdict(list)
    for call in history.executions:
        by_key[call.key].append(call)
    queues = {run.load.run: run.load.queue for run in history.runs}
    queues |= {puts.source: puts.queue.name for puts in history.puts}
    for key, calls in by_key.items():
        calls.sort(key=lambda call: call.began)
        for earlier, later in pairwise(calls):
            over = earlier.ended is not None and earlier.ended <= later.began
            if not over and not _taken(history, queues[key.split(":")[0]], earlier, later):
                taken = [f"{one.what} of {one.queue} at {one.at:.2f} by {one.by}" for one in history.takings[-9:]]
                yield (
                    f"{key} ran in process {earlier.pid}, and in {later.pid} at the same time: from "
                    f"{earlier.began:.2f} to {earlier.ended}, and from {later.began:.2f}; "
                    f"taken: {', '.join(taken) or 'nothing'}"
                )


def _taken(history: History, queue: str, earlier: Execution, later: Execution) -> bool:
    """Whether the shard or the consumer of a call was taken before a later call of the same message."""
    for one in history.takings:
        concerns = (
            one.what == "town"
            or (one.what == "shard" and one.queue == queue)
            or (one.what == "consumer" and one.pid in (earlier.pid, earlier.parent))
        )
        if concerns and earlier.began - HELD <= one.at <= later.began + NOTICED:
            return True
    return False


@_check
def nothing_ran_that_was_not_put(history: History) -> Iterator[str]:
    """Functions see what was given to them, and nothing else."""
    given = {run.load.run: run.load.documents for run in history.runs}
    given |= {puts.source: puts.given for puts in history.puts}
    for key in {call.key for call in history.executions}:
        source, number = key.split(":")
        if int(number) >= given.get(source, 0):
            yield f"{key} ran, and was never put"


@_check
def counters_agree(history: History) -> Iterator[str]:
    """What a run, a queue and the statistics count is what there is."""
    by_queue: dict[str, Counter[int]] = defaultdict(Counter)
    for run in history.runs:
        if not run.counts:
            yield f"{run.load.run} has no counts"
            continue
        expected = [0] * len(State)
        expected[State.ACKED], expected[State.DEAD] = len(run.results), len(run.dead)
        if run.counts != expected:
            yield f"{run.load.run} counts {run.counts}, and there are {expected}"
        if run.shown != run.counts:
            yield f"{run.load.run} counts {run.counts}, and the statistics say {run.shown or 'nothing of it'}"
        by_queue[run.load.queue].update(dict(enumerate(run.counts)))
    for puts in history.puts:
        if not puts.counts:
            yield f"queue {puts.queue.name} has no counts"
            continue
        acked = len(puts.results) + _went_with_cells(history, puts)
        by_queue[puts.queue.name].update({int(State.ACKED): acked, int(State.DEAD): len(puts.dead)})
        there = [by_queue[puts.queue.name][state] for state in range(len(State))]
        if puts.counts != there:
            yield f"queue {puts.queue.name} counts {puts.counts}, and there are {there}"
        if puts.shown != puts.counts:
            shown = puts.shown or "nothing of it"
            yield f"queue {puts.queue.name} counts {puts.counts}, and the statistics say {shown}"


def _went_with_cells(history: History, puts: PutsEnd) -> int:
    """Return how many messages were done whose results went with the cell that had submitted them."""
    well = {call.key for call in history.executions if call.well}
    kept = {number for number, _ in puts.results}
    passing = {number for lo, hi in puts.passing for number in range(lo, hi)}
    return sum(f"{puts.source}:{number}" in well for number in passing - kept)


@_check
def cells_that_were_interrupted_get_all_when_they_are_run_again(history: History) -> Iterator[str]:
    """Each number once, and none is missing but of what fails for good."""
    for cell in history.cells:
        got = Counter(number for number, _ in cell.got)
        fails = {number for number in range(cell.hi) if trait_of(number) == "broken" and cell.what != "submit"}
        given = set(range(cell.lo, cell.hi))
        what = f"the cell that asks for {cell.what} of {cell.source} from {cell.lo} to {cell.hi}"
        if cell.what not in ("map", "wait") and (missing := given - fails - got.keys()):
            yield f"{what} got nothing for {sorted(missing)[:5]} ({len(missing)} are missing)"
        if double := [number for number, times in got.items() if times > 1]:
            yield f"{what} got {double[:5]} more than once"
        if got.keys() - given:
            yield f"{what} got {sorted(got.keys() - given)[:5]}, which it has not asked for"


@_check
def nothing_is_left_behind(history: History) -> Iterator[str]:
    """Processes, keys on the scheduler, transient logs, threads and descriptors of clients, damaged files."""
    left = history.left
    yield from (f"process {one} still runs" for one in left.processes)
    yield from (f"key {key} is still on the scheduler" for key in left.keys)
    yield from (f"logs of transient queues are still in {place}" for place in left.logs)
    yield from (f"a client still has threads: {names}" for names in left.threads)
    if left.descriptors > SPARE_DESCRIPTORS:
        yield f"a client has {left.descriptors} descriptors more than before it connected"
    yield from (f"the store is not whole: {finding}" for finding in left.findings)


@_check
def errors_are_of_the_kinds_that_are_promised(history: History) -> Iterator[str]:
    """A call that cannot be served raises an error that says what to do."""
    for one in history.refused:
        if not is_fair(history, one):
            since = [one.at - unrest.ended for unrest in history.unrest if unrest.began <= one.at]
            when = f"{max(0.0, min(since)):.0f} s after the last act that hurt anybody" if since else "before any act"
            yield f"{one.what} answered {one.name}: {one.text}, {when}"


@_check
def the_harness_itself_has_not_failed(history: History) -> Iterator[str]:
    """The witness that records what really happened does so until the end."""
    yield from history.faults
