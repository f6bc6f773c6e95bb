"""The rooms by name, in the order in which they are measured."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from benchmarks.apis import apis
from benchmarks.documents import documents
from benchmarks.figures import Figure
from benchmarks.growth import growth
from benchmarks.hpc import hpc
from benchmarks.idle import idle
from benchmarks.jupyter import jupyter
from benchmarks.latency import latency
from benchmarks.log import log
from benchmarks.loop import loop
from benchmarks.makespan import makespan
from benchmarks.many_runs import many_runs
from benchmarks.memory import memory
from benchmarks.messages import messages
from benchmarks.models import models
from benchmarks.recovery import recovery
from benchmarks.results import results
from benchmarks.rules import rules
from benchmarks.sizes import Sizes
from benchmarks.stage import Stage
from benchmarks.views import views

__all__ = ["ALONE", "ROOMS", "Room"]

Room: TypeAlias = Callable[[Stage, Sizes], list[Figure]]

ROOMS: dict[str, Room] = {
    "rules": rules,
    "messages": messages,
    "latency": latency,
    "makespan": makespan,
    "growth": growth,
    "idle": idle,
    "memory": memory,
    "log": log,
    "many-runs": many_runs,
    "recovery": recovery,
    "views": views,
    "jupyter": jupyter,
    "apis": apis,
    "loop": loop,
    "models": models,
    "documents": documents,
    "results": results,
    "hpc": hpc,
}

ALONE = frozenset(
    {"apis", "documents", "hpc", "jupyter", "log", "loop", "many-runs", "models", "recovery", "results", "views"}
)
"""Rooms that are measured only when they are named."""
