"""One round from its beginning to its end: what is checked then, and what is printed when something is wrong."""

from __future__ import annotations

import threading
import time
from collections import Counter
from dataclasses import asdict
from pathlib import Path
from typing import Any

from dqlab.store.verbs import check
from tests.chaos import stacks, truth
from tests.chaos.acts import perform
from tests.chaos.checks import violations
from tests.chaos.history import History, Left, PutsEnd, Refusal, RunEnd
from tests.chaos.plan import BRIEF, CLIENTS, Plan
from tests.chaos.remote import Hung, Refused
from tests.chaos.scene import PATIENCE, Scene

__all__ = ["AGAIN", "play", "what_broke"]

AGAIN = "DQLAB_CHAOS_SEED={seed} python -m pytest '{test}'"
"""How to run one round again."""
SETTLED = 15.0
"""Seconds within which what was closed is gone, and the last reports have come."""
HANGS = {"CallTimeout", "PutTimeout", "RunStalled", "TimeoutError", "WaitTimeout"}
"""Errors that say at the end, when all is whole again, that something hangs."""
LOOK_EVERY = 0.1
TAIL = 4000
"""Characters of each process's output that are printed."""


def play(plan: Plan, where: Path, tally: Counter[str], test: str) -> History:
    """Play a round and check it; `test` is the id of the test that does so.

    Raises
    ------
    AssertionError
        Something is wrong, or hangs: with the plan, what was done when, and how to run it again.
    """
    wrong: list[str] = []
    more = ""
    history = History()
    scene = Scene(plan, where)
    try:
        _act_out(scene, tally)
        history = _end(scene)
        wrong = violations(history)
    except Exception as error:  # noqa: BLE001 - whatever it is, the round is told with it
        wrong = [f"{what_broke(error)}: {error!r}", *truth.read_faults(where)]
        more = stacks.gather(where, scene.processes())
    finally:
        scene.kill_all()
    tally["rounds"] += 1
    tally["confirmed"] += sum(one.hi - one.lo for one in truth.read_confirmed(where))
    tally["executed"] += len(truth.read_executions(where))
    tally["violations"] += len(wrong)
    if wrong:
        again = AGAIN.format(seed=plan.seed, test=test)
        raise AssertionError(_told(scene, wrong, more, again))
    return history


def what_broke(error: Exception) -> str:
    """Return the name of the promise that an error breaks which ends a round."""
    hangs = isinstance(error, Hung) or (isinstance(error, Refused) and error.name in HANGS)
    return "nothing_hangs" if hangs else "the_round_ends"


def _act_out(scene: Scene, tally: Counter[str]) -> None:
    scene.found_town()
    scene.say(f"it is {time.monotonic():.2f} s on the clock of executions")
    scene.say(f"{scene.town!r} is at {scene.address}; clients {', '.join(map(repr, scene.clients.values()))}")
    for load in scene.plan.loads:
        scene.mapped.append(load)
        scene.map(load)
    for act in scene.plan.acts:
        tally[act.kind] += 1
        perform(scene, act)
    tally.update(scene.counted)
    scene.say("the last act is over")


def _end(scene: Scene) -> History:
    """Mend the town, wait until all has ended, ask how, close everything and look at what is left."""
    history = History(puts=[PutsEnd(queue, scene.given[queue.name]) for queue in scene.plan.queues])
    for puts in history.puts:
        puts.passing = scene.passing[puts.queue.name]
    scene.go_on()
    whole = {"deadline": PATIENCE, "n": scene.plan.workers, "patience": PATIENCE / 2}
    scene.town.ask("whole", **whole)
    scene.heed_orders()
    scene.town.ask("whole", **whole)  # a restart may have been among the orders
    for unrest in scene.unrest:
        unrest.ended = min(unrest.ended, time.monotonic())
    for queue in scene.plan.queues:
        client = scene.clients[CLIENTS[0]]
        scene.heed(client.start("consumers", deadline=PATIENCE, queue=queue.name, n=None))
        scene.heed(client.start("resume", deadline=PATIENCE, queue=queue.name, run=None))
    for whose in scene.paused:
        scene.heed(scene.clients[CLIENTS[0]].start("resume", deadline=PATIENCE, **whose))
    scene.say("waiting for cells that were run again")
    history.cells = scene.heed_cells()
    _ends(scene, history)
    _statistics(scene, history)
    history.left = _leave(scene)
    history.executions = truth.read_executions(scene.where)
    history.confirmed = truth.read_confirmed(scene.where)
    history.takings = truth.read_takings(scene.where)
    history.refused, history.unrest, history.closed = scene.refused, scene.unrest, scene.closed
    history.faults = truth.read_faults(scene.where)
    return history


