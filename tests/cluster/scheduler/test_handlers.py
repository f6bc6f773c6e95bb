"""Calls of handlers by name: each names one that a scheduler or a worker has, with arguments that it takes."""

from __future__ import annotations

import ast
import asyncio
import inspect
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import pytest

import dqlab
from dqlab.cluster.scheduler.registry import Registry
from dqlab.cluster.shard import durable
from dqlab.cluster.worker.plugin import DqlabWorkerPlugin, WorkerVitals
from dqlab.store.directories import delete_logs

SOURCES = Path(dqlab.__file__).parent
GIVEN_BY_CALLERS = {"call", "timeout", "limit", "scheduler", "address", "op"}
"""Arguments of what makes the call, which handlers may not have."""


class HandlerCall(NamedTuple):
    where: str
    name: str
    arguments: frozenset[str]


def calls() -> Iterator[HandlerCall]:
    """Yield the calls of handlers in our sources: `scheduler("dq_x", a=1)`, and `rpc.dq_x(a=1)`."""
    for path in sorted(SOURCES.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if not isinstance(node, ast.Call):
                continue
            names = [each.value for each in node.args if isinstance(each, ast.Constant) and isinstance(each.value, str)]
            names += [node.func.attr] if isinstance(node.func, ast.Attribute) else []
            for name in names:
                if name.startswith("dq_") and path.parent.name != "testing":
                    keywords = frozenset(each.arg for each in node.keywords if each.arg is not None)
                    yield HandlerCall(f"{path.relative_to(SOURCES)}:{node.lineno}", name, keywords)


CALLS = list(calls())


@pytest.fixture(scope="module")
def handlers() -> dict[str, list[Callable[..., Any]]]:
    """Return the handlers that we add to schedulers and workers; some have the same name on both."""

    async def wired() -> dict[str, Any]:
        scheduler: Any = SimpleNamespace(id="s", workers={}, clients={}, handlers={}, stream_handlers={})
        registry = Registry()
        await registry.start(scheduler)
        await registry.close()
        return dict(scheduler.handlers)

    on_workers: list[tuple[str, Callable[..., Any]]] = [
        ("dq_spawn", DqlabWorkerPlugin.spawn),
        ("dq_greet", DqlabWorkerPlugin.greet),
        ("dq_report", DqlabWorkerPlugin.report_due),
        ("dq_keep", durable.keep),
        ("dq_stored", durable.list_stored),
        ("dq_delete", delete_logs),
        ("dq_vitals", WorkerVitals.look),
    ]
    found: dict[str, list[Callable[..., Any]]] = {}
    for name, handler in [*asyncio.run(wired()).items(), *on_workers]:
        found.setdefault(name, []).append(handler)
    return found


def test_calls_are_found() -> None:
    assert len(CALLS) > 40


@pytest.mark.parametrize("call", CALLS, ids=lambda call: f"{call.where} {call.name}")
def test_a_call_names_a_handler_and_arguments_that_it_takes(
    call: HandlerCall, handlers: dict[str, list[Callable[..., Any]]]
) -> None:
    """Mypy looks into no string; a misspelt one would be found by a test of a cluster, or not at all."""
    assert call.name in handlers

    def takes(handler: Callable[..., Any]) -> bool:
        taken = set(inspect.signature(handler).parameters)
        return call.arguments - GIVEN_BY_CALLERS <= taken

    assert any(map(takes, handlers[call.name]))
