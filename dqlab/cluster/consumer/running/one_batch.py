"""Calls a function with one batch of messages, in halves after an exception, and gives each message its outcome."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any, NamedTuple, TypeAlias, TypeVar

from dqlab.cluster.consumer.running.chunk import Done
from dqlab.cluster.consumer.running.execution import Origin, Work, failed, opened, refuse_value, seal_result
from dqlab.cluster.consumer.running.here import Queued, end_if_forked, running
from dqlab.cluster.transport.sealed import seal_rows
from dqlab.documents import Document
from dqlab.errors import ResultRefused
from dqlab.failures.failure import Failure
from dqlab.frame import Outcome
from dqlab.imports import loaded
from dqlab.numbers import many
from dqlab.plan import Smaller
from dqlab.printed import Ring
from dqlab.rules.retry import Later
from dqlab.texts import said_by

_FIRST: Any = None
"""What a generator that has not begun is sent."""
_T = TypeVar("_T")
_Document: TypeAlias = tuple[int, str | int | None, Any]
"""Place, key and value."""
_Steps: TypeAlias = Generator[list[Any], tuple[Any, BaseException | None], _T]
SMALLER, WHOLE = "smaller", "whole"
"""What a call raised where that is no fingerprint: it asks for smaller batches; it is about all its documents alike."""
HOPELESS = 8
"""Where half of the documents fail, one row in 256 is as long. From then on a batch fails with its first document."""
FEW = 3
"""Documents that are called one by one."""


class InARow(NamedTuple):
    """How many documents, each called alone, raised the same, with no call in between that succeeded."""

    fingerprint: str = ""
    n: int = 0

    def after(self, raised: str, documents: int) -> InARow:
        """Return the same after a call with so many documents."""
        if not raised:
            return InARow()
        if documents > 1 or raised in (SMALLER, WHOLE):
            return self
        return InARow(raised, self.n + 1 if raised == self.fingerprint else 1)

    @property
    def hopeless(self) -> bool:
        """Whether all documents are taken to raise this: with a wrong key, more calls would tell nothing."""
        return self.n >= HOPELESS


class OneBatch(Queued):
    """Some messages for one call, and their outcomes by place."""

    done: list[Done]

    def __init__(self, messages: Sequence[bytes], origin: Origin, row: InARow) -> None:
        self._messages, self._origin, self.row = messages, origin, row
        self.began = time.perf_counter()
        """When its first call began; until then, when it was made."""
        self.done = []
        self.again: list[int] = []
        """Places for the next batch."""
        self.alone: list[int] = []
        """Places of messages of which one has killed their process: each runs alone."""
        self.took: dict[int, float] = {}
        self.versions, self.spent, self.once = {}, {}, {}
        self._called: list[_Document] = []
        """What the call that runs was given."""
        self._work, self._paid = Work(refuse_value), False
        self._raised: tuple[BaseException, float] = AssertionError("no call has raised"), 0.0
        """What the last call that raised has raised, and after how many seconds."""
        self.calls: list[tuple[int, float]] = []
        """Documents and seconds of each call that succeeded."""
        self.logs = "failed"
        self.printed: Ring | None = None
        """What the calls printed, as nobody knows for which document: that of all."""
        self.too_many = 0
        """Documents of the smallest call that was too large, 0 for none."""
        self.cancelled_places: Callable[[], list[int]] = list
        self.before_call: Callable[[list[int]], object] = lambda places: None

    def is_cancelled(self, index: int | None) -> bool:
        """Return whether the message at a place is cancelled by now."""
        return index in self.cancelled_places()

    def messages(self) -> Sequence[bytes]:
        """Return the bytes of each message."""
        return self._messages

    def ring_at(self, index: int) -> Ring | None:
        """Return where to write what the calls print, or None where nothing is kept."""
        if self.printed is None and self.logs != "none":
            self.printed = Ring()
        return self.printed

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

    def _steps(self, work: Work, *, paid: bool) -> _Steps[None]:
        """Yield the documents of each call; its result, or what it raised, is the answer."""
        around, self.began = running.get(), time.perf_counter()
        self._work, self._paid = work, paid
        documents = self._open()
        groups = [documents]
        if self.row.hopeless and len(documents) > 1:
            known = self.row.fingerprint
            raised = yield from self._call(documents[:1])
            if raised == known:
                self._blame(documents)
                groups = []
            else:
                self._blame(documents[:1] if raised else [])
                groups = [documents[1:]]
        while groups:
            group = groups.pop()
            raised = yield from self._call(group)
            if raised == SMALLER and len(group) > 1:
                groups += [group[len(group) // 2 :], group[: len(group) // 2]]
            elif raised and (raised in (SMALLER, WHOLE) or len(group) == 1):
                self._blame(group)
            elif raised:
                yield from self._culprit(group, raised)
        self.again.sort()
        running.set(around)

    def _culprit(self, suspects: list[_Document], first: str) -> _Steps[None]:
        """Find a document to blame for what a group has raised, in about log2 n calls."""
        # Halves that succeed are done, and a half whose other one succeeded is not called as a whole. What lies beside
        # the halves that raised was never called without the one to blame, and costs no call of its own: it goes into
        # the next batch.
        few, compared = len(suspects) <= FEW, False
        while len(suspects) > FEW:
            half, rest = suspects[: len(suspects) // 2], suspects[len(suspects) // 2 :]
            raised = yield from self._call(half)
            if not raised:
                suspects = rest
                continue
            # Do documents outside the half that raised raise the same alone?
            while raised == first and rest and not compared:
                probe = rest.pop()
                same = yield from self._call([probe])
                self._blame([probe] if same else [])
                if self.row.hopeless:
                    self._blame(half + rest)
                    return
                compared = same != first
            compared = True
            self._later(rest)
            suspects = half
        while suspects:
            one, suspects = suspects[:1], suspects[1:]
            if (yield from self._call(one)):
                self._blame(one)
                if not few:
                    self._later(suspects)
                    return

    def _call(self, some: list[_Document]) -> _Steps[str]:
        """Call the function with some documents; return the fingerprint of what it raised, "" if it succeeded."""
        places = [place for place, _, _ in some]
        running.set((self, places[0]))
        self._called = some
        self.before_call(places)
        began = time.perf_counter()
        result, error = yield [value for _, _, value in some]
        end_if_forked()
        seconds = time.perf_counter() - began
        running.set((self, places[0]))
        error = error or self._keep(some, result, seconds)
        raised = "" if error is None else self._signal(error, len(some))
        self._raised = self._raised if error is None else (error, seconds)
        self.row = self.row.after(raised, len(some))
        return raised

    def _blame(self, some: list[_Document]) -> None:
        """Fail some documents with what the last call that raised has raised."""
        for place, key, _ in some:
            self.done.append(failed(place, self._raised[0], self._origin, self._work.code, key, self._raised[1]))

    def _later(self, some: list[_Document]) -> None:
        """Leave documents that were not called without the one to blame to the next batch."""
        self.again += [place for place, _, _ in some]

    def _open(self) -> list[_Document]:
        """Return the place, key and value of each message; one that cannot be opened fails here."""
        some = list[_Document]()
        for place, message in enumerate(self._messages):
            running.set((self, place))
            try:
                key, value, version = opened(message)
            except BaseException as error:  # noqa: BLE001 - opening runs users' code
                self.done.append(failed(place, error, self._origin, self._work.code, None, 0.0))
            else:
                self.versions |= {place: version} if version else {}
                some.append((place, key, value))
        return some

    def _keep(self, some: Sequence[_Document], result: Any, seconds: float) -> BaseException | None:
        """Keep the result of each document, or return why there is none."""
        work = self._work
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
                self.done.append(failed(place, error, self._origin, self._work.code, key, each))
        return None

    def _signal(self, error: BaseException, n: int) -> str:
        """Return what an exception says about other documents."""
        kind = type(error)
        if issubclass(kind, Smaller | MemoryError) or kind.__name__ == "OutOfMemoryError":  # of CUDA
            self.too_many = n
            return SMALLER
        if self._paid or issubclass(kind, Later):
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


SAID = "done", "again", "took", "versions", "calls", "too_many", "spent", "once", "row"
"""What a batch that has run in a process says."""


def opened_parcel(work: Work, origin: Origin, before_call: Callable[[OneBatch, list[int]], None]) -> Work:
    """Return a function that runs the batch in a parcel, and returns its outcomes."""

    def run(parcel: Any) -> Any:
        messages, row, once = parcel
        one = OneBatch(messages, origin, row)
        one.once = once
        one.before_call = lambda places: before_call(one, places)
        one.run(work)
        return {name: value for name, value in vars(one).items() if name in SAID}

    return replace(work, call=run, rows=True, plan=None)


def shares(result: Any, names: Sequence[Any]) -> Sequence[Any]:
    """Return the result of each document of a batch, or raise ResultRefused; `names` are the documents' keys."""
    n, kind = len(names), type(result)
    found: Sequence[Any] | None = None
    if issubclass(kind, Mapping):
        with suppress(TypeError):  # a document need not be hashable
            if len(result) == n and all(name in result for name in names):
                return [result[name] for name in names]
        columns = {column: _rows(values) for column, values in result.items()}
        if columns and all(values is not None and len(values) == n for values in columns.values()):
            return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
        what = f"a dict of {many(len(result), 'entry')}"
    elif hasattr(kind, "to_pylist") or hasattr(kind, "to_dict"):  # tables of Arrow and pandas
        found = result.to_pylist() if hasattr(kind, "to_pylist") else result.to_dict("records")
        what = f"a table of {many(len(result), 'row')}"
    else:
        found = _rows(result)
        what = many(len(found), "result") if found is not None else f"a value of type {kind.__name__}"
    if found is not None and len(found) == n:
        return found
    raise ResultRefused(
        reason=f"the function got a batch of {many(n, 'document')} and returned {what}. Nothing of that call was "
        "kept. Return one result for each document, in their order, as a list or an array; or a dict of columns that "
        "long, or a dict by the documents' keys."
    )


def _rows(values: Any) -> Sequence[Any] | None:
    """Return the rows of a list or an array, or None for anything else."""
    if isinstance(values, list | tuple) and not hasattr(values, "_fields"):
        return values
    if hasattr(values, "detach"):  # a tensor: a row of it would be pickled with all the others
        values = values.detach().cpu().numpy()
    shape = getattr(values, "shape", None)
    if not isinstance(shape, tuple) or not shape:
        return None
    if len(shape) == 1:
        return list(values.tolist())
    numpy = loaded("numpy")
    # Views of it, one for each row: each is copied once, when it is sealed.
    return values if numpy is not None and type(values) is numpy.ndarray else [values[row] for row in range(shape[0])]
