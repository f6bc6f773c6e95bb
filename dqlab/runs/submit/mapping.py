"""Turns a run's input into messages, in one thread that iterates the input and keeps none of it.

The elements are those at the time of the call: the user may change a list before it is read.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from typing import Any, NamedTuple, TypeVar

from dqlab.cluster.transport import calls, orders
from dqlab.cluster.transport.queue_calls import Handle
from dqlab.cluster.transport.sealed import SealError, make_sealer, open_value, seal_all, seal_or_explain
from dqlab.config import nbytes, option
from dqlab.documents import Documents
from dqlab.documents.named_rows import is_homeless, sealer_for
from dqlab.documents.spans import Span, spans_of
from dqlab.documents.storage import naming
from dqlab.errors import (
    CallTimeout,
    DqlabError,
    MessageTooLarge,
    NotPicklable,
    RunCancelled,
    RunExists,
    SubmissionIncomplete,
    in_words,
)
from dqlab.log.errors import DiskFull
from dqlab.numbers import many
from dqlab.rules.book import ABANDONED, CANCELLED
from dqlab.rules.puts import Submitted
from dqlab.rules.ranges import Ranges
from dqlab.runs.submit.elements import Digest, identity, length_of, watched
from dqlab.runs.submit.sender import RunSender

NOTE_EVERY = 1.0
"""Seconds between two records of how much of the input the queue holds."""
LOOK_EVERY = 0.2
"""Seconds between two looks whether an earlier submission has ended."""
AT_ONCE = 1000
"""Elements of a span that are handed over at once."""
INPUT_PATIENCE = 0.5
"""Seconds that a stopped input may take to give its next element before it is abandoned."""
ENDING = 5.0
"""Seconds to wait while another thread reports the end of a submission to the queue."""
SLICE, SLICE_BYTES, SLICE_S = 256, 1 << 17, 0.005
"""Elements that are pickled together, at most, and above which bytes or seconds the next are fewer."""
_Sealed = TypeVar("_Sealed")


class _Slice(NamedTuple):
    """Neighbours of an input, with their pickles and the bytes of these."""

    elements: tuple[Any, ...]
    payloads: list[bytes]
    nbytes: int


class Submitter:
    """The only thread that iterates a run's input."""

    def __init__(
        self,
        name: str,
        elements: Iterable[Any],
        sender: RunSender,
        *,
        before: Submitted | None = None,
        verify: bool = False,
        reopen: bool = False,
        earlier: Callable[[], Submitted | None] | None = None,
        then: Callable[[], object] | None = None,
    ) -> None:
        self.name = name
        self.count = 0
        """Elements taken from the input so far."""
        self.digest = Digest(lambda: sender.through)
        """Digest of these elements."""
        self.elements, self.sender = elements, sender
        self._had = length_of(elements)
        self._before = before or Submitted()
        """What an earlier submission put; these elements are only hashed."""
        self.verifies = verify
        """Whether nothing is put, and the input must only be the same as before."""
        self._reopen = reopen
        """Whether the input was cut off, and the elements that the queue does not hold are put now."""
        # A message above its lane's bound would wait forever for room that never comes.
        limit = nbytes(option("message.max-bytes"), name="dqlab.message.max-bytes")
        self._limit = limit if sender.max_bytes is None else min(limit, sender.max_bytes)
        self._earlier = earlier
        """Returns what a submission that still goes on has put, and None before its end."""
        self._then = then
        """Called when all of the input has been read and is unchanged; its exception is the submission's error."""
        self._error: BaseException | None = None
        self.by_input = False
        """Whether the input itself raised the error: such an error is not the queue's, whatever its class."""
        self.finished = threading.Event()
        self._stopped: BaseException | None = None
        """Why it was stopped, if it was."""
        self._noted = 0
        """Elements that the queue held at the last record."""
        self._noting = threading.Lock()
        """Held while a record is sent, so that no record arrives after the one of the end."""
        self._ended = threading.Event()
        """Set when the end is about to be reported: from then on nothing else is recorded."""
        self._ending = threading.Lock()
        """Never released, so that one thread reports the end: the submitting one, or a caller of `end` or `leave`."""
        self._thread = threading.Thread(target=self._run, name=f"dqlab-submit-{name}", daemon=True)

    @property
    def sending(self) -> bool:
        """Whether this process may still send more of the run's input."""
        return not (self.verifies or self.finished.is_set())

    @property
    def undecided(self) -> bool:
        """Whether the input is still being compared with what was put earlier."""
        return self.verifies and not self.finished.is_set()

    def start(self) -> None:
        """Begin to iterate."""
        try:
            self._thread.start()
        except BaseException as error:
            if not self.began:  # no thread will set `finished`, and callers would wait forever
                self.error = error
                self.finished.set()
            raise

    @property
    def began(self) -> bool:
        """Whether the thread was started."""
        return self._thread.ident is not None

    def join(self, timeout: float = 5.0) -> bool:
        """Wait for the submission to end, and return whether it did."""
        # Bounded: the input may block its thread for as long as it likes.
        return self.finished.wait(timeout)

    def stop(self, error: BaseException) -> None:
        """Stop iterating because of `error`, without waiting for the end."""
        if not self.finished.is_set():
            self._stopped = error
            self.sender.close(error)

    def end(self) -> None:
        """Bring a stopped submission to its end, within about a second."""
        if self.finished.wait(INPUT_PATIENCE):
            return
        # The input still blocks its thread, which nothing can end from outside. This reports the end in its place; the
        # thread finds `_ending` taken when the input lets it go, and ends silently.
        if self._ending.acquire(blocking=False):
            self._error = self._error or self.sender.failure
            self._end()
        else:
            self.join(ENDING)

    def leave(self) -> None:
        """Abandon a stopped submission without reporting its end."""
        # The queue is gone, and a new one may have its name: a late report would reach that one.
        self._ended.set()  # without `_noting`: a record in flight would delay the close of the queue
        if self._ending.acquire(blocking=False):
            self.finished.set()

    @property
    def error(self) -> BaseException | None:
        """Why the input ended early, or None where it was stopped or refused."""
        # The queue knows what became of a run that was stopped or refused; the client must not add an error of its own.
        return None if self._stopped is not None or self.refused else self._error

    @error.setter
    def error(self, error: BaseException) -> None:
        self._error = error

    @property
    def refused(self) -> bool:
        """Whether the queue refused the rest, because another client cancelled the run or cut it off."""
        return isinstance(self._error, RunCancelled) and not self.by_input

    @property
    def unsent(self) -> bool:
        """Whether `error` is about the input, or one element of it, rather than about the queue."""
        # An error of the input's own code counts too, so dqlab's errors are about the queue unless listed here.
        about_one = isinstance(self.error, NotPicklable | MessageTooLarge)
        return self.error is not None and (self.by_input or about_one or not isinstance(self.error, DqlabError))

    def _run(self) -> None:
        try:
            try:
                self._submit()
                if self._then is not None and self._stopped is None:
                    self._then()
            except BaseException as error:  # noqa: BLE001 - wait() and results() raise it, see Run
                self.error = self._closed_error() or error
        finally:
            if self._ending.acquire(blocking=False):
                self._end()

    def _end(self) -> None:
        """Report the end to the queue, holding `_ending`."""
        with self._noting:  # waits for a record in flight: it must not arrive after the end
            self._ended.set()
        try:
            if not self.verifies and not self._same_end():
                self._finish()
        except Exception as error:  # noqa: BLE001 - likewise; otherwise waiting clients get no error
            self.error = self.error or self._closed_error() or error
        finally:
            self.finished.set()

    def _closed_error(self) -> DqlabError | None:
        """Return the error of a closed lab, or None while the lab is open."""
        link = self.sender.handle.of_run(self.name).link
        return link.closed_error() if link.closed else None

    def _submit(self) -> None:
        sender, limit, plain, update = self.sender, self._limit, self.sealer(make_sealer()), self.digest.update
        self._wait_for_earlier()
        before = self._before
        skip, beyond = before.through, before.beyond
        kind, seal = type(None), plain
        self.by_input = True
        threading.Thread(target=self._note, name=f"dqlab-note-{self.name}", daemon=True).start()
        for element in self.reading():
            try:
                if sender.failure is not None:
                    raise sender.failure
                if type(element) is not kind:  # inline rather than a function: it runs for each element
                    if isinstance(element, Span):
                        self._submit_span(element, plain)
                        continue
                    if type(element) is _Slice:
                        self._submit_slice(element)
                        continue
                    kind = type(element)
                    seal = sealer_for(kind, plain)
                try:
                    payload = seal(element)
                except SealError:
                    payload = seal_or_explain(element, f"element {self.count}")
                if len(payload) > limit:
                    raise MessageTooLarge(position=self.count, size=len(payload), limit=limit)
                # Hashed before it is sent: the queue may record the digest as soon as it holds the element.
                update(element, payload)
                self.count += 1
                if self.count <= skip or self.verifies:
                    self._check()
                    continue
                if self._reopen:
                    self._open_again()
                if beyond and self._is_there():
                    continue
                sender.append(element, payload)
            except BaseException:  # not raised by the input: its errors come from the `for` itself
                self.by_input = False
                raise
        self.by_input = False
        self._check_end()

    def _submit_span(self, span: Span, seal: Callable[[object], bytes]) -> None:
        """Put elements that one message stands for."""
        messages = span.messages(seal)
        first = open_value(next(iter(messages)))
        at, size = messages.longest()
        if size > self._limit:
            raise MessageTooLarge(position=self.count + at, size=size, limit=self._limit)
        for lo in range(0, len(span), AT_ONCE):
            hi = min(lo + AT_ONCE, len(span))
            self.digest.extend(span.digested(lo, hi, seal))
            self.count += hi - lo
            self.sender.extend(first, messages.cut(lo, hi - lo), span.heavy(lo, hi))

    def _submit_slice(self, slice_: _Slice) -> None:
        """Put elements that were pickled together."""
        self.digest.extend(list(map(identity, slice_.elements, slice_.payloads)))
        self.count += len(slice_.elements)
        self.sender.append_all(slice_.elements, slice_.payloads, slice_.nbytes)

    def _wait_for_earlier(self) -> None:
        """Wait for the end of the submission that this input is compared with."""
        while self._earlier is not None:
            self._raise_given_up()
            before = self._earlier()
            if before is not None:
                self._before = before
                return
            time.sleep(LOOK_EVERY)

    def sealer(self, seal: Callable[[Any], _Sealed]) -> Callable[[Any], _Sealed]:
        """Return `seal` as a function that pickles elements as messages of the run contain them."""
        return naming(seal, self.sender.opening.record.get("options", ()))

    def reading(self) -> Iterable[Any]:
        """Return the input to iterate, which raises UsageError if its length changed since it was mapped."""
        elements = self.elements
        if type(elements) is tuple:
            return self._sliced(elements)
        # Not a subclass of a user's, which may iterate otherwise.
        spans = elements._spans() if type(elements) is Documents else spans_of(elements)
        return watched(spans, self._had) if spans is self.elements else self._apart(spans)

    def _apart(self, spans: Iterable[Any]) -> Iterator[Any]:
        """Yield spans where all their elements are new, else their elements."""
        for span in spans:
            if isinstance(span, Span) and not self._takes_spans:
                yield from span
            else:
                yield span

    def _sliced(self, elements: tuple[Any, ...]) -> Iterator[Any]:
        """Yield slices of which all elements are new and can be sent, and the other elements one by one."""
        seal, at, n = self.sealer(seal_all), 0, 1
        while at < len(elements):
            neighbours, since = elements[at : at + n], time.monotonic()
            at += n
            payloads = (
                seal(neighbours)
                if self._takes_spans and not any(map(is_homeless, set(map(type, neighbours))))
                else None
            )
            if payloads is None or max(map(len, payloads)) > self._limit:
                yield from neighbours
                continue
            nbytes = sum(map(len, payloads))
            yield _Slice(neighbours, payloads, nbytes)
            # Large elements, and those that take long to pickle, do not wait for others.
            small = nbytes < SLICE_BYTES and time.monotonic() < since + SLICE_S
            n = min(2 * n, SLICE) if small else max(n // 2, 1)

    @property
    def _takes_spans(self) -> bool:
        """Whether no element to come has to be compared with what the queue has."""
        before = self._before
        return not (self.verifies or self._reopen or before.beyond) and self.count >= before.through

    def _check_end(self) -> None:
        """Raise if the input ended earlier than the first time."""
        end = self._before.end
        if self.count < end:
            raise self._differing(f"{many(end, 'document')}, these are {self.count:,}")
        if self._reopen:
            self._open_again()

    def _is_there(self) -> bool:
        """Return whether the queue holds this element, which follows a gap."""
        before = self._before
        if self.count == before.end:
            self._compare(before.end_digest)
        return self.count - 1 in before.beyond

    def _raise_given_up(self) -> None:
        """Raise the reason if nothing more is sent."""
        if self.sender.failure is not None:
            raise self.sender.failure

    def _note(self) -> None:
        """Record how far the queue holds the input, from a thread of its own: an input may yield nothing for hours."""
        while not self._ended.wait(NOTE_EVERY):
            if self.sender.held.size == self._noted:
                continue
            with self._noting, suppress(DqlabError):  # the submitting thread raises the same error
                if not self._ended.is_set():
                    self._send_note()

    def _send_note(self) -> None:
        """Record how far the queue holds the input, holding `_noting`."""
        # If this process dies, the next one recognises the input by this record.
        if not (self.verifies or self._reopen):
            handle = self.sender.handle
            with self.digest.keeping():  # more may be confirmed between the two lines, and forgotten by the digest
                held = handle.link.sync(self._held())
                order = self._submitted(held)
            with suppress(CallTimeout, DiskFull):  # puts decide whether the submission continues
                handle.link.sync(handle.order(order))
                self._noted = held.size  # only after it arrived, or a lost record would not be sent again

    async def _held(self) -> Ranges:
        return Ranges(self.sender.held)  # a copy made on the loop, where `held` changes

    def _submitted(self, held: Ranges) -> orders.RecordSubmitted:
        """Return the order that records what the queue holds."""
        return orders.RecordSubmitted(self.sender.run, self.digest.submitted(held, self._before), self.sender.producer)

    def _open_again(self) -> None:
        """Reopen the run, since the input so far is the run's."""
        self._raise_given_up()  # a cancelled run must not be reopened
        self._reopen = False  # before the call: if only one shard reopens, `_finish` must seal it again
        sender, handle = self.sender, self.sender.handle
        handle.link.sync(handle.order(orders.Reopen(sender.run, handle.link.client.id, sender.producer)))

    def _same_end(self) -> bool:
        """Return whether the input of a run that was cut off ended again before anything new."""
        # Nothing was reopened, so the run's record is still right; another report would change it.
        return self._reopen and self._error is not None

    def _check(self) -> None:
        """Compare the input with what an earlier submission put."""
        through = self._before.through
        if self.count > through:
            raise self._differing(f"{many(through, 'document')}, these are more")
        if self.count == through:
            self._compare(self._before.digest)

    def _compare(self, digest: str) -> None:
        if digest and self.digest.at(self.count) != digest:
            raise self._differing("other documents")

    def _differing(self, difference: str) -> RunExists:
        """Return the error of an input that is not the run's."""
        elements = self.elements
        if isinstance(elements, Iterator) or (isinstance(elements, Documents) and not elements.repeats):
            difference += (
                "; these come from an iterator, which cannot begin in the middle of a run: pass a new one that yields "
                "all documents, or a list"
            )
        return RunExists(run=self.name, difference=difference)

    def _finish(self) -> None:
        """Confirm what was sent, then report to each shard that no more documents follow."""
        self._confirm()
        # Compared with what shards confirmed: a document that no shard holds must become an error, never a shorter
        # run.
        held = sum(self.sender.here)
        if self._error is None and held != self.count:
            missing = f"{self.count - held:,} of {many(self.count, 'document')}"
            reason = f"its queue never confirmed {missing}, without an error that gives the reason"
            left = "Map the same documents under this name again: only the missing ones are sent."
            self.error = SubmissionIncomplete(run=self.name, position=held, reason=reason, left=left)
        incomplete = None if self._error is None else in_words(self._error)[:500]
        if self._stopped is not None:
            incomplete = CANCELLED if isinstance(self._stopped, RunCancelled) else ABANDONED
        self._report_end(incomplete)

    def _confirm(self) -> None:
        """Wait until the queue has confirmed or refused everything that was sent."""
        try:
            self.sender.flush(None)
        except DqlabError as error:
            self.error = self.error or error
            self.sender.land()

    def _report_end(self, incomplete: str | None) -> None:
        """Report the end to each shard, and retry while one is out of reach."""
        handle = self.sender.handle
        while True:
            try:
                handle.link.sync(self._seal(handle, incomplete))
                return
            except CallTimeout:
                # Retried without a limit: an unsealed run never ends. A caller of `end` waits, so it gets the error.
                if self._stopped is not None:
                    raise

    async def _seal(self, handle: Handle, incomplete: str | None) -> None:
        sender, why = self.sender, incomplete
        for shard in range(len(sender.here)):
            if self._stopped is None and not self.refused:  # a dropped run must stay dropped
                await handle.order(sender.opening, shard=shard)
            if why is not None:
                answer, _ = await handle.ask(shard, calls.WatchCall(sender.run))
                lane = answer.lane
                sender.recount(shard, sum(lane.counts))
                if shard == 0 and self.refused and self._stopped is None:
                    incomplete = lane.incomplete  # the queue knows why the run ended
        submitted = self._submitted(sender.held)
        await handle.order(orders.Seal(sender.run, list(sender.here), incomplete, submitted))
