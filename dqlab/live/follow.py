"""Follow a run, a lab or a queue: poll for statistics, judge silence, obey buttons, draw on a canvas.

`tick` does one step and takes no longer than its polls; the owner of the time (the ticker's thread, or a loop in a
terminal) calls it again and again. Buttons are pressed in other threads: these only enqueue a `Press`. Only `tick` and
the thread of `Obeying` touch the source.

::

    Live        the steps that are common
    ├── LiveRun         a run, until it rests
    └── LiveQueues      a lab or a queue, until it is closed
    Asking      when to poll, and since when there is no answer
    Obeying     carries out what was pressed

"""

from __future__ import annotations

import logging
import math
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any, Generic, TypeVar, cast

from dqlab import numbers
from dqlab.clock import Clock, SystemClock
from dqlab.errors import ActorGone, CallTimeout, DqlabError, RunNotFound, SchedulerGone
from dqlab.live import details
from dqlab.live.lab_picture import Site, absent_queues, lab_view, moved_queues, queue_view
from dqlab.live.next_lines import (
    NO_NAMES,
    cluster_of,
    is_embedded,
    is_lab,
    is_queue,
    names_here,
    run_here,
)
from dqlab.live.run_picture import (
    Focus,
    Standing,
    absent_view,
    moved_view,
    run_view,
    what_waits,
)
from dqlab.live.views import Command, Example, Press, QueuesView, RunView
from dqlab.notebook import beside_cells
from dqlab.numbers import many, size
from dqlab.stats import History, RunState, RunStats, Snapshot
from dqlab.stats.attention import GOES_ON
from dqlab.texts import one_line

if TYPE_CHECKING:
    from dqlab.runs.pool import QueuePool
    from dqlab.runs.run import Run

CALL_TIMEOUT = 1.0
"""Timeout of one poll for statistics, in seconds."""
STALE_AFTER = 3.0
"""Seconds without an answer after which a view marks its numbers as old."""
FIRST_RETRY, LONGEST_RETRY = 1.0, 30.0
"""Seconds between polls while there is no answer; doubled each time."""
GIVE_UP_AFTER = 600.0
"""Seconds without an answer after which a view stops polling."""
_SLACK = 0.05
"""Seconds by which a step may be early."""

UNREACHABLE: tuple[type[DqlabError], ...] = (SchedulerGone, ActorGone, CallTimeout)
"""Errors that may pass: a later poll may get an answer."""

T = TypeVar("T")


class Asking:
    """A repeated poll, which becomes less frequent while there is no answer."""

    def __init__(self, clock: Clock, period: float = 0.0, silences: tuple[type[DqlabError], ...] = UNREACHABLE) -> None:
        self._clock, self.period, self._silences = clock, period, silences
        """The period is the least seconds between two polls; silences are errors that count as no answer."""
        self._answered = clock.monotonic()
        self._retry, self._due = FIRST_RETRY, self._answered
        self.answered, self.since = False, clock.wall()
        """Whether the last poll got an answer, and when the last answer came, or the polling began (wall time)."""

    @property
    def due(self) -> bool:
        """Whether it is time to poll."""
        # Steps come at fixed times: without the slack, a poll due a moment later would wait for a whole step more.
        return self._clock.monotonic() >= self._due - _SLACK * (self.period > 0)

    @property
    def quiet(self) -> float:
        """Seconds since the last answer."""
        return self._clock.monotonic() - self._answered

    @property
    def silence(self) -> float | None:
        """When the last answer came, or None while that is too short ago to be shown."""
        return self.since if self.quiet > STALE_AFTER else None

    def every(self, period: float) -> None:
        """Set the least seconds between two polls."""
        if self.answered:
            # A shorter period holds for the next poll too, unless the poll waits for its retry.
            self._due = min(self._due, self._answered + period)
        self.period = period

    def now(self) -> None:
        """Make the next poll due now."""
        self._due = self._clock.monotonic()

    def ask(self, question: Callable[[], T], before: T) -> T:
        """Return the answer, or `before` without one, and raise errors that are no silence."""
        # Before the question: an error that is raised further leaves "not answered" too.
        self.answered = False
        try:
            answer = question()
        except self._silences:
            self._due = self._clock.monotonic() + self._retry
            self._retry = min(2 * self._retry, LONGEST_RETRY)
            return before
        self.answered, self.since = True, self._clock.wall()
        self._answered = self._clock.monotonic()
        self._retry, self._due = FIRST_RETRY, self._answered + self.period
        return answer


