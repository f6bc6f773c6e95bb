"""The acts: what is done to a round's processes, by kind."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable
from dataclasses import asdict, replace
from typing import Any

from tests.chaos import truth
from tests.chaos.history import CellEnd, Closing, Unrest
from tests.chaos.plan import BRIEF, CELLS, CLIENTS, Act, Load
from tests.chaos.remote import Call
from tests.chaos.scene import CELL, PATIENCE, Scene

__all__ = ["ACTS", "none_left", "perform"]

ACTS: dict[str, Callable[[Scene, Act], str]] = {}
"""Each returns what it did."""

SIGNALS = {"kill": signal.SIGKILL, "stop": signal.SIGSTOP, "terminate": signal.SIGTERM}

HARMLESS = {
    *("put", "map", "map large", "close beside open", *(f"interrupt {what}" for what in CELLS)),
    *("consumers", "pause run", "pause queue", "retry", "compact"),
}
"""What hurts no process, and excuses no error."""


def perform(scene: Scene, act: Act) -> None:
    """Do something when its time has come."""
    scene.await_executions(act.after)
    scene.say(f"{act} …")
    unrest = Unrest(time.monotonic())
    if act.kind not in HARMLESS:
        scene.unrest.append(unrest)
    scene.say(f"    {ACTS[act.kind](scene, act)}")
    if act.kind != "adapt":  # which goes on
        unrest.ended = time.monotonic()


def _act(*kinds: str) -> Callable[[Callable[[Scene, Act], str]], Callable[[Scene, Act], str]]:
    def enter(do: Callable[[Scene, Act], str]) -> Callable[[Scene, Act], str]:
        ACTS.update(dict.fromkeys(kinds, do))
        return do

    return enter


def _victim(scene: Scene, act: Act) -> dict[str, Any] | None:
    hosts = scene.hosts(act.kind.split()[1])
    return hosts[act.which % len(hosts)] if hosts else None


def _hold(seconds: float) -> None:
    """Let things stand for a while; how long is part of the plan."""
    threading.Event().wait(seconds)


def _unrest_until_answered(scene: Scene, call: Call) -> None:
    unrest = Unrest(time.monotonic())
    scene.unrest.append(unrest)
    call.answered.add_done_callback(lambda _: setattr(unrest, "ended", time.monotonic()))


def none_left(wanted: int, retired: int) -> bool:
    """Return whether all workers that a town wants may be ones that were retired: Dask replaces those late."""
    return retired >= wanted


def _unrest_without_workers(scene: Scene) -> None:
    """Note that no client can be served until the town is made whole, if that is so."""
    if none_left(scene.wanted, scene.retired):
        scene.unrest.append(Unrest(time.monotonic()))


@_act(*(f"{verb} {whom}" for verb in SIGNALS for whom in ("queue", "consumer")))
def _signal(scene: Scene, act: Act) -> str:
    victim = _victim(scene, act)
    if victim is None:
        return "there is none"
    verb = act.kind.split()[0]
    scene.hit(victim, SIGNALS[verb], verb)
    if verb == "stop":
        scene.stopped.add(victim["pid"])
        _hold(act.seconds)
        scene.go_on()
    return f"{verb} {victim}"


@_act("retire queue", "retire consumer")
def _retire(scene: Scene, act: Act) -> str:
    victim = _victim(scene, act)
    if victim is None:
        return "there is none"
    if victim["pid"] in scene.retiring:  # Dask would leave it neither running nor retired, for good
        return f"{victim} is being retired already"
    scene.retiring.add(victim["pid"])
    client = CLIENTS[act.which % 2]
    _unrest_until_answered(scene, scene.order(client, "retire", addresses=[victim["address"]]))
    scene.retired += 1
    _unrest_without_workers(scene)
    return f"{client} retires {victim}"


@_act("restart")
def _restart(scene: Scene, act: Act) -> str:
    client = CLIENTS[act.which % 2]
    _unrest_until_answered(scene, scene.order(client, "restart"))
    return f"{client} restarts all workers"


@_act("scale")
def _scale(scene: Scene, act: Act) -> str:
    scene.wanted = act.n
    _unrest_without_workers(scene)
    scene.heed(scene.town.start("scale", deadline=PATIENCE, n=act.n))
    return f"scaled to {act.n}"


@_act("scale to nothing")
def _scale_to_nothing(scene: Scene, act: Act) -> str:
    scene.wanted = scene.plan.workers
    scene.heed(scene.town.start("scale", deadline=PATIENCE, n=0))
    _hold(act.seconds)
    scene.heed(scene.town.start("scale", deadline=PATIENCE, n=scene.plan.workers))
    return f"scaled to 0, and {act.seconds:g} s later to {scene.plan.workers}"


@_act("adapt")
def _adapt(scene: Scene, act: Act) -> str:
    minimum = min(act.n, scene.plan.workers)
    scene.wanted = max(scene.wanted, scene.plan.workers)
    scene.heed(scene.town.start("adapt", deadline=PATIENCE, minimum=minimum, maximum=scene.plan.workers))
    return f"adapts from {minimum} to {scene.plan.workers}"


@_act("consumers")
def _consumers(scene: Scene, act: Act) -> str:
    queue = scene.plan.queues[act.which % len(scene.plan.queues)].name
    client = CLIENTS[act.which % 2]
    scene.order(client, "consumers", queue=queue, n=None if act.n == 4 else act.n)
    return f"{client} orders {act.n} consumers for {queue}"


@_act("put")
def _put(scene: Scene, act: Act) -> str:
    queue = scene.plan.queues[act.which % len(scene.plan.queues)].name
    client, lo = CLIENTS[act.which // 2 % 2], scene.given[queue]
    scene.given[queue] = lo + act.n
    scene.order(client, "put", queue=queue, lo=lo, hi=lo + act.n, seconds=0.004)
    return f"{client} puts {lo} to {lo + act.n} into {queue}"


@_act("map")
def _map(scene: Scene, act: Act) -> str:
    queue = scene.plan.queues[act.which % len(scene.plan.queues)].name
    load = Load(f"run-{len(scene.mapped)}", queue, CLIENTS[act.which // 2 % 2], act.n, act.seconds)
    if act.which % 4 == 0 and scene.plan.queues[act.which % len(scene.plan.queues)].durable:
        load = replace(load, kind="rows")  # a transient run is made again, and its rows would be those of another run
    scene.mapped.append(load)
    scene.map(load)
    return f"{load}"


@_act("map large")
def _map_large(scene: Scene, act: Act) -> str:
    load = Load(f"run-{len(scene.mapped)}", "main", CLIENTS[act.which % 2], act.n, 0.0, kind="large")
    scene.mapped.append(load)
    scene.map(load)
    return f"{load}"


@_act(*(f"interrupt {what}" for what in CELLS if what != "submit"))
def _interrupt(scene: Scene, act: Act) -> str:
    what = act.kind.split()[1]
    kept = [queue for queue in scene.plan.queues if queue.durable or what == "map"]
    chosen, client = kept[act.which % len(kept)], CLIENTS[act.which // 2 % 2]
    queue, durable = chosen.name, chosen.durable
    kinds = ("coroutine", "document", "process", "thread", "rows" if durable else "thread")
    load = Load(f"run-{len(scene.mapped)}", queue, client, act.n, 0.004, kind=kinds[act.which % len(kinds)])
    scene.mapped.append(load)
    cell = {"what": what, "load": asdict(load)}
    came = _interrupted(scene, client, cell, act.seconds)
    scene.run_again(client, cell, CellEnd(what, load.run, load.kind, 0, load.documents, []))
    return f"{load}: interrupted {came}, and run again"


@_act("interrupt submit")
def _interrupt_submit(scene: Scene, act: Act) -> str:
    kept = [queue.name for queue in scene.plan.queues if queue.durable]
    queue, client = kept[act.which % len(kept)], CLIENTS[act.which // 2 % 2]
    lo, again, hi = (scene.given[queue] + act.n * times for times in range(3))
    scene.given[queue] = hi
    scene.passing[queue].append((lo, hi))
    cell = {"what": "submit", "load": asdict(Load("", queue, client, act.n, 0.004))}
    came = _interrupted(scene, client, cell | {"lo": lo}, act.seconds)
    scene.run_again(client, cell | {"lo": again}, CellEnd("submit", f"by-hand-{queue}", "thread", again, hi, []))
    return f"{client} submits {act.n} from {lo} into {queue}: interrupted {came}, and again from {again}"


def _interrupted(scene: Scene, client: str, cell: dict[str, Any], after: float) -> object:
    came = scene.heed(scene.clients[client].start("interrupted", deadline=CELL, cell=cell, after=after))
    scene.counted["interrupts that came in time" if came else "that came late"] += 1
    return came


@_act("refuse log", "fail log")
def _refuse_log(scene: Scene, act: Act) -> str:
    hosts = scene.hosts("queue")
    if not hosts:
        return "there is none"
    victim, kind = hosts[act.which % len(hosts)], act.kind.split()[0]
    client = scene.clients[CLIENTS[act.which % 2]]
    scene.heed(client.start("refuse", deadline=PATIENCE, address=victim["address"], kind=kind, seconds=act.seconds))
    _hold(act.seconds)
    return f"the disk of {victim} {kind}s for {act.seconds:g} s"


@_act("close beside open")
def _close_beside_open(scene: Scene, act: Act) -> str:
    closing, opening = CLIENTS[act.which % 2], CLIENTS[1 - act.which % 2]
    scene.heed(scene.clients[closing].start("visit", deadline=PATIENCE, name=BRIEF))
    calls = [
        scene.clients[closing].start("close", deadline=PATIENCE, queue=BRIEF),
        *(scene.clients[opening].start("visit", deadline=PATIENCE, name=BRIEF) for _ in range(3)),
    ]
    for call in calls:
        scene.heed(call)
    return f"{closing} closes {BRIEF} while {opening} opens it"


@_act("close at work")
def _close_at_work(scene: Scene, act: Act) -> str:
    """Close a queue for everybody while consumers have documents in hand; all open it, and map what they mapped."""
    queue = scene.plan.queues[act.which % len(scene.plan.queues)]
    closing, working = CLIENTS[act.which // 2 % 2], CLIENTS[1 - act.which // 2 % 2]
    load = Load(f"run-{len(scene.mapped)}", queue.name, working, act.n, act.seconds)
    scene.mapped.append(load)
    scene.map(load)
    scene.await_executions(5)
    in_hand = sum(call.ended is None for call in truth.read_executions(scene.where))
    scene.counted["documents in hand at a close"] += in_hand
    closed = Closing(queue.name, time.monotonic())
    scene.closed.append(closed)
    scene.heed(scene.clients[closing].start("close", deadline=PATIENCE, queue=queue.name))
    for client in CLIENTS:
        scene.heed(scene.clients[client].start("open_again", deadline=PATIENCE, name=queue.name))
    for one in scene.mapped:
        if one.queue == queue.name:
            scene.map(one)
    closed.ended = time.monotonic()
    return f"{closing} closed {queue.name}, where {working} had {load}, {in_hand} in hand; all was mapped again"


@_act("pause run", "pause queue")
def _pause(scene: Scene, act: Act) -> str:
    load = scene.mapped[act.which % len(scene.mapped)]
    whose = {"queue": load.queue, "run": load.run if act.kind == "pause run" else None}
    client = scene.clients[load.client]
    scene.paused.append(whose)  # also where that was not confirmed: it may have taken effect
    scene.heed(client.start("pause", deadline=PATIENCE, **whose))
    _hold(act.seconds)
    if act.seconds:
        scene.heed(client.start("resume", deadline=PATIENCE, **whose))
    return f"paused {whose}, for {act.seconds or 'good'}"


@_act("retry")
def _retry(scene: Scene, act: Act) -> str:
    load = scene.mapped[act.which % len(scene.mapped)]
    scene.order(load.client, "retry", run=load.run, kind=load.kind)
    return f"{load.client} retries {load.run}"


@_act("compact")
def _compact(scene: Scene, act: Act) -> str:
    queue = scene.plan.queues[act.which % len(scene.plan.queues)].name
    scene.order(CLIENTS[act.which % 2], "compact", queue=queue)
    return f"compacts {queue}"


@_act("kill client")
def _kill_client(scene: Scene, act: Act) -> str:
    name = CLIENTS[act.which % 2]
    gone = repr(scene.clients[name])
    scene.clients[name].kill()
    scene.new_client(name)
    return f"killed {gone}; {scene.clients[name]!r} maps the same"


@_act("kill town")
def _kill_town(scene: Scene, act: Act) -> str:
    gone = repr(scene.town)
    truth.taken("town", "-", 0, "kill", where=scene.where)
    scene.town.kill()
    scene.heed_orders()
    scene.new_town()
    scene.wanted = scene.plan.workers
    truth.taken("town", "-", 0, "kill", where=scene.where)
    return f"killed {gone}; all is mapped again in {scene.town!r}"
