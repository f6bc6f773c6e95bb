"""One thread that commits for all callers: the next commit takes everything that was appended during this one."""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial

from dqlab.log.errors import DiskFull, NoDescriptors
from dqlab.log.log import Log

_RETRY_S = 1.0
_IDLE_S = 1.0  # before a SYNCED record marks for the next open what was durable
_HANDLING_S = 0.01
"""Most seconds that a commit waits until callers have handled the last one. The first caller to handle it puts again;
if that were committed at once, all others would wait for a second sync."""


class GroupCommit:
    """Commits a log from a daemon thread, so that no other thread has to."""

    def __init__(self, log: Log, *, wake: Callable[[Callable[[], None]], None]) -> None:
        # `wake` calls its argument in the thread of the callbacks, as `loop.call_soon_threadsafe` does.
        self._log = log
        self._wake = wake
        self._condition = threading.Condition()
        self._wanted = False
        self._closing = False
        self._announced = 0
        self._handled = threading.Event()
        self._handled.set()
        # Called through `wake` with the number of the last confirmed record.
        self.on_durable: Callable[[int], None] = _ignore
        # Called through `wake` with the error of a commit that is repeated a second later, or when `wanted` is called.
        # After any other error the log refuses all records, which its own callback reports, and the thread ends.
        self.on_short: Callable[[DiskFull | NoDescriptors], None] = _ignore
        self._thread = threading.Thread(target=self._run, name="dqlab-commit", daemon=True)
        self._thread.start()

    def wanted(self) -> None:
        """Request a commit, from any thread."""
        with self._condition:
            self._wanted = True
            self._condition.notify()

    def close(self) -> None:
        """Commit what is left and end the thread, but leave the log open."""
        with self._condition:
            self._closing = True
            self._condition.notify()
        # A callback may close it where `wake` calls at once, and a thread cannot join itself.
        if self._thread is not threading.current_thread():
            self._thread.join()

    def _run(self) -> None:
        patience: float | None = None
        then: _Step | None = None
        closing = False
        while not closing:
            with self._condition:
                if not self._wanted and not self._closing:
                    self._condition.wait(patience)
                step = self._commit if self._wanted or self._closing else then
                # Taken before the step: what is wanted during it needs another one.
                self._wanted, closing = False, self._closing
            if step is None:
                continue
            try:
                patience, then = step()
            except (DiskFull, NoDescriptors) as error:
                self._wake(partial(self.on_short, error))
                patience, then = _RETRY_S, self._commit
            except Exception as error:  # noqa: BLE001 - no other thread confirms, so callers would wait forever
                self._log.give_up(error)
                return

    def _commit(self) -> _Then:
        self._handled.wait(_HANDLING_S)
        durable = self._log.commit()
        if durable > self._announced:
            self._announced = durable
            # Before `wake`: the callback sets it, perhaps before this thread goes on.
            self._handled.clear()
            self._wake(partial(self._announce, durable))
        if self._log.options.sync == "interval":
            return self._log.options.interval, self._sync
        return (_IDLE_S, self._note_synced) if self._log.options.sync == "always" else (None, None)

    def _announce(self, durable: int) -> None:
        self.on_durable(durable)
        self._wake(self._handled.set)  # queued behind what callers do first in answer

    def _sync(self) -> _Then:
        self._log.sync()
        return _IDLE_S, self._note_synced

    def _note_synced(self) -> _Then:
        self._log.note_synced()
        return None, None


_Then = tuple[float | None, "_Step | None"]
_Step = Callable[[], _Then]


def _ignore(_: object) -> None:
    pass