AT_ONCE = (Command.ASK, Command.PAUSE, Command.RESUME, Command.CANCEL)
"""Commands that take no longer than a step."""
SAID, REFUSED = 12.0, 60.0
"""Seconds for which a view shows the effect of a press, or why it was refused; then the current state again."""
NAME = "dqlab-live-command"

logger = logging.getLogger(__name__)

Act = Callable[[Press], str]
"""Carries out a press, and returns the message to show."""


class Obeying:
    """Carry out pressed buttons, and keep what to show about the last one."""

    def __init__(self, act: Act, presses: SimpleQueue[Press] | None = None, clock: Clock | None = None) -> None:
        self._act, self._clock = act, clock or SystemClock()
        self._presses = SimpleQueue[Press]() if presses is None else presses
        self._turn = threading.Lock()
        self._thread: threading.Thread | None = None
        self._shown: tuple[str, str, float] = "", "", math.inf
        """What the last command is doing or has done, why it was refused, and until when that is shown."""
        self.answered = 0
        """Presses that were carried out or refused, or are under way."""

    @property
    def busy(self) -> str:
        """What the last command is doing, or has just done."""
        busy, _, until = self._shown
        return busy if self._clock.monotonic() < until else ""

    @property
    def trouble(self) -> str:
        """Why the last command was just refused."""
        _, trouble, until = self._shown
        return trouble if self._clock.monotonic() < until else ""

    def show(self, done: str = "", trouble: str = "") -> None:
        """Show for a while what was done, or why it was refused."""
        self._shown = done, trouble, self._clock.monotonic() + (REFUSED if trouble else SAID)

    def step(self) -> None:
        """Carry out pending presses, and start those that may take long."""
        while True:
            try:
                press = self._presses.get_nowait()
            except Empty:
                return
            self.answered += 1
            self.show()
            # A slow command here would stop all views of the ticker. Slow ones run one after another in threads.
            if press.command in AT_ONCE:
                self._carry_out(press)
            else:
                self._start(press)

    def join(self, timeout: float = 10.0) -> None:
        """Wait until no command is running."""
        thread = self._thread
        if thread is not None:
            thread.join(timeout)

    def _start(self, press: Press) -> None:
        # A row that is opened shows that itself: a notice would move it away from under the pointer.
        self._shown = "" if press.command is Command.SHOW else f"{_words(press.command)} is under way.", "", math.inf
        self._thread = threading.Thread(target=self._carry_out_in_turn, args=(press,), name=NAME, daemon=True)
        self._thread.start()

    def _carry_out_in_turn(self, press: Press) -> None:
        with self._turn:
            self._carry_out(press)

    def _carry_out(self, press: Press) -> None:
        try:
            # A press does not belong to the running cell: marks must not carry the cell's number.
            with beside_cells():
                self.show(self._act(press))
        except DqlabError as error:
            self.show(trouble=f"{_words(press.command)} failed: {error}")
        except Exception as error:  # a button must never end its view
            logger.exception("event=live_command_failed press=%r", press)
            self.show(trouble=f"{_words(press.command)} failed: {type(error).__name__}: {error}")


def _words(command: Command) -> str:
    return command.value.replace("_", " ").capitalize()


