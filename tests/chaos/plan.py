"""What one round does, from its seed: queues, what is put into them, and acts of violence in between. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from random import Random
from typing import NamedTuple

__all__ = ["BRIEF", "CELLS", "CLIENTS", "Act", "Load", "Plan", "QueuePlan", "make_plan"]

CLIENTS = ("anna", "bruno")
"""Two processes; each puts into queues of both."""

BRIEF = "brief"
"""A queue beside those of the plan, which one client closes while the other opens it."""

CELLS = ("map", "wait", "results", "stream", "submit")
"""Cells that are interrupted, by what they do: map only, wait, ask for results, take them as they come, submit."""


@dataclass(frozen=True)
class QueuePlan:
    """A queue; `timeout` is the length of its leases, seconds."""

    name: str
    shards: int = 1
    durable: bool = True
    timeout: float = 60.0


@dataclass(frozen=True)
class Load:
    """One run. `seconds` is what a document takes, `trickle` what lies between two of them while they are submitted."""

    run: str
    queue: str
    client: str
    documents: int
    seconds: float
    trickle: float = 0.0
    kind: str = "thread"
    """One of `functions.KINDS`."""


@dataclass(frozen=True)
class Act:
    """Something that is done once `after` executions have begun since the act before it.

    Attributes
    ----------
    which : int
        Chooses among those who are there.
    n : int
        How many: messages to put, workers or consumers to have.
    seconds : float
        For how long.
    """

    kind: str
    after: int = 20
    which: int = 0
    n: int = 0
    seconds: float = 0.0

    def __str__(self) -> str:
        return f"{self.kind} which={self.which} n={self.n} seconds={self.seconds:g} after={self.after}"


@dataclass(frozen=True)
class Plan:
    """One round."""

    seed: int
    workers: int
    queues: tuple[QueuePlan, ...]
    loads: tuple[Load, ...]
    acts: tuple[Act, ...]

    def __str__(self) -> str:
        lines = [f"seed {self.seed}, {self.workers} workers", *map(str, self.queues), *map(str, self.loads)]
        return "\n".join([*lines, *(f"{number}. {act}" for number, act in enumerate(self.acts))])


class _Kind(NamedTuple):
    weight: int
    most: int
    """How often in a round."""


KINDS = {
    "put": _Kind(6, 9),
    "map": _Kind(5, 4),
    "kill queue": _Kind(6, 3),
    "kill consumer": _Kind(5, 3),
    "stop queue": _Kind(3, 2),
    "stop consumer": _Kind(3, 2),
    "terminate queue": _Kind(3, 2),
    "terminate consumer": _Kind(3, 2),
    "retire queue": _Kind(2, 2),
    "retire consumer": _Kind(2, 2),
    "restart": _Kind(2, 1),
    "scale": _Kind(3, 2),
    "scale to nothing": _Kind(1, 1),
    "adapt": _Kind(1, 1),
    "consumers": _Kind(3, 2),
    "pause run": _Kind(2, 1),
    "pause queue": _Kind(2, 1),
    "retry": _Kind(3, 2),
    "compact": _Kind(4, 3),
    "map large": _Kind(2, 1),
    "interrupt map": _Kind(3, 2),
    "interrupt wait": _Kind(2, 1),
    "interrupt results": _Kind(2, 1),
    "interrupt stream": _Kind(2, 1),
    "interrupt submit": _Kind(3, 2),
    "refuse log": _Kind(3, 2),
    "fail log": _Kind(3, 2),
    "close beside open": _Kind(3, 2),
    "close at work": _Kind(4, 2),
    "kill client": _Kind(3, 1),
    "kill town": _Kind(2, 1),
}

INTERRUPTS = {
    "interrupt map": ((50,), (0.0, 0.002, 0.01, 0.05)),
    **dict.fromkeys(("interrupt wait", "interrupt results", "interrupt stream"), ((50,), (0.02, 0.1, 0.3, 0.6))),
    "interrupt submit": ((1, 20), (0.0, 0.002, 0.01, 0.1)),
}
"""How many documents or calls a cell has, and the seconds after which it is interrupted."""


def make_plan(seed: int, *, acts: int = 8, documents: int = 800, only: Sequence[str] = ()) -> Plan:
    """Return the plan of a seed: the same for ever, as long as this module stays as it is."""
    rng = Random(seed)
    queues = [QueuePlan("main", rng.choice((1, 1, 2, 3)), timeout=rng.choice((60.0, 60.0, 4.0))), QueuePlan("side")]
    if rng.random() < 0.4:
        queues.append(QueuePlan("passing", rng.choice((1, 2)), durable=False))
    loads = [_load(rng, queue, CLIENTS[at % 2], documents) for at, queue in enumerate(queues)]
    chosen: list[str] = []
    while len(chosen) < acts:
        kinds = [kind for kind, (_, most) in KINDS.items() if chosen.count(kind) < most and (not only or kind in only)]
        if not kinds:
            break
        chosen += rng.choices(kinds, [KINDS[kind].weight for kind in kinds])
    return Plan(seed, rng.choice((3, 3, 4)), tuple(queues), tuple(loads), tuple(_act(rng, kind) for kind in chosen))


def _load(rng: Random, queue: QueuePlan, client: str, documents: int) -> Load:
    n = documents if queue.name == "main" else documents // 3
    load = Load(f"run-{queue.name}", queue.name, client, n, rng.choice((0.004, 0.01)))
    if rng.random() < 0.5:
        load = replace(load, trickle=rng.choice((0.002, 0.005)))
    kinds = {"main": ("thread", "coroutine", "document", "rows"), "side": ("thread", "process", "document", "rows")}
    return replace(load, kind=rng.choice(kinds.get(queue.name, ("thread", "coroutine"))))


def _act(rng: Random, kind: str) -> Act:
    act = Act(kind, after=rng.choice((0, 10, 30, 60)), which=rng.randrange(12))
    if kind in INTERRUPTS:
        ways, after = INTERRUPTS[kind]
        return replace(act, n=rng.choice(ways), seconds=rng.choice(after))
    match kind:
        case "put":
            return replace(act, n=rng.choice((1, 20, 100)))
        case "map":
            return replace(act, n=rng.choice((50, 200)), seconds=rng.choice((0.004, 0.01)))
        case "map large":
            return replace(act, n=24)
        case "close at work":
            return replace(act, n=100, seconds=rng.choice((0.004, 0.01, 0.03)))
        case "refuse log" | "fail log":
            return replace(act, seconds=rng.choice((0.1, 1.0, 3.0)))
        case "scale" | "adapt" | "consumers":
            return replace(act, n=rng.choice((1, 2, 4)))
        case "scale to nothing" | "stop queue":
            return replace(act, seconds=rng.choice((0.2, 1.5, 3.0)))
        case "stop consumer":
            return replace(act, seconds=rng.choice((0.3, 0.3, 5.0)))
        case "pause run" | "pause queue":
            return replace(act, seconds=rng.choice((0.0, 0.5)))
        case _:
            return act
