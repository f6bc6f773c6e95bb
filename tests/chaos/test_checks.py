"""The checks themselves: each finds what it is there for, in a history into which that was planted."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from dqlab.rules.states import State
from tests.chaos.causes import HEARD, LIMIT
from tests.chaos.checks import CHECKS, violations
from tests.chaos.functions import answer, told, trait_of
from tests.chaos.history import CellEnd, Closing, History, PutsEnd, Refusal, RunEnd, Unrest
from tests.chaos.plan import Load, QueuePlan
from tests.chaos.truth import REGISTRY, Confirmed, Execution, Taking

MAIN, PASSING = QueuePlan("main"), QueuePlan("passing", durable=False)
DOCUMENTS, GIVEN, WORKER = 20, 4, 71
HOST = 72
"""The process that held the shard of the transient queue."""


def _counts(acked: int, dead: int = 0) -> list[int]:
    counts = [0] * len(State)
    counts[State.ACKED], counts[State.DEAD] = acked, dead
    return counts


def value_of(source: str, number: int) -> str:
    """Return what a client passes on of the right value."""
    return told(answer(source, number))


def good_history() -> History:
    """A round in which nothing is wrong: a run with a dead document, puts, and a transient run whose worker died."""
    alive = [n for n in range(DOCUMENTS) if trait_of(n) != "broken"]
    results = [(n, value_of("run", n)) for n in alive]
    run = RunEnd(Load("run", "main", "anna", DOCUMENTS, 0.0), results, list(results))
    run.dead = [n for n in range(DOCUMENTS) if n not in alive]
    run.counts = run.shown = _counts(len(alive), len(run.dead))
    kept = [(n, value_of("short", n)) for n in range(3)]
    short = RunEnd(Load("short", "passing", "bruno", 3, 0.0), kept, list(kept))
    short.counts = short.shown = _counts(3)
    puts = PutsEnd(MAIN, GIVEN, [(n, value_of("by-hand-main", n)) for n in range(GIVEN)])
    puts.counts = puts.shown = _counts(len(alive) + GIVEN, len(run.dead))
    none = PutsEnd(PASSING)
    none.counts = none.shown = _counts(3)
    keys = [f"run:{n}" for n in range(DOCUMENTS)] + [f"by-hand-main:{n}" for n in range(GIVEN)]
    keys += [f"short:{n}" for n in range(3)]
    executions = [Execution(key, WORKER, 1, at, at + 0.5, well=True) for at, key in enumerate(keys)]
    return History(
        runs=[run, short],
        puts=[puts, none],
        executions=executions,
        confirmed=[Confirmed("main", "run", 0, DOCUMENTS), Confirmed("main", "by-hand-main", 0, GIVEN)],
        takings=[Taking("shard", "passing", HOST, 5.0, "kill")],
        unrest=[Unrest(5.0, 5.5)],
    )


def test_a_history_in_which_nothing_is_wrong_passes() -> None:
    assert violations(good_history()) == []


def _lose_document(history: History) -> None:
    run = history.runs[0]
    run.results.pop(3)
    run.stream.pop(3)


def _lose_put(history: History) -> None:
    history.puts[0].results.pop()


def _lose_transient_put(history: History) -> None:
    history.confirmed.append(Confirmed("passing", "by-hand-passing", 0, 1))
    history.puts[1].given = 1


def _double_result(history: History) -> None:
    run = history.runs[0]
    run.results.insert(3, run.results[3])
    run.stream.insert(3, run.stream[3])


def _double_put(history: History) -> None:
    history.puts[0].results.append((2, value_of("by-hand-main", 2)))


def _double_in_stream(history: History) -> None:
    history.runs[0].stream.append(history.runs[0].results[3])


def _other_value_in_stream(history: History) -> None:
    history.runs[0].stream[3] = (3, value_of("run", 4))


def _row_missing(history: History) -> None:
    history.runs[0].rows = history.runs[0].results[1:]


def _row_doubled(history: History) -> None:
    history.runs[0].rows = [*history.runs[0].results, history.runs[0].results[0]]


def _result_and_dead(history: History) -> None:
    history.runs[0].dead.append(3)


def _invent(history: History) -> None:
    history.puts[0].results.append((GIVEN, value_of("by-hand-main", GIVEN)))


def _wrong_value(history: History) -> None:
    history.runs[0].results[3] = (3, value_of("run", 4))


def _never_executed(history: History) -> None:
    history.executions = [call for call in history.executions if call.key != "run:3"]


def _only_failed(history: History) -> None:
    next(call for call in history.executions if call.key == "run:3").well = False


def _sound_and_dead(history: History) -> None:
    run = history.runs[0]
    run.results.pop(3)
    run.stream.pop(3)
    run.dead.append(3)


def _dead_put(history: History) -> None:
    history.puts[0].results.pop()
    history.puts[0].dead.append(GIVEN - 1)


def _loss_with_a_process(history: History) -> None:
    history.runs[1].results.pop()
    history.runs[1].stream.pop()
    history.runs[1].counts = history.runs[1].shown = _counts(2)


def _second_call(history: History) -> None:
    first = next(call for call in history.executions if call.key == "run:3")
    history.executions.append(Execution("run:3", 99, 1, first.began + 0.1, first.began + 0.2, well=True))


def _unended_call(history: History) -> None:
    first = next(call for call in history.executions if call.key == "run:3")
    history.executions.append(Execution("run:3", 99, 1, first.began - 0.9))


def _stranger_ran(history: History) -> None:
    history.executions.append(Execution("run:20", WORKER, 1, 50.0, 51.0, well=True))


def _count_wrong(history: History) -> None:
    history.runs[0].counts = _counts(DOCUMENTS)


def _show_wrong(history: History) -> None:
    history.runs[0].shown = _counts(DOCUMENTS - 1)


def _count_queue_wrong(history: History) -> None:
    history.puts[0].counts = _counts(GIVEN)


def _show_nothing(history: History) -> None:
    history.runs[0].shown = None


def _show_no_queue(history: History) -> None:
    history.puts[0].shown = None


def _count_nothing(history: History) -> None:
    history.runs[1].counts, history.runs[1].shown = [], None
    history.puts[1].counts = history.puts[1].shown = _counts(0)


def _count_no_queue(history: History) -> None:
    history.puts[1].counts, history.puts[1].shown = [], None


def _show_queue_wrong(history: History) -> None:
    history.puts[0].shown = _counts(GIVEN)


def _leave_process(history: History) -> None:
    history.left.processes.append("123 python")


def _leave_key(history: History) -> None:
    history.left.keys.append("dq-queue/main/0-abcd")


def _leave_thread(history: History) -> None:
    history.left.threads.append("anna: {'dqlab-submit': 1}")


def _leave_descriptors(history: History) -> None:
    history.left.descriptors = 40


def _leave_logs(history: History) -> None:
    history.left.logs.append("scratch/dqlab-0/Scheduler-1")


def _damage(history: History) -> None:
    history.left.findings.append("a segment is missing")


def _odd_error(history: History) -> None:
    history.refused.append(Refusal("put", "KeyError", "'x'", False, 5.2))


def _late_timeout(history: History) -> None:
    history.refused.append(Refusal("put", "CallTimeout", "late", True, 5.5 + LIMIT + 1))


def _late_put_timeout(history: History) -> None:
    history.refused.append(Refusal("put", "PutTimeout", "late", True, 5.5 + LIMIT + 1))


def _early_stall(history: History) -> None:
    history.refused.append(Refusal("finish run", "RunStalled", "early", True, 4.9))


def _incomplete_though_nobody_was_hurt(history: History) -> None:
    history.unrest = []
    history.refused.append(Refusal("finish run", "SubmissionIncomplete", "cut off", True, 5.2))


def _durable_shard_gone(history: History) -> None:
    history.refused.append(Refusal("pause", "ActorGone", "'queue/main/0' is gone", True, 5.2))


def _transient_shard_gone_with_its_process(history: History) -> None:
    history.refused.append(Refusal("pause", "ActorGone", "'queue/passing/0' is gone", True, 5.2))


def _scheduler_gone_in_a_town_that_lives(history: History) -> None:
    history.refused.append(Refusal("pause", "SchedulerGone", "gone", True, 5.2))


def _queue_gone_that_nobody_closed(history: History) -> None:
    history.closed.append(Closing("side", 5.0, 5.3))
    history.refused.append(Refusal("put into main", "QueueClosed", "queue 'main' was closed", True, 5.2))


def _queue_closed_long_ago(history: History) -> None:
    history.closed.append(Closing("main", 5.0, 5.3))
    history.refused.append(Refusal("put into main", "QueueClosed", "queue 'main' was closed", True, 5.4 + LIMIT))


def _lose_put_of_a_durable_queue_that_was_closed(history: History) -> None:
    history.confirmed = [replace(one, at=4.0) for one in history.confirmed]
    history.closed.append(Closing("main", 5.0, 5.3))
    history.puts[0].results.pop()


def _lose_transient_put_after_its_queue_was_closed(history: History) -> None:
    history.confirmed.append(Confirmed("passing", "by-hand-passing", 0, 1, at=5.4 + HEARD))
    history.closed.append(Closing("passing", 5.0, 5.3))
    history.puts[1].given = 1


def _cell(history: History, what: str = "results") -> CellEnd:
    got = [(n, value_of("run", n)) for n in range(DOCUMENTS) if trait_of(n) != "broken"]
    history.cells.append(CellEnd(what, "run", "thread", 0, DOCUMENTS, got))
    return history.cells[-1]


def _cell_of_calls(history: History) -> CellEnd:
    """Plant a cell whose two calls had no variable, and whose results went with it."""
    puts, numbers = history.puts[0], range(GIVEN - 2, GIVEN)
    puts.passing.append((numbers.start, numbers.stop))
    puts.results = puts.results[:-2]
    got = [(n, value_of(puts.source, n)) for n in numbers]
    history.cells.append(CellEnd("submit", puts.source, "thread", numbers.start, numbers.stop, got))
    history.confirmed[1] = replace(history.confirmed[1], hi=numbers.start)
    return history.cells[-1]


def _cell_misses_one(history: History) -> None:
    _cell(history).got.pop(3)


def _cell_of_calls_misses_one(history: History) -> None:
    _cell_of_calls(history).got.pop()


def _cell_gets_one_twice(history: History) -> None:
    _cell(history, "stream").got.append((3, value_of("run", 3)))


def _cell_gets_a_stranger(history: History) -> None:
    _cell(history).got.append((DOCUMENTS, value_of("run", DOCUMENTS)))


def _cell_gets_a_neighbours_value(history: History) -> None:
    _cell(history).got[3] = 3, value_of("run", 4)


def _call_of_a_cell_counts_twice(history: History) -> None:
    _cell_of_calls(history)
    history.puts[0].counts = history.puts[0].shown = _counts(DOCUMENTS + GIVEN, 1)


def _blind_witness(history: History) -> None:
    history.faults.append("the witness of a town has failed: KeyError('x')")


FAULTS = {
    "every_confirmed_message_ends_exactly_once": (
        _lose_document,
        _lose_put,
        _lose_transient_put,
        _loss_with_a_process,
        _double_result,
        _double_put,
        _double_in_stream,
        _other_value_in_stream,
        _row_missing,
        _row_doubled,
        _result_and_dead,
        _invent,
        _lose_put_of_a_durable_queue_that_was_closed,
        _lose_transient_put_after_its_queue_was_closed,
    ),
    "every_result_was_executed_and_is_right": (
        _wrong_value,
        _never_executed,
        _only_failed,
        _cell_gets_a_neighbours_value,
    ),
    "only_what_is_broken_is_dead": (_sound_and_dead, _dead_put),
    "no_message_runs_twice_at_a_time": (_second_call, _unended_call),
    "nothing_ran_that_was_not_put": (_stranger_ran,),
    "counters_agree": (
        _count_wrong,
        _show_wrong,
        _show_nothing,
        _show_no_queue,
        _count_nothing,
        _count_no_queue,
        _count_queue_wrong,
        _show_queue_wrong,
        _call_of_a_cell_counts_twice,
    ),
    "cells_that_were_interrupted_get_all_when_they_are_run_again": (
        _cell_misses_one,
        _cell_of_calls_misses_one,
        _cell_gets_one_twice,
        _cell_gets_a_stranger,
    ),
    "nothing_is_left_behind": (_leave_process, _leave_key, _leave_thread, _leave_descriptors, _leave_logs, _damage),
    "errors_are_of_the_kinds_that_are_promised": (
        _odd_error,
        _late_timeout,
        _late_put_timeout,
        _early_stall,
        _incomplete_though_nobody_was_hurt,
        _durable_shard_gone,
        _transient_shard_gone_with_its_process,
        _scheduler_gone_in_a_town_that_lives,
        _queue_gone_that_nobody_closed,
        _queue_closed_long_ago,
    ),
    "the_harness_itself_has_not_failed": (_blind_witness,),
}


@pytest.mark.parametrize(
    ("check", "plant"), [pytest.param(check, plant, id=plant.__name__) for check in FAULTS for plant in FAULTS[check]]
)
def test_what_is_planted_is_found_by_its_check(check: str, plant: Callable[[History], None]) -> None:
    history = good_history()
    plant(history)
    assert [found for found in violations(history) if found.startswith(f"{check}:")]


@pytest.mark.parametrize("cell", [_cell, _cell_of_calls])
def test_a_cell_that_got_all_passes(cell: Callable[[History], CellEnd]) -> None:
    history = good_history()
    cell(history)
    assert violations(history) == []


def test_what_a_transient_queue_held_may_go_when_it_is_closed() -> None:
    history = good_history()
    history.puts[1].given = 1
    history.confirmed.append(Confirmed("passing", "by-hand-passing", 0, 1, at=4.0))
    history.closed.append(Closing("passing", 5.0, 5.3))
    history.refused.append(Refusal("map passing", "ActorGone", "'queue/passing/0' is gone", True, 5.2))
    assert violations(history) == []


def test_what_a_transient_queue_held_may_go_with_its_town() -> None:
    history = good_history()
    history.puts[1].given = 1
    history.confirmed.append(Confirmed("passing", "by-hand-passing", 0, 1))
    history.takings.append(Taking("town", "-", 0, 5.0, "kill"))
    assert violations(history) == []


def test_every_check_has_faults_planted_for_it() -> None:
    assert [check.__name__ for check in CHECKS] == list(FAULTS)


@pytest.mark.parametrize(
    "taking",
    [
        Taking("shard", "main", 72, 3.05, REGISTRY),
        Taking("consumer", "-", WORKER, 3.05, "stop"),
        Taking("town", "-", 0, 3.05, "kill"),
    ],
    ids=lambda taking: taking.what,
)
def test_a_message_may_run_twice_when_its_shard_or_consumer_was_taken_meanwhile(taking: Taking) -> None:
    history = good_history()
    _second_call(history)
    history.takings.append(taking)
    assert violations(history) == []


@pytest.mark.parametrize(
    "taking",
    [
        Taking("shard", "side", 72, 3.05, "kill"),
        Taking("consumer", "-", 72, 3.05, "kill"),
        Taking("town", "-", 0, 30.0, "kill"),
    ],
    ids=["another queue", "another consumer", "much later"],
)
def test_what_was_taken_elsewhere_excuses_nothing(taking: Taking) -> None:
    history = good_history()
    _second_call(history)
    history.takings.append(taking)
    assert [found for found in violations(history) if found.startswith("no_message_runs_twice_at_a_time:")]