FRAME = 0.5
"""Seconds between two polls for the numbers of a run."""
FOCUS_PERIOD = 1.0
"""Seconds between two polls for the history of a run, and between two looks at the notebook's names."""
REST_PERIOD, LONGEST_REST_PERIOD = 2.0, 15.0
"""Seconds between two polls of a run that rests, which another process may retry: longer with its rest."""
RESTED = 60.0
"""Seconds of rest that add a second to the period."""
REST_SILENCE = 30.0
"""Seconds without an answer after which a run that rests gets its last picture."""
HISTORY_PERIOD = 5.0
"""Seconds between two polls for the lines of a lab."""
LAB_SPAN, LEAST_SPAN = 1800.0, 60.0
"""Most and least seconds that these lines cover."""

V = TypeVar("V")
View = TypeVar("View")


class Canvas(Generic[V]):
    """A place to draw on; this one shows nothing."""

    @property
    def gone(self) -> bool:
        """Whether the widget was closed."""
        return False

    @property
    def keeps(self) -> bool:
        """Whether it stays live after its run has ended."""
        return False

    @property
    def awaits(self) -> bool:
        """Whether it is not known yet if the canvas stays live."""
        return False

    @property
    def is_read(self) -> bool:
        """Whether there are buttons, and somebody who can press them."""
        return False

    def draw(self, view: V, answered: int = 0) -> bool:
        """Show a view that differs from the one before, or return False when a part is held back for later."""
        return True

    def beat(self) -> None:
        """Let the front end know in each step that the view lives, though there may be nothing to draw."""
        return

    def finish(self, view: V) -> None:
        """Show the last view for good, in the only call of this method."""
        self.draw(view)


def _is_gone(error: DqlabError) -> bool:
    """Return whether a run exists no more, so that lines to type about it would only raise."""
    return isinstance(error, RunNotFound) or not error.fields.get("kept", True)


class Live(ABC, Generic[View]):
    """A source, the canvas it is drawn on, and its pressed buttons."""

    source: Any

    def __init__(
        self,
        canvas: Canvas[View],
        commands: SimpleQueue[Press] | None = None,
        clock: Clock | None = None,
        period: float = 0.0,
    ) -> None:
        self._canvas, self._clock = canvas, clock or SystemClock()
        self._asking = Asking(self._clock, period)
        self.obeying = Obeying(self._act, commands, self._clock)
        self._left = False
        self._over, self._gone = "", False
        self._drawn: tuple[View, int] | None = None
        self._made: tuple[object, View] | None = None
        """The last view, and the values it was made of."""

    def leave(self) -> None:
        """Make the next step the last, from any thread, because the view is shown elsewhere."""
        self._left = True

    def look_again(self) -> None:
        """Poll in the next step, from any thread, however long the source has rested."""
        self._asking.now()

    def tick(self) -> bool:
        """Do one step, and return False when there is nothing more to draw."""
        # Before any poll: a view that was closed must cost nothing.
        if self._canvas.gone:
            return False
        if self._left:
            self._canvas.finish(self._moved())
            return False
        self.obeying.step()
        if self._asking.due:
            self._ask_or_end()
        # The last picture stays: it must not promise that the view tries again.
        if self._asking.quiet > GIVE_UP_AFTER:
            self._over = self._over or (
                f"No answer since {numbers.clock(self._asking.since)}. This view stopped polling; the work is not "
                "affected. Show it again to continue."
            )
        view, answered = self._view(), self.obeying.answered
        if self._ended or self._over:
            self._canvas.finish(view)
            self._finished()
            return False
        # A view with parts held back counts as not drawn, so that the next step tries again.
        if (view, answered) != self._drawn and self._canvas.draw(view, answered):
            self._drawn = view, answered
        self._canvas.beat()
        return True

    def once(self) -> View:
        """Return one picture of the source as it is now."""
        self._asking = Asking(self._clock, silences=())
        self._ask_or_end()
        return self._view()

    def _ask_or_end(self) -> None:
        try:
            self._ask()
        except DqlabError as error:
            # Dropped, closed, or never there: a later poll would get the same answer.
            self._over, self._gone = str(error), _is_gone(error)

    @property
    def _ended(self) -> bool:
        return False

    def _standing(self) -> Standing:
        over, obeying = self._over, self.obeying
        return Standing(self._asking.silence, over, bool(over) and self._gone, obeying.trouble, obeying.busy)

    def _made_of(self, make: Callable[..., View], *known: Any, **more: Any) -> View:
        """Return the view of some values; most are unchanged since the step before."""
        if self._made is None or self._made[0] != (known, more):
            self._made = (known, more), make(*known, **more)
        return self._made[1]

    def _finished(self) -> None:
        """Note that the last picture was drawn."""

    @abstractmethod
    def _ask(self) -> None: ...

    @abstractmethod
    def _view(self) -> View: ...

    @abstractmethod
    def _moved(self) -> View: ...

    @abstractmethod
    def _act(self, press: Press) -> str: ...


