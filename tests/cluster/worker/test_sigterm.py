"""How a worker's process handles SIGTERM, and that forks leave its signals as they were."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

import pytest

from dqlab.cluster.worker import plugin as sigterm


@pytest.fixture
def signals() -> Iterator[None]:
    """The handlers and the mask of this process, restored."""
    handler = signal.getsignal(signal.SIGTERM)
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, ())
    yield
    signal.signal(signal.SIGTERM, handler)
    signal.pthread_sigmask(signal.SIG_SETMASK, mask)


@pytest.mark.usefixtures("signals")
def test_a_fork_leaves_no_signal_blocked_where_a_user_had_a_handler_before(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each worker of a process with a user's handler registered the same hooks again, and a second pair of them took
    the blocked signals for those of before: from the first fork on, the process ignored SIGTERM."""
    before: list[Callable[[], None]] = []
    after: list[Callable[[], None]] = []

    def register(**hooks: Any) -> None:
        before.insert(0, hooks["before"])
        after.append(hooks["after_in_parent"])

    monkeypatch.setattr(os, "register_at_fork", register)
    monkeypatch.setattr(sigterm, "_own", {})
    monkeypatch.setattr(sigterm, "_watch_forks", cache(sigterm._watch_forks.__wrapped__))

    async def workers() -> None:
        signal.signal(signal.SIGTERM, lambda *_: None)
        assert not sigterm.on_sigterm(lambda: None)
        assert not sigterm.on_sigterm(lambda: None)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        assert sigterm.on_sigterm(lambda: None)

    asyncio.run(workers())
    for hook in (*before, *after):
        hook()

    assert before
    assert signal.SIGTERM not in signal.pthread_sigmask(signal.SIG_BLOCK, ())
