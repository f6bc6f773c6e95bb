"""Carrying out the commands of buttons.

Quick commands are carried out in the step that finds them. Those that may take long, such as compacting, run one after
another in a thread of their own, which ends when there are none left; meanwhile the view stays live.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from queue import Empty, SimpleQueue

from dqlab.errors import DqlabError
from dqlab.live.run_view import Command, Press
from dqlab.notebook import beside_cells

__all__ = ["SLOW", "Obeying"]

SLOW = frozenset(
    {
        Command.RETRY,
        Command.SHOW,
        Command.REPLACE,
        Command.GIVE_UP,
        Command.SCALE,
        Command.COMPACT,
        Command.PURGE,
        Command.DRAIN,
    }
)
"""Commands that may take longer than a step."""
NAME = "dqlab-live-command"

_log = logging.getLogger(__name__)

Act = Callable[[Press], str]
"""Carries out a press, and returns the message to show."""


class Obeying:
    """What was pressed, and what became of it.

    Parameters
    ----------
    act : callable
        Carries out one press; may raise `DqlabError`.
    presses : SimpleQueue of Press, optional
        Where buttons put what was pressed, from any thread.

    Attributes
    ----------
    trouble : str
        Why the last command was refused.
    busy : str
        What the last command is doing, or has done.
    answered : int
        How many were carried out or refused, or are under way.
    """

    def __init__(self, act: Act, presses: SimpleQueue[Press] | None = None) -> None:
        self._act = act
        self._presses = SimpleQueue[Press]() if presses is None else presses
        self._slow: SimpleQueue[Press] = SimpleQueue()
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self.trouble = self.busy = ""
        self.answered = 0

    def step(self) -> None:
        """Carry out pending presses; start those that may take long."""
        while True:
            try:
                press = self._presses.get_nowait()
            except Empty:
                return
            self.answered += 1
            self.trouble = self.busy = ""
            if press.command in SLOW:
                self._start(press)
            else:
                self._carry_out(press)

    def join(self, timeout: float = 10.0) -> None:
        """Wait until no command is running."""
        thread = self._thread
        if thread is not None:
            thread.join(timeout)

    def _start(self, press: Press) -> None:
        # A row that is opened shows that itself: a notice would move it away from under the pointer.
        self.busy = "" if press.command is Command.SHOW else f"{_words(press.command)} is under way."
        with self._lock:
            self._slow.put(press)
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name=NAME, daemon=True)
                self._thread.start()

    def _run(self) -> None:
        while True:
            with self._lock:
                if self._slow.empty():
                    self._thread = None
                    return
                press = self._slow.get()
            self._carry_out(press)

    def _carry_out(self, press: Press) -> None:
        try:
            with beside_cells():
                self.busy = self._act(press)
        except DqlabError as error:
            self.busy, self.trouble = "", f"{_words(press.command)} failed: {error}"
        except Exception as error:  # noqa: BLE001 - a button must never end the view it stands on
            _log.exception("event=live_command_failed press=%r", press)
            self.busy, self.trouble = "", f"{_words(press.command)} failed: {type(error).__name__}: {error}"


def _words(command: Command) -> str:
    return command.value.replace("_", " ").capitalize()