class LiveRun(Live[RunView]):
    """A run that is followed until it rests."""

    def __init__(
        self,
        source: Run,
        canvas: Canvas[RunView],
        *,
        commands: SimpleQueue[Press] | None = None,
        clock: Clock | None = None,
        on_end: Callable[[RunStats], object] = lambda stats: None,
        stays: bool = False,
        said: str = "",
    ) -> None:
        self._period = FOCUS_PERIOD if stays else FRAME
        super().__init__(canvas, commands, clock, self._period)
        self.source: Run = source
        self._stays = stays  # a retry may reopen the run
        # After an act of the user the view is worth keeping, also without failures: there may be something to press.
        self._acted = bool(said)
        self._said = said
        self.obeying.show(said)
        self._on_end = on_end
        self._snapshot: Snapshot | None = None
        """The only source of the numbers of a picture, so that they agree."""
        self._more = Asking(self._clock, 0.0, (DqlabError,))
        self._past = Asking(self._clock, FOCUS_PERIOD, (DqlabError,))
        self._history: History | None = None
        self._code: tuple[int, str | None] = (0, None)
        self._examples: tuple[str, tuple[Example, ...]] | None = None
        """Fingerprint of the opened class, and documents of it."""
        self._newer: Callable[..., Any] | None = None
        self._names, self._named_at = NO_NAMES, -FOCUS_PERIOD

    @property
    def _stats(self) -> RunStats | None:
        return None if self._snapshot is None else self._snapshot.own_run

    @property
    def _rests(self) -> bool:
        return self._stats is not None and self._stats.resting

    @property
    def _ended(self) -> bool:
        if not self._rests or self._stays:
            return False
        # A kept widget stays live after the end, since another process may retry the run; without answers it is final.
        if self._canvas.keeps:
            return self._asking.quiet > REST_SILENCE
        if self._canvas.is_read and self._tried is not None:
            return False
        if self._canvas.awaits and self._stats is not None and (self._stats.counts.dead or self._acted):
            # There is something to press, once a front end has drawn it.
            return False
        return self._asking.silence is None

    @property
    def _tried(self) -> int | None:
        """Documents of a sample that waits for its user, where this process can submit the rest."""
        stats, source = self._stats, self.source
        return source.tried if stats and stats.state is RunState.INCOMPLETE and source.waits_for_go else None

    def _finished(self) -> None:
        if self._rests and not self._stays and self._stats is not None:
            self._on_end(self._stats)

    def _ask(self) -> None:
        source, last = self.source, self._snapshot
        rested_before = self._as_it_rests()
        self._snapshot = self._asking.ask(lambda: source.snapshot(timeout=CALL_TIMEOUT), last)
        stats, rests = self._stats, self._as_it_rests()
        since = 0.0 if stats is None or stats.ended is None else stats.at - stats.ended
        slow = min(REST_PERIOD + max(0.0, since) / RESTED, LONGEST_REST_PERIOD)
        self._asking.every(self._period if rests is None else max(self._period, slow))
        if stats is None or not self._asking.answered:
            return
        if rests is not None and rests == rested_before:
            self._snapshot = last  # a picture that differs only in its time is not drawn again
        else:
            self._ask_more(stats)

    def _as_it_rests(self) -> object:
        """Return what identifies the rest of a run on a canvas that is kept, or None while it goes on."""
        stats = self._stats
        if stats is None or not self._rests or not self._canvas.keeps:
            return None
        return stats.state, stats.counts, stats.code, stats.ended

    def _ask_more(self, stats: RunStats) -> None:
        """Fetch the history and the source, and keep the old ones without an answer."""
        source = self.source
        if self._past.due or self._rests:
            self._history = self._past.ask(lambda: source.past(stats.since_start, timeout=CALL_TIMEOUT), self._history)
        if self._more.due and self._code[0] != stats.code.version:
            self._code = self._more.ask(lambda: (stats.code.version, source.source), self._code)

    def _examples_of(self, fingerprint: str) -> tuple[str, tuple[Example, ...]]:
        letters = self.source.examples(fingerprint, timeout=CALL_TIMEOUT)
        return details.examples(fingerprint, letters, self._cell_of, None if self._stats is None else self._stats.code)

    def _look_around(self) -> None:
        """Find the notebook's name for the run, and a newer definition of its function, without a call."""
        now, source, stats = self._clock.monotonic(), self.source, self._stats
        if stats is None or now - self._named_at < FOCUS_PERIOD:
            return
        self._named_at, self._names = now, names_here(source)
        self._newer = source.newer(stats.code) if stats.counts.dead else None

    def _view(self) -> RunView:
        self._look_around()
        name, standing = self.source.name, self._standing()._replace(said=self._said)
        # The numbers of a run at rest stay right without an answer.
        if self._rests and not self._stays:
            standing = standing._replace(silence=None, over="", gone=False)
        if self._stats is None:
            reason = standing.over or standing.trouble
            return absent_view(name, reason, silence=standing.silence, gone=standing.gone)
        newer = self._newer is not None
        focus = Focus(self._snapshot, self._history, self._code[1], self._examples, newer, self._names, self._tried)
        return self._made_of(run_view, self._stats, focus, standing)

    def _moved(self) -> RunView:
        return self._view() if self._rests else moved_view(self.source.name)

    def _act(self, press: Press) -> str:
        source = self.source
        self._asking.now()
        if press.command is Command.SHOW:
            self._examples = self._examples_of(press.target)
            return ""
        if press.command is Command.RETRY:
            newer, stats = self._newer, self._stats
            again = source.send_again(newer, fingerprint=press.target or None, limit=press.n or None)
            waits = newer is not None and stats is not None and stats.counts.waiting > 0
            rest = f" {what_waits(stats).capitalize()}." if waits and stats is not None else ""
            if self._examples is not None:
                self._examples = self._examples_of(self._examples[0])
            self._asking.now()
            return f"{many(again, 'document')} sent through again.{rest}"
        if press.command is Command.REPLACE:
            taken = ", ".join(source.replace(press.target))
            return f"{taken}: tried again; {press.target} takes other documents now. {GOES_ON}."
        if press.command is Command.GIVE_UP:
            return f"{', '.join(source.give_up(press.target))}: given up, a failure now. {GOES_ON}."
        if press.command is Command.SCALE:
            source.scale(press.n)
            return f"{many(press.n, 'consumer')} from now on."
        if press.command is Command.REHEARSE:
            self._said = source.rehearse(press.n).rehearsal.text(source.rate).replace("\n", " · ")
            return ""
        if press.command in (Command.GO, Command.PAUSE, Command.RESUME, Command.CANCEL):
            getattr(source, press.command.value)()
        return ""

    def _cell_of(self, letter: Any) -> str:
        return "" if self._stats is None else run_here(letter, self._stats, self._names)


