"""Who does alone what only one client at a time may do."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace

from dqlab.cluster.claims import Claims

ALIVE = ["a", "b"]


def claims_of(alive: list[str]) -> Claims:
    return Claims(SimpleNamespace(alive=lambda: alive))  # type: ignore[arg-type]


def test_one_client_at_a_time_does_it_and_others_wait_for_it() -> None:
    async def scenario() -> list[bool]:
        claims = claims_of(ALIVE)
        said = [await claims.claim("x", "a"), await claims.claim("x", "b"), await claims.claim("y", "b")]
        said += [await claims.claimed("x", 0.0)]
        next_one = asyncio.create_task(claims.claim("x", "b", 50.0))
        await asyncio.sleep(0)
        await claims.disclaim("x", "a")
        said += [await next_one]
        waiting = asyncio.create_task(claims.claimed("x", 50.0))
        await asyncio.sleep(0)
        await claims.disclaim("x", "b")
        return [*said, await waiting]

    assert asyncio.run(scenario()) == [True, False, True, True, True, False]


def test_a_claim_ends_when_it_was_taken_back_as_often_as_it_was_made() -> None:
    async def scenario() -> list[bool]:
        claims = claims_of(ALIVE)
        said = [await claims.claim("x", "a"), await claims.claim("x", "a")]
        await claims.disclaim("x", "a")
        said += [await claims.claim("x", "b")]
        await claims.disclaim("x", "a")
        return [*said, await claims.claim("x", "b")]

    assert asyncio.run(scenario()) == [True, True, False, True]


def test_nobody_takes_back_what_another_one_claimed() -> None:
    async def scenario() -> bool:
        claims = claims_of(ALIVE)
        await claims.claim("x", "a")
        await claims.disclaim("x", "b")
        return await claims.claimed("x", 0.0)

    assert asyncio.run(scenario())


def test_who_is_gone_for_good_claims_nothing_any_more() -> None:
    """One that lost its connection a moment ago is still expected."""

    async def scenario() -> tuple[bool, bool, bool]:
        alive = ["a", "b"]
        claims = claims_of(alive)
        await claims.claim("x", "a")
        before = await claims.claim("x", "b")
        alive.remove("a")
        return before, await claims.claimed("x", 0.0), await claims.claim("x", "b")

    assert asyncio.run(scenario()) == (False, False, True)
