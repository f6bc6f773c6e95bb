"""Who does alone what only one client at a time may do."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace

import pytest

from dqlab.cluster.scheduler.queues import Claims

pytestmark = pytest.mark.lowest


def claims_of(*alive: str) -> tuple[Claims, list[str]]:
    here = list(alive)
    return Claims(SimpleNamespace(clients=lambda: here)), here  # type: ignore[arg-type]


def test_one_client_at_a_time_does_it_and_others_wait_for_it() -> None:
    async def scenario() -> list[bool]:
        claims, _ = claims_of("a", "b")
        said = [
            await claims.claim("x", "a", "1"),
            await claims.claim("x", "b", "2"),
            await claims.claim("y", "b", "3"),
        ]
        next_one = asyncio.create_task(claims.claim("x", "b", "4", 50.0))
        await asyncio.sleep(0)
        await claims.disclaim("x", "1")
        return [*said, await next_one]

    assert asyncio.run(scenario()) == [True, False, True, True]


def test_a_claim_ends_when_all_threads_of_its_client_have_taken_theirs_back() -> None:
    async def scenario() -> list[bool]:
        claims, _ = claims_of("a", "b")
        said = [await claims.claim("x", "a", "1"), await claims.claim("x", "a", "2")]
        await claims.disclaim("x", "1")
        said += [await claims.claim("x", "b", "3")]
        await claims.disclaim("x", "2")
        return [*said, await claims.claim("x", "b", "4")]

    assert asyncio.run(scenario()) == [True, True, False, True]


@pytest.mark.parametrize("parked", [False, True])
def test_what_was_taken_back_is_not_granted_later(parked: bool) -> None:
    """The caller was interrupted and does not know of it: it would be held for ever."""

    async def scenario() -> tuple[bool, bool]:
        claims, _ = claims_of("a", "b", "c")
        await claims.claim("x", "a", "1")
        asked = claims.claim("x", "b", "2", 50.0)
        waiting = asyncio.create_task(asked) if parked else None
        await asyncio.sleep(0)
        await claims.disclaim("x", "2")
        await claims.disclaim("x", "1")
        return await (waiting or asked), await claims.claim("x", "c", "3")

    assert asyncio.run(scenario()) == (False, True)


def test_who_is_gone_for_good_claims_nothing_any_more() -> None:
    """One that lost its connection a moment ago is still expected."""

    async def scenario() -> tuple[bool, bool]:
        claims, alive = claims_of("a", "b")
        await claims.claim("x", "a", "1")
        before = await claims.claim("x", "b", "2")
        alive.remove("a")
        return before, await claims.claim("x", "b", "3")

    assert asyncio.run(scenario()) == (False, True)
