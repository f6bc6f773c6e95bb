"""One cluster that does not answer keeps no client from opening queues on another."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from distributed import Client

from dqlab.errors import CallTimeout
from dqlab.runs import session


class _Unconnected(Client):
    """A client without a connection."""

    def __init__(self) -> None:
        self.scheduler = None

    def __del__(self) -> None:
        pass

    def __hash__(self) -> int:
        return id(self)

    def __eq__(self, other: object) -> bool:
        return self is other


class _Opened(session.Session):
    """A session whose making hangs for one client."""

    hanging: _Unconnected
    begun = threading.Event()
    over = threading.Event()

    def __init__(self, client: Client, *_: Any, **__: Any) -> None:
        if client is self.hanging:
            self.begun.set()
            assert self.over.wait(30)


@pytest.fixture
def hanging() -> Any:
    """A client that installs until the test ends, on a thread of its own."""
    client = _Opened.hanging = _Unconnected()
    installing = threading.Thread(target=_Opened.of, args=(client,), daemon=True)
    installing.start()
    assert _Opened.begun.wait(10)
    yield client
    _Opened.over.set()
    installing.join(10)


def test_a_scheduler_that_hangs_while_it_installs_holds_up_no_other_client(
    hanging: _Unconnected, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session, "INSTALLING", 5.0)
    opened: list[object] = []
    other = threading.Thread(target=lambda: opened.append(_Opened.of(_Unconnected())), daemon=True)
    other.start()
    other.join(4)

    assert opened
    monkeypatch.setattr(session, "INSTALLING", 0.1)
    with pytest.raises(CallTimeout, match="install"):  # of its own cluster, a second caller waits for a limited time
        _Opened.of(hanging)
