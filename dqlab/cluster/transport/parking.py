"""Keeps calls waiting at a queue until it has an answer, without polling."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, NamedTuple

from dqlab.cluster.transport.wire import PlainData
from dqlab.numbers import many
from dqlab.rules.picking import serves


async def rung(future: asyncio.Future[Any], timeout: float) -> None:
    """Wait for a future of our own, and give it the result None after `timeout` seconds."""
    timer = asyncio.get_running_loop().call_later(timeout, _give_up, future)
    try:
        await future
    finally:
        timer.cancel()


def _give_up(future: asyncio.Future[Any]) -> None:
    if not future.done():
        future.set_result(None)


class Bell:
    """Wakes the coroutines that wait for a change, each once its condition holds."""

    # Conditions are checked here, once for all rings in one pass of the event loop. A coroutine that woke at each ring
    # would cost a switch, a timer and a future each time, and at a full queue several frames of each producer wait.

    def __init__(self) -> None:
        self._waiting: dict[asyncio.Future[None], Callable[[], bool]] = {}
        self._looking = False
        self._broken: Exception | None = None

    def give_up(self, error: Exception) -> None:
        """Raise an error in all waiting coroutines, now and later."""
        self._broken = error
        self.ring()

    def ring(self) -> None:
        """Wake the coroutines whose condition holds, in the next pass of the event loop."""
        if self._waiting and not self._looking:
            self._looking = True
            # Not `call_soon_threadsafe`: ring it only in the event loop's thread.
            next(iter(self._waiting)).get_loop().call_soon(self._look)

    def _look(self) -> None:
        self._looking = False
        for future, condition in list(self._waiting.items()):
            if future.done():
                continue
            try:
                if self._broken is not None or condition():
                    future.set_result(None)
            except Exception as error:  # noqa: BLE001 - raised in the coroutine that waits for this condition
                future.set_exception(error)

    async def until(self, condition: Callable[[], bool], timeout: float) -> bool:
        """Wait up to `timeout` seconds for a side-effect-free condition, and return whether it holds."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout
        while not condition():  # check again after waking: another coroutine may have run first and changed it
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
    """The number of messages that a consumer slot wants."""

    # Compared as a tuple: `at` must stay the first field.
    at: int
    """Number of this statement by the slot; the highest is valid."""
    want: int
    at_least: int


class Do(StrEnum):
    """What a shard has a consumer slot do."""

    CANCEL = "cancel"
    """Run no more of these messages of a lease."""
    GIVE_BACK = "give_back"
    """Return untouched messages of a lease to the queue."""


@dataclass(frozen=True)
class SlotOrder(PlainData):
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
    has: Mapping[str, float] = field(default_factory=dict)
    """The most that it has of each resource."""
    stays: bytes | None = None


@dataclass
class ParkingLot:
    """The parked lease calls of one shard, one for each consumer slot, and the orders that wait for them."""

    parked: dict[str, ParkedLease] = field(default_factory=dict)
    orders: dict[str, list[SlotOrder]] = field(default_factory=dict)
    known: dict[str, str] = field(default_factory=dict)
    """Slot to session, for all slots that ever parked and were not released."""
    has: dict[str, Mapping[str, float]] = field(default_factory=dict)
    """What the known slots have of resources, for those that have any."""
    credits: dict[str, Credit] = field(default_factory=dict)
    """Credits of slots that were not parked: a settle may overtake the lease call that was sent before it."""

    def park(self, call: ParkedLease) -> None:
        """Register a call, which replaces an older one of the same slot."""
        # Answer the older call with nothing: if its caller has died, it would swallow the next messages.
        older = self.parked.pop(call.consumer, None)
        if older is not None and not older.answer.done():
            older.answer.set_result(None)
        ahead = self.credits.pop(call.consumer, None)
        if ahead is not None and self.known.get(call.consumer, call.session) == call.session:
            call.credit = max(call.credit, ahead)
        self.known[call.consumer] = call.session
        if call.has:
            self.has[call.consumer] = call.has
        self.parked[call.consumer] = call
        if self.orders.get(call.consumer):
            self.serve(call, None)

    def leave(self, call: ParkedLease) -> None:
        """Forget a call that timed out or was cancelled by its caller."""
        # `is`: the slot may have parked a newer call since.
        if self.parked.get(call.consumer) is call:
            del self.parked[call.consumer]

    def serving(self, needs: Mapping[str, float]) -> int:
        """Return how many known slots can run messages with these needs."""
        return sum(serves(has, needs) for has in self.has.values()) if needs else len(self.known)

    def unable(self, needs: Mapping[str, float]) -> str:
        """Return in words what messages need and no known slot has, or ""."""
        if not needs or not self.known or self.serving(needs):
            return ""
        most = {name: max((has.get(name, 0) for has in self.has.values()), default=0) for name in needs}
        asked, found = (" and ".join(f"{name}={n:g}" for name, n in each.items()) for each in (needs, most))
        return f"it needs {asked} for each call, and of {many(len(self.known), 'slot')} none has more than {found}"

    def hungry(self) -> Iterator[ParkedLease]:
        """Yield the calls that want messages, longest parked first."""
        for call in list(self.parked.values()):  # a copy, so that the caller may answer calls meanwhile
            if call.credit.want > 0 and not call.answer.done():
                yield call

    def credit(self, consumer: str, credit: Credit) -> None:
        """Record how many messages a slot wants now."""
        call = self.parked.get(consumer)
        if call is None:
            self.credits[consumer] = max(credit, self.credits.get(consumer, credit))
        else:
            call.credit = max(call.credit, credit)

    def serve(self, call: ParkedLease, lease: Any) -> None:
        """Answer a call with a lease, or None for its orders."""
        self.leave(call)
        if not call.answer.done():
            call.answer.set_result(lease)

    def order(self, consumer: str, order: SlotOrder) -> None:
        """Send a slot an order, at once if it is parked, else with its next answer."""
        self.orders.setdefault(consumer, []).append(order)
        call = self.parked.get(consumer)
        if call is not None:
            self.serve(call, None)

    def take_orders(self, consumer: str) -> list[SlotOrder]:
        """Return and forget a slot's orders."""
        return self.orders.pop(consumer, [])

    def release(self, consumer: str) -> None:
        """Forget the slot of a dead consumer."""
        for book in (self.known, self.has, self.orders, self.credits):
            book.pop(consumer, None)
        call = self.parked.pop(consumer, None)
        if call is not None and not call.answer.done():
            call.answer.set_result(None)
