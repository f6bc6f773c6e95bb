"""Runs that stopped because there was no room for their results, and the room that dropping another run makes."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from dqlab.cluster.transport.wire import pack
from dqlab.log.errors import DiskFull
from tests.cluster import desk

RUNS = [bytes([number]) * 16 for number in (1, 2, 3)]
CODE = {"name": "f"}


def test_a_log_that_refuses_to_resume_one_run_leaves_the_others_to_the_next_order(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """All were forgotten with the first refusal, and stayed stopped for a reason that was gone."""

    async def scenario() -> list[list[bool]]:
        actor = await desk.opened(run=RUNS[0], record={"name": "f-0", "codes": [CODE]}, results_maxsize=2500)
        for number, run in enumerate(RUNS[1:], 1):
            await actor.control(
                pack({"op": "open", "open": {"run": run, "record": {"name": f"f-{number}", "codes": [CODE]}}})
            )
        for sequence, run in enumerate(RUNS):  # of one producer
            await desk.put(actor, 1, run=run, sequence=sequence)
        held = [await desk.lease(actor, f"c{number}") for number in range(len(RUNS))]
        for each in sorted(held, key=lambda each: RUNS.index(each["run"])):
            await desk.finish(actor, each, [b"r" * (3000 if each["run"] == RUNS[0] else 100)])
        obey, refused = actor.ledger.obey, [1]

        def refuse_once(op: str, run: bytes | None, meta: dict[str, Any]) -> int:
            if op == "resume" and refused:
                refused.pop()
                raise DiskFull(directory="/full", needed=1, free=0)
            return obey(op, run, meta)

        monkeypatch.setattr(actor.ledger, "obey", refuse_once)
        with pytest.raises(DiskFull):
            await actor.control(pack({"op": "drop", "run": RUNS[0]}))
        stopped = [[actor.books[run].stopped for run in RUNS[1:]]]
        await actor.control(pack({"op": "drop", "run": RUNS[0]}))
        return [*stopped, [actor.books[run].stopped for run in RUNS[1:]]]

    assert asyncio.run(scenario()) == [[True, True], [False, False]]
