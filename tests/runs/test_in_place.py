"""`results(errors="return")` of a run with very many failures."""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from types import SimpleNamespace
from typing import Any

import pytest

import dqlab as dq
from dqlab.runs import failures
from dqlab.runs.failures import DeadLetter, Failures
from dqlab.runs.reading.results import InPlace


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


class SentAgain(Failures):
    """The dead letters of one shard: documents 0-9 have newer ids than 10-29, for they were lost and sent again."""

    def __init__(self) -> None:
        handle: Any = SimpleNamespace(link=SimpleNamespace(sync=asyncio.run))
        super().__init__("again", handle, b"", [30])
        self.held = {id: 10 + id if id < 20 else id - 20 for id in range(30)}
        self.ids = sorted(self.held)

    def places(self) -> list[tuple[int, int]]:
        return sorted((ordinal, id) for id, ordinal in self.held.items())

    async def _page(self, shard: int, after: int, classes: Collection[str], limit: int = 500) -> list[DeadLetter]:
        found = [id for id in self.ids if id > after][: min(limit, failures.PAGE)]
        return [dead(id, self.held[id]) for id in found]


def dead(id: int, ordinal: int) -> DeadLetter:
    of: Any = dict.fromkeys(DeadLetter.__dataclass_fields__)
    return DeadLetter(**of | {"id": id, "ordinal": ordinal})


@pytest.mark.parametrize("page", [1, 4, 500])
def test_dead_letters_stand_in_their_places_when_lost_documents_were_sent_again(
    page: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ids do not rise with ordinals then: a failure came in the place of another, and one that was there was missed."""
    monkeypatch.setattr(failures, "PAGE", page)
    there = InPlace(SentAgain(), {})

    for lo, hi in [(0, 30), (5, 12), (8, 11), (0, 10), (10, 30)]:
        assert sorted(each.ordinal for each in there.between(lo, hi)) == list(range(lo, hi))
