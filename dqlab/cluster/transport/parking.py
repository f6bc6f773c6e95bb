"""Calls that wait at a queue until there is something to answer, without polling."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, NamedTuple

from dqlab.cluster.transport.messages import Message

__all__ = ["Bell", "Credit", "Do", "ParkedLease", "ParkingLot", "SlotOrder", "rung"]


async def rung(future: asyncio.Future[Any], timeout: float) -> None:
    """Wait for a future of our own, for at most `timeout` seconds; then it has the result None."""
    timer = asyncio.get_running_loop().call_later(timeout, _give_up, future)
    try:
        await future
    finally:
        timer.cancel()


def _give_up(future: asyncio.Future[Any]) -> None:
    if not future.done():
        future.set_result(None)


class Bell:
    """Wakes the coroutines that wait for a change, each when its condition holds."""

    # Conditions are checked here, once for all rings of a moment. A coroutine that wakes at each ring and waits again
    # costs a switch, a timer and a future each time, and at a full queue several frames of each producer wait.

    def __init__(self) -> None:
        self._waiting: dict[asyncio.Future[None], Callable[[], bool]] = {}
        self._looking = False
        self._broken: Exception | None = None

    def give_up(self, error: Exception) -> None:
        """Raise an error in all waiting coroutines, now and later."""
        self._broken = error
        self.ring()

    def ring(self) -> None:
        """Wake the coroutines whose condition holds behind what runs now."""
        if self._waiting and not self._looking:
            self._looking = True
            next(iter(self._waiting)).get_loop().call_soon(self._look)

    def _look(self) -> None:
        self._looking = False
        for future, condition in list(self._waiting.items()):
            if future.done():
                continue
            try:
                if self._broken is not None or condition():
                    future.set_result(None)
            except Exception as error:  # noqa: BLE001 - it is raised in the coroutine whose condition it is
                future.set_exception(error)

    async def until(self, condition: Callable[[], bool], timeout: float) -> bool:
        """Wait until the condition, which changes nothing, holds after a ring; return whether it does in time.

        Parameters
        ----------
        timeout : float
            Seconds.
        """
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout
        while not condition():
            if self._broken is not None:
                raise self._broken
            left = deadline - loop.time()
            if left <= 0:
                return False
            future: asyncio.Future[None] = loop.create_future()
            self._waiting[future] = condition
            try:
                await rung(future, left)
            finally:
                del self._waiting[future]
        return True


class Credit(NamedTuple):
    """How many messages a consumer slot wants, and at least; `at` numbers these statements, and the highest counts."""

    at: int
    want: int
    at_least: int


class Do(StrEnum):
    """What a shard has a consumer slot do."""

    STOP = "stop"
    """Lease no more."""
    CANCEL = "cancel"
    """Run no more of these messages of a lease."""
    GIVE_BACK = "give_back"
    """Return untouched messages of a lease to the queue."""


@dataclass(frozen=True)
class SlotOrder(Message):
    """An order to a consumer slot."""

    op: Do
    lease: int = 0
    ids: Sequence[tuple[int, int]] = ()
    """Half-open ranges of ids to cancel."""
    n: int = 0
    """How many messages to give back, at most."""


@dataclass(eq=False)
class ParkedLease:
    """One consumer slot's parked lease call."""

    consumer: str
    session: str
    credit: Credit
    answer: asyncio.Future[Any]
    since: float = 0.0


@dataclass
class ParkingLot:
    """The parked lease calls of one shard, one a consumer slot, and the orders that wait for them.

    A newer call of the same consumer replaces the older one, which returns empty: a call whose
    caller has died must not swallow messages.
    """

    parked: dict[str, ParkedLease] = field(default_factory=dict)
    orders: dict[str, list[SlotOrder]] = field(default_factory=dict)
    known: dict[str, str] = field(default_factory=dict)
    """Consumer slot to session: all that ever parked and were not released."""
    credits: dict[str, Credit] = field(default_factory=dict)
    """Credits of slots that were not parked then: a settle may overtake the call that was sent before it."""

    def park(self, call: ParkedLease) -> None:
        """Register a call; an older one of the same consumer is answered with nothing."""
        older = self.parked.pop(call.consumer, None)
        if older is not None and not older.answer.done():
            older.answer.set_result(None)
        ahead = self.credits.pop(call.consumer, None)
        if ahead is not None and self.known.get(call.consumer, call.session) == call.session:
            call.credit = max(call.credit, ahead)
        self.known[call.consumer] = call.session
        self.parked[call.consumer] = call
        if self.orders.get(call.consumer):
            self._answer(call, None)

    def leave(self, call: ParkedLease) -> None:
        """Forget a call that has timed out or was cancelled by its caller."""
        if self.parked.get(call.consumer) is call:
            del self.parked[call.consumer]

    def hungry(self) -> Iterator[ParkedLease]:
        """Yield calls that want messages, longest parked first; answering them while iterating is fine."""
        for call in list(self.parked.values()):
            if call.credit.want > 0 and not call.answer.done():
                yield call

    def credit(self, consumer: str, credit: Credit) -> None:
        """Record how many messages a consumer wants now."""
        call = self.parked.get(consumer)
        if call is None:
            self.credits[consumer] = max(credit, self.credits.get(consumer, credit))
        else:
            call.credit = max(call.credit, credit)

    def serve(self, call: ParkedLease, lease: Any) -> None:
        """Answer a call with a lease."""
        self._answer(call, lease)

    def order(self, consumer: str, order: SlotOrder) -> None:
        """Send a consumer an order: at once when it is parked, else with its next answer."""
        self.orders.setdefault(consumer, []).append(order)
        call = self.parked.get(consumer)
        if call is not None:
            self._answer(call, None)

    def take_orders(self, consumer: str) -> list[SlotOrder]:
        """Return and forget a consumer's orders."""
        return self.orders.pop(consumer, [])

    def release(self, consumer: str) -> None:
        """Forget a dead consumer."""
        for book in (self.known, self.orders, self.credits):
            book.pop(consumer, None)
        call = self.parked.pop(consumer, None)
        if call is not None and not call.answer.done():
            call.answer.set_result(None)

    def _answer(self, call: ParkedLease, lease: Any) -> None:
        self.leave(call)
        if not call.answer.done():
            call.answer.set_result(lease)