class LiveQueues(Live[QueuesView]):
    """A lab or a queue that is followed until it is closed."""

    def __init__(
        self,
        source: Any,
        canvas: Canvas[QueuesView],
        *,
        commands: SimpleQueue[Press] | None = None,
        clock: Clock | None = None,
    ) -> None:
        super().__init__(canvas, commands, clock, FOCUS_PERIOD / 2)
        self.source: Any = source
        self._lab = source if is_lab(source) else None
        self._place = Site(source.name)
        self._snapshot: Snapshot | None = None
        self._history: History | None = None
        self._lines = Asking(self._clock, HISTORY_PERIOD, (DqlabError,))

    def _ask(self) -> None:
        source = self.source
        self._snapshot = self._asking.ask(lambda: source.snapshot(timeout=CALL_TIMEOUT, fresh=False), self._snapshot)
        if self._snapshot is None or self._asking.silence is not None:
            return
        if self._lines.due:
            dashboard = self._lab.dashboard if self._lab is not None else ""
            own = is_embedded(self.source)
            self._place = Site(self.source.name, dashboard, cluster_of(self.source), own)
            self._history = self._lines.ask(lambda: self.source.past(self._span(), timeout=CALL_TIMEOUT), self._history)

    def _span(self) -> float:
        """Return the seconds to look back, which grow with the known history."""
        if self._history is None:
            return LAB_SPAN
        # A short span has fine steps: a young queue is drawn in detail.
        known = self._history.since_known()
        return min(LAB_SPAN, max(LEAST_SPAN, known.end - known.t0 + 2 * HISTORY_PERIOD))

    def _view(self) -> QueuesView:
        standing, place, single = self._standing(), self._place, self._lab is None
        if self._snapshot is None:
            reason = standing.over or standing.trouble
            return absent_queues(place, reason, single=single, silence=standing.silence)
        picture = queue_view if single else lab_view
        return self._made_of(picture, self._snapshot, self._history, place=place, standing=standing)

    def _moved(self) -> QueuesView:
        return moved_queues(self._place, single=self._lab is None)

    def _act(self, press: Press) -> str:
        command = press.command
        if command is Command.ASK:
            self._asking.now()
            return ""
        if self._lab is None:
            return _controlled(cast("QueuePool", self.source), press, one_line(self.source.name, 80))
        if command is Command.RETRY:
            run = self._named(press.run, [] if self._snapshot is None else [run.name for run in self._snapshot.runs])
            again = self._lab.retry(run, fingerprint=press.target)
            return f"{many(again, 'document')} of {one_line(run, 80)} sent through again."
        listed = [] if self._snapshot is None else [queue.name for queue in self._snapshot.queues]
        queue = self._named(press.queue, listed)
        return _controlled(self._lab.controls(queue), press, one_line(queue, 80))

    @staticmethod
    def _named(shown: str, names: list[str]) -> str:
        """Return the full name of what was shown as `shown`."""
        # Views cut long names and escape unprintable ones: a press carries the name as shown.
        return next((name for name in names if one_line(name, 80) == shown or name == shown), shown)


