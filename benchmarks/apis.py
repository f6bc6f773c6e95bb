"""Room `apis`: a service that allows so many calls; with nothing configured, with a limit, and through an outage.

And what is paid again after an edit, and what a limit costs that never binds.
"""

from __future__ import annotations

import asyncio
import math
import threading
import time
from bisect import bisect_left
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import dqlab as dq
from benchmarks.figures import Better, Figure, Peer, Series, Target
from benchmarks.harness import WrongAnswer
from benchmarks.sizes import Sizes
from benchmarks.stage import Stage

__all__ = ["apis"]

RATE, BURST, ANSWERS_IN = 200.0, 20.0, 0.05
BY_HAND = 10
"""Calls at once of the loop by hand, which knows the service: its rate times the seconds of an answer."""
AWAY_AFTER = 3.0
"""Seconds of a run until its service is away."""
SLOPE = 1.5
"""Calls of a second, of those in the second before, above which a service that minds slopes refuses more."""
BACK = 0.8
"""Share of the speed at which it is back after an outage."""


class _Service:
    """A server of HTTP that answers 200 calls a second after 50 ms, and others with 429."""

    def __init__(self) -> None:
        self.port = 0
        self.ready = threading.Event()
        self.loop = asyncio.new_event_loop()
        self.reset()

    def reset(self) -> None:
        """Count from 0, with a full burst."""
        self.refused = self.while_away = 0
        self.away, self._tokens, self._at = False, BURST, time.monotonic()
        self.minds_slopes, self.answered = False, list[float]()
        self.away_until = 0.0

    def live(self) -> None:
        """Serve until the loop is stopped."""
        asyncio.set_event_loop(self.loop)
        server = self.loop.run_until_complete(asyncio.start_server(self._answer, "127.0.0.1", 0))
        self.port = server.sockets[0].getsockname()[1]
        self.ready.set()
        self.loop.run_forever()
        server.close()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        status = await self._status()
        writer.write(b"HTTP/1.1 %d .\r\nContent-Length: 0\r\n\r\n" % status)
        await writer.drain()
        writer.close()

    async def _status(self) -> int:
        now = time.monotonic()
        if self.away:
            self.while_away += 1
            return 503
        self._tokens, self._at = min(BURST, self._tokens + (now - self._at) * RATE), now
        last = bisect_left(self.answered, now - 1)
        steep = len(self.answered) - last > BURST + SLOPE * (last - bisect_left(self.answered, now - 2))
        if self._tokens < 1 or (self.minds_slopes and steep):
            self.refused += 1
            return 429
        self._tokens -= 1
        self.answered.append(now)
        await asyncio.sleep(ANSWERS_IN)
        return 200

    @property
    def back_after(self) -> float:
        """Seconds from the end of its absence until it answered nearly at full speed for a second; infinite: never."""
        good = (
            at
            for at in self.answered
            if at >= self.away_until
            and bisect_left(self.answered, at + 1) - bisect_left(self.answered, at) >= BACK * RATE
        )
        return next(good, math.inf) - self.away_until


@contextmanager
def _service() -> Iterator[_Service]:
    service = _Service()
    thread = threading.Thread(target=service.live, daemon=True)
    thread.start()
    service.ready.wait(10.0)
    try:
        yield service
    finally:
        service.loop.call_soon_threadsafe(service.loop.stop)
        thread.join(10.0)


class StatusError(Exception):
    """An answer other than 200, as clients of HTTP raise it."""

    def __init__(self, status_code: int) -> None:
        super().__init__(f"status {status_code}")
        self.status_code = status_code


