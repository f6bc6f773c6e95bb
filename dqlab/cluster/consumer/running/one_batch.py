"""Calls a function with one batch of messages, and gives each message an outcome of its own; see `halving`."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Generator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

from dqlab.cluster.consumer.running.beside import Beside
from dqlab.cluster.consumer.running.execution import Origin, Work, end_if_forked, failed, opened, running, seal_result
from dqlab.cluster.consumer.running.halving import SMALLER, WHOLE, Call, Halving, InARow, shares
from dqlab.cluster.consumer.running.outcomes import Done
from dqlab.cluster.transport.alike import seal_rows
from dqlab.documents import Document
from dqlab.failures.failure import Failure
from dqlab.frame import Kind, Outcome
from dqlab.plan import Smaller
from dqlab.printed import Ring
from dqlab.rules.retry import Later
from dqlab.texts import said_by

_FIRST: Any = None
"""What a generator that has not begun is sent."""


class OneBatch(Beside):
    """Some messages for one call, and their outcomes by place; in its context it stands for a `Queued`."""

    kind, stopped, document = Kind.ELEMENT, False, None

    def __init__(self, messages: Sequence[bytes], origin: Origin, row: InARow) -> None:
        self._messages, self._origin, self.row = messages, origin, row
        self.began = time.perf_counter()
        """When its first call began; until then, when it was made."""
        self.done: list[Done] = []
        self.again: list[int] = []
        """Places for the next batch."""
        self.alone: list[int] = []
        """Places of messages of which one has killed their process: each runs alone."""
        self.took: dict[int, float] = {}
        self.versions: dict[int, str] = {}
        self.spent, self.once = {}, {}
        self._called: Sequence[tuple[int, str | int | None, Any]] = ()
        """What the call that runs was given."""
        self.calls: list[tuple[int, float]] = []
        """Documents and seconds of each call that succeeded."""
        self.logs = "failed"
        self.printed: Ring | None = None
        """What the calls printed, as nobody knows for which document: that of all."""
        self.too_many = 0
        """Documents of the smallest call that was too large, 0 for none."""
        self.cancelled_places: Callable[[], list[int]] = list
        self.before_call: Callable[[list[int]], object] = lambda places: None

    @property
    def cancelled(self) -> Collection[int]:
        """Places of the messages that are cancelled by now."""
        return self.cancelled_places()

    def messages(self) -> Sequence[bytes]:
        """Return the bytes of each message."""
        return self._messages

    def ring_at(self, index: int) -> Ring | None:
        """Return where to write what the calls print, or None where nothing is kept."""
        if self.printed is None and self.logs != "none":
            self.printed = Ring()
        return self.printed

    def note_step(self, index: int, number: int, total: int) -> None:
        """Note nothing: a call has many documents."""

    def place_of(self, index: int, given: Sequence[Any]) -> int | None:
        """Return the place of the document that is among these arguments, or None if there is none."""
        return next((place for place, _, value in self._called if any(each is value for each in given)), None)

    def pay(self, index: int, amounts: Mapping[str, float]) -> None:
        """Note what the call has spent: the same part for each of its documents."""
        each = {unit: amount / len(self._called) for unit, amount in amounts.items()}
        for place, _, _ in self._called:
            super().pay(place, each)

    def run(self, work: Work) -> None:
        """Run the batch here."""
        steps, answer = self._steps(work, paid=False), _FIRST
        with suppress(StopIteration):
            while True:
                values = steps.send(answer)
                try:
                    answer = work.call(values), None
                except BaseException as raised:  # noqa: BLE001 - sys.exit in a function fails its messages
                    answer = None, raised

    async def run_coroutine(self, work: Work) -> None:
        """Run the batch on this event loop."""
        steps, answer = self._steps(work, paid=True), _FIRST
        with suppress(StopIteration):
            while True:
                values = steps.send(answer)
                try:
                    answer = await work.call(values), None
                except BaseException as raised:  # noqa: BLE001 - as in `run`
                    answer = None, raised

    def _steps(self, work: Work, *, paid: bool) -> Generator[list[Any], tuple[Any, BaseException | None], None]:
        """Yield the documents of each call; its result, or what it raised, is the answer."""
        around, self.began = running.get(), time.perf_counter()
        all_of_it = self._open(work)
        halving, last = Halving(len(all_of_it), self.row), None
        steps, answer = halving.steps(), ""
        with suppress(StopIteration):
            step = next(steps)
            while True:
                some = [all_of_it[place] for place in step.places]
                if type(step) is Call:
                    places = [place for place, _, _ in some]
                    running.set((self, places[0]))  # type: ignore[arg-type]
                    self._called = some
                    self.before_call(places)
                    began = time.perf_counter()
                    result, error = yield [value for _, _, value in some]
                    end_if_forked()
                    seconds = time.perf_counter() - began
                    running.set((self, places[0]))  # type: ignore[arg-type]
                    error = error or self._keep(some, result, work, seconds)
                    answer = "" if error is None else self._signal(error, len(some), paid=paid)
                    last = (error, seconds) if error is not None else last
                elif last is not None:
                    for place, key, _ in some:
                        self.done.append(failed(place, last[0], self._origin, work.code, key, last[1]))
                step = steps.send(answer)
        self.row, self.again = halving.row, [all_of_it[place][0] for place in halving.again]
        running.set(around)

    def _open(self, work: Work) -> list[tuple[int, str | int | None, Any]]:
        """Return the place, key and value of each message; one that cannot be opened fails here."""
        some: list[tuple[int, str | int | None, Any]] = []
        for place, message in enumerate(self._messages):
            running.set((self, place))  # type: ignore[arg-type]
            try:
                key, value, version = opened(message)
            except BaseException as error:  # noqa: BLE001 - opening runs users' code
                self.done.append(failed(place, error, self._origin, work.code, None, 0.0))
            else:
                self.versions |= {place: version} if version else {}
                some.append((place, key, value))
        return some

    def _keep(
        self, some: Sequence[tuple[int, str | int | None, Any]], result: Any, work: Work, seconds: float
    ) -> BaseException | None:
        """Keep the result of each document, or return why there is none."""
        try:
            values = shares(result, [_name(value) for _, _, value in some])
        except BaseException as error:  # noqa: BLE001 - looking at a result may run users' code
            return error
        each, limit = seconds / len(some), work.most(self._origin)
        seal = work.sealer(limit)
        self.took |= dict.fromkeys((place for place, _, _ in some), each)
        self.calls.append((len(some), seconds))
        is_typed = work.plan is not None and work.plan.returns is not None
        sealed = None if is_typed else seal_rows(values, seal)
        if sealed is not None and len(sealed[0]) <= limit:
            self.done += [(place, Outcome.ACK, row, key) for (place, key, _), row in zip(some, sealed, strict=True)]
            return None
        for (place, key, _), value in zip(some, values, strict=True):
            try:
                self.done.append((place, Outcome.ACK, seal_result(value, seal, limit), key))
            except BaseException as error:  # noqa: BLE001 - pickling runs users' code
                self.done.append(failed(place, error, self._origin, work.code, key, each))
        return None

    def _signal(self, error: BaseException, n: int, *, paid: bool) -> str:
        """Return what an exception says to `Halving`."""
        kind = type(error)
        if issubclass(kind, Smaller | MemoryError) or kind.__name__ == "OutOfMemoryError":  # of CUDA
            self.too_many = n
            return SMALLER
        if paid or issubclass(kind, Later):
            return WHOLE
        return Failure.from_exception(error, when=0.0, seconds=0.0).fingerprint


def key_in(message: bytes, name: str) -> str:
    """Return the key of a message in which a text stands, "" without one."""
    with suppress(BaseException):  # opening runs users' code
        if name.encode() in message and (key := opened(message)[0]) is not None:
            return str(key)
    return ""


def shared(message: bytes, key: str) -> str:
    """Return the value that the documents of a batch share, as text; that of a document without it is ""."""
    with suppress(BaseException):  # users' code; a document that cannot be opened fails in its batch
        _, value, _ = opened(message)
        return said_by(value[key] if hasattr(type(value), "__getitem__") else getattr(value, key))
    return ""


def _name(value: Any) -> Any:
    """Return the name under which a dict by key has the result of a document: its key, or the value itself."""
    return value.key if type(value) is Document else value


def one_by_one(work: Work) -> Work:
    """Return a function of one document that calls a function of a batch with it alone."""
    call = work.call

    def alone(value: Any) -> Any:
        return shares(call([value]), [_name(value)])[0]

    async def awaited(value: Any) -> Any:
        return shares(await call([value]), [_name(value)])[0]

    return replace(work, call=awaited if work.is_coroutine else alone)


def opened_parcel(work: Work, origin: Origin, before_call: Callable[[OneBatch, list[int]], None]) -> Work:
    """Return a function that runs the batch in a parcel, and returns its outcomes."""

    def run(parcel: Any) -> Any:
        messages, row, once = parcel
        one = OneBatch(messages, origin, InARow(*row))
        one.once = once
        one.before_call = lambda places: before_call(one, places)
        one.run(work)
        return one.done, one.again, one.took, one.versions, one.calls, one.too_many, one.spent, one.once, tuple(one.row)

    return replace(work, call=run, rows=True, plan=None)