def following(
    source: Any,
    canvas: Canvas[Any],
    *,
    commands: SimpleQueue[Press] | None = None,
    clock: Clock | None = None,
    on_end: Callable[[RunStats], object] = lambda stats: None,
    stays: bool = False,
    said: str = "",
) -> LiveRun | LiveQueues:
    """Return the view that follows a source of this type."""
    if is_lab(source) or is_queue(source):
        return LiveQueues(source, canvas, commands=commands, clock=clock)
    run = cast("Run", source)
    return LiveRun(run, canvas, commands=commands, clock=clock, on_end=on_end, stays=stays, said=said)


def _controlled(queue: QueuePool, press: Press, name: str) -> str:
    """Carry out a press on one queue, and return the message to show."""
    if press.command is Command.SCALE:
        queue.scale(press.n)
        return f"{name}: {many(press.n, 'consumer')} from now on."
    if press.command is Command.PURGE:
        return f"{name}: {many(queue.purge('dead'), 'dead message')} discarded."
    if press.command is Command.COMPACT:
        done = queue.compact()
        return f"{name} compacted: {size(done.bytes_before)} before, {size(done.bytes_after)} now."
    if press.command in (Command.PAUSE, Command.RESUME, Command.DRAIN):
        getattr(queue, press.command.value)()
        if press.command is Command.DRAIN:
            return f"{name} drains: puts are refused, and it is paused once it is empty."
    return ""