async def ask(port: int, number: int) -> int:
    """Call the service once."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(b"GET / HTTP/1.1\r\n\r\n")
    status = int((await reader.readline()).split()[1])
    writer.close()
    if status != 200:
        raise StatusError(status)
    return number


def apis(stage: Stage, sizes: Sizes) -> list[Figure]:
    """Measure time over ideal, refusals, and calls during an outage."""
    n, outage = (2000, 30.0) if sizes.full else (400, 5.0)
    ideal = (n - BURST) / RATE
    with _service() as service:
        call = partial(ask, service.port)

        def mapped(documents: int = n, *, minds_slopes: bool = False, **options: Any) -> None:
            service.minds_slopes = minds_slopes
            run = stage.lab.map(call, range(documents), **options)
            if list(run.results(errors="skip")) != list(range(documents)):
                raise WrongAnswer(f"{documents - run.counts['acked']} of {documents} documents without an answer")
            run.drop()

        mapped()
        plain, limited, by_hand, through, back, steep = [], [], [], [], list[float](), list[int]()
        for _ in range(sizes.rounds):
            plain.append(_measured(service, mapped))
            limited.append(_measured(service, partial(mapped, limit="200/s")))
            by_hand.append(_measured(service, lambda: asyncio.run(_by_hand(call, n))))
        for _ in range(1 if sizes.full else sizes.rounds):
            timer = threading.Timer(AWAY_AFTER if sizes.full else 1.0, _go_away, (service, outage))
            through.append(_measured(service, mapped, timer))
        for _ in range(sizes.rounds if sizes.full else 1):
            storm = threading.Timer(1.0, _go_away, (service, 10.0 if sizes.full else 2.0))
            _measured(service, partial(mapped, documents=4 * n), storm)
            back.append(service.back_after)
            steep.append(_measured(service, partial(mapped, minds_slopes=True))[1])
    again, cost = _paid_again(stage, 10_000 if sizes.full else 500), _limit_costs(stage, sizes)

    def over(values: list[tuple[float, int, int]]) -> Series:
        return Series.of([seconds / ideal for seconds, _, _ in values])

    peer = Peer(f"asyncio, {BY_HAND} at once, by hand", over(by_hand))
    return [
        Figure(
            f"{n:,} calls, nothing configured, over ideal", "x", Better.LOWER, over(plain), Target(1.15, 1.05), (peer,)
        ),
        Figure("refusals of these", "calls", Better.LOWER, Series.of([no for _, no, _ in plain]), Target(60, 20)),
        Figure("the same with limit='200/s', over ideal", "x", Better.LOWER, over(limited), Target(1.05, 1.02)),
        Figure("refusals of these", "calls", Better.LOWER, Series.of([no for _, no, _ in limited]), Target(0)),
        Figure(
            f"calls while the service is away for {outage:g} s",
            "calls",
            Better.LOWER,
            Series.of([away for _, _, away in through]),
            Target(200, 40),
        ),
        Figure("speed is back after a storm of 503", "s", Better.LOWER, Series.of(back), Target(5.0)),
        Figure("refusals of a service that minds slopes, none dead", "calls", Better.LOWER, Series.of(steep)),
        Figure("paid calls of an edited parser", "calls", Better.LOWER, Series.of([again]), Target(0)),
        Figure("speed with a limit that never binds, of that without", "x", Better.HIGHER, cost, Target(0.95, 1.0)),
    ]


async def _answer(number: int) -> int:
    return number


async def _parse_wrong(number: int) -> int:
    return {}[await dq.once(_answer, number)]  # type: ignore[no-any-return]


async def _parse(number: int) -> int:
    return await dq.once(_answer, number)  # type: ignore[no-any-return]


def _paid_again(stage: Stage, n: int) -> float:
    """Return how many calls are paid twice when a parser is mended that failed for all documents."""
    run = stage.lab.map(_parse_wrong, range(n), retry=0, stop_if=None).wait()
    run.retry(fn=_parse)
    if list(run.results()) != list(range(n)):
        raise WrongAnswer("the mended parser has other answers")
    paid = run.spend().spent["answers paid"]
    run.drop()
    return paid - n


def _limit_costs(stage: Stage, sizes: Sizes) -> Series:
    """Return the speeds of a small function with a limit that never binds, as shares of those without, in turn."""
    n, shares = 100_000 if sizes.full else 20_000, []
    for _ in range(sizes.rounds):
        seconds = []
        for limit in (None, "100M/s"):
            start = time.perf_counter()
            run = stage.lab.map(_add, range(n), limit=limit).wait()
            seconds.append(time.perf_counter() - start)
            run.drop()
        shares.append(seconds[0] / seconds[1])
    return Series.of(shares)


def _add(number: int) -> int:
    return number + 1


def _measured(
    service: _Service, work: Callable[[], None], timer: threading.Timer | None = None
) -> tuple[float, int, int]:
    service.reset()
    if timer is not None:
        timer.start()
    start = time.perf_counter()
    work()
    return time.perf_counter() - start, service.refused, service.while_away


def _go_away(service: _Service, seconds: float) -> None:
    service.away = True
    time.sleep(seconds)
    service.away, service.away_until = False, time.monotonic()


async def _by_hand(call: Callable[[int], Any], n: int) -> None:
    places = asyncio.Semaphore(BY_HAND)

    async def one(number: int) -> None:
        async with places:
            while True:
                try:
                    await call(number)
                    return
                except StatusError:
                    await asyncio.sleep(1.0)

    await asyncio.gather(*(one(number) for number in range(n)))