def _ends(scene: Scene, history: History) -> None:
    scene.say("waiting for the end of all runs")
    for load in scene.mapped:
        asked = {"load": asdict(load), "patience": PATIENCE / 2}
        end = scene.clients[load.client].ask("finish", deadline=PATIENCE, **asked)
        for error, text, at in end.pop("again"):
            scene.say(f"{load.run} was mapped again after {error}: {text}")
            scene.refused.append(Refusal(f"finish {load.run}", error, text, True, at))
        rows = end.pop("rows", None)
        end["rows"] = None if rows is None else [(ordinal, value) for ordinal, value in rows]
        results, stream = [[(ordinal, value) for ordinal, value in end.pop(way)] for way in ("results", "stream")]
        history.runs.append(RunEnd(load, results, stream, **end))
    scene.say("waiting for the end of all that was put by hand")
    for puts in history.puts:
        end = scene.clients[CLIENTS[1]].ask(
            "finish_puts", deadline=PATIENCE, queue=puts.queue.name, patience=PATIENCE / 2
        )
        puts.results = [(number, value) for number, value in end["results"]]
        puts.dead, puts.counts = end["dead"], end["counts"]
    _brief_queue(scene)


def _brief_queue(scene: Scene) -> None:
    """The queue that one client closed while the other opened it serves both when all is whole again."""
    for name in CLIENTS:
        scene.clients[name].ask("visit", deadline=PATIENCE, name=BRIEF)


def _statistics(scene: Scene, history: History) -> None:
    """Ask the statistics until they agree with the counts, or their time is over; they are told every 250 ms."""
    deadline = time.monotonic() + SETTLED
    while True:
        shown: dict[str, Any] = scene.clients[CLIENTS[0]].ask("stats", deadline=PATIENCE)
        for run in history.runs:
            run.shown = shown["runs"].get(run.load.run)
        for puts in history.puts:
            puts.shown = shown["queues"].get(puts.queue.name)
        agree = all(one.shown == one.counts for one in (*history.runs, *history.puts))
        if agree or time.monotonic() > deadline:
            return
        threading.Event().wait(LOOK_EVERY)


def _leave(scene: Scene) -> Left:
    """Close all queues, let every process go, and look at what is left."""
    left = Left()
    scene.say("closing all queues")
    for name in [*(queue.name for queue in scene.plan.queues), BRIEF]:
        scene.heed(scene.clients[CLIENTS[0]].start("close", deadline=PATIENCE, queue=name))
    left.keys = _until_none(lambda: scene.town.ask("keys", deadline=PATIENCE))
    left.findings = [
        str(finding) for shard in check(scene.store).shards() for finding in shard.findings if finding.level
    ]
    for name in CLIENTS:
        kept = scene.clients[name].ask("leave", deadline=PATIENCE)
        left.threads += [f"{name}: {kept['threads']}"] if kept["threads"] else []
        left.descriptors = max(left.descriptors, kept["descriptors"])
        scene.clients[name].release(PATIENCE)
    scene.town.ask("down", deadline=PATIENCE)
    scene.town.release(PATIENCE)
    left.logs = [str(place) for place in (scene.where / truth.SCRATCH).glob("dqlab-*/*")]
    left.processes = _until_none(lambda: [f"{one.pid} {one.name()}" for one in scene.processes()])
    return left


def _until_none(look: Any) -> list[str]:
    deadline = time.monotonic() + SETTLED
    while (found := look()) and time.monotonic() < deadline:
        threading.Event().wait(LOOK_EVERY)
    return list(found)


def _told(scene: Scene, wrong: list[str], more: str, again: str) -> str:
    logs = [
        f"--- {path.name}\n{path.read_text(errors='replace')[-TAIL:]}" for path in sorted(scene.where.glob("*.log"))
    ]
    parts = ["\n".join(wrong), str(scene.plan), "what was done:", "\n".join(scene.done), more, *logs, again]
    return "\n".join(filter(None, parts))
