"""The acts: what is done to a round's processes, by kind."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from typing import Any

from tests.chaos import truth
from tests.chaos.plan import CLIENTS, Act, Load
from tests.chaos.scene import PATIENCE, Scene

__all__ = ["ACTS", "perform"]

ACTS: dict[str, Callable[[Scene, Act], str]] = {}
"""Each returns what it did."""

SIGNALS = {"kill": signal.SIGKILL, "stop": signal.SIGSTOP, "terminate": signal.SIGTERM}


def perform(scene: Scene, act: Act) -> None:
    """Do something when its time has come."""
    scene.await_executions(act.after)
    scene.say(f"{act} …")
    scene.say(f"    {ACTS[act.kind](scene, act)}")


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


@_act(*(f"{verb} {whom}" for verb in SIGNALS for whom in ("queue", "consumer")))
def _signal(scene: Scene, act: Act) -> str:
    victim = _victim(scene, act)
    if victim is None:
        return "there is none"
    verb = act.kind.split()[0]
    scene.hit(victim, SIGNALS[verb])
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
    client = CLIENTS[act.which % 2]
    scene.order(client, "retire", addresses=[victim["address"]])
    return f"{client} retires {victim}"


@_act("restart")
def _restart(scene: Scene, act: Act) -> str:
    client = CLIENTS[act.which % 2]
    scene.order(client, "restart")
    return f"{client} restarts all workers"


@_act("scale")
def _scale(scene: Scene, act: Act) -> str:
    scene.heed(scene.town.start("scale", deadline=PATIENCE, n=act.n))
    return f"scaled to {act.n}"


@_act("scale to nothing")
def _scale_to_nothing(scene: Scene, act: Act) -> str:
    scene.heed(scene.town.start("scale", deadline=PATIENCE, n=0))
    _hold(act.seconds)
    scene.heed(scene.town.start("scale", deadline=PATIENCE, n=scene.plan.workers))
    return f"scaled to 0, and {act.seconds:g} s later to {scene.plan.workers}"


@_act("adapt")
def _adapt(scene: Scene, act: Act) -> str:
    minimum = min(act.n, scene.plan.workers)
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
    scene.mapped.append(load)
    scene.map(load)
    return f"{load}"


@_act("pause run", "pause queue")
def _pause(scene: Scene, act: Act) -> str:
    load = scene.mapped[act.which % len(scene.mapped)]
    whose = {"queue": load.queue, "run": load.run if act.kind == "pause run" else None}
    client = scene.clients[load.client]
    if scene.heed(client.start("pause", deadline=PATIENCE, **whose)) is None:
        scene.paused.append(whose)
    _hold(act.seconds)
    if act.seconds:
        scene.heed(client.start("resume", deadline=PATIENCE, **whose))
    return f"paused {whose}, for {act.seconds or 'good'}"


@_act("retry")
def _retry(scene: Scene, act: Act) -> str:
    load = scene.mapped[act.which % len(scene.mapped)]
    scene.order(load.client, "retry", run=load.run)
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
    truth.taken("town", "-", 0, where=scene.where)
    scene.town_died = True
    scene.town.kill()
    scene.heed_orders()
    scene.new_town()
    truth.taken("town", "-", 0, where=scene.where)
    return f"killed {gone}; all is mapped again in {scene.town!r}"
