"""`results(errors="return")` of a run of which very much has failed."""

from __future__ import annotations

import pytest

import dqlab as dq
from dqlab.runs.failures import DeadLetter, Failures


def test_dead_letters_are_fetched_with_the_pages_they_stand_in(
    queue: dq.QueuePool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each has a traceback of up to 16 KiB: a million of them do not fit into a kernel."""

    def fragile(x: int) -> int:
        if x % 3 == 0:
            raise ValueError(x)
        return x

    run = queue.map(fragile, range(9000), name=queue.name, retry=dq.Retry(0))
    run.wait(timeout=60)
    monkeypatch.setattr("dqlab.runs.failures.PLACES", 700)
    fetched: list[int] = []
    plain = Failures._page

    async def page(self: Failures, *arguments: object) -> list[DeadLetter]:
        letters = await plain(self, *arguments)  # type: ignore[arg-type]
        fetched.append(len(letters))
        return letters

    monkeypatch.setattr(Failures, "_page", page)

    results = run.results(errors="return")
    assert len(results) == 9000
    assert fetched == []
    found = [value.ordinal if isinstance(value, DeadLetter) else value for value in results]
    assert found == list(range(9000))
    assert sum(fetched) <= 3100

    fetched.clear()
    assert results[4500].error == "ValueError"
    assert sum(fetched) <= 500
