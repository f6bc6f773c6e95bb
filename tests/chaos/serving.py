"""A process of a round from inside: does what it is told, each thing in a thread, until its tester is gone."""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Collection
from functools import partial
from queue import SimpleQueue
from typing import Any, TextIO

from dqlab.errors import DqlabError
from tests.chaos import stacks

__all__ = ["serve"]


def serve(
    operation: Callable[[str], Callable[..., Any]],
    end: Callable[[], None],
    promised: tuple[type, ...],
    cells: Collection[str] = (),
) -> None:
    """Serve what comes on stdin; answers go to stdout, and whatever else is printed to stderr.

    Parameters
    ----------
    operation : callable
        Returns what does what is asked by a name.
    end : callable
        Called when the tester is gone.
    promised : tuple of type
        Errors beside dqlab's own that an operation may raise.
    cells : collection of str
        Operations that run in the main thread, one after another, as cells of a notebook do: Ctrl-C reaches those.
    """
    stacks.listen()
    if cells:
        signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell may have had it ignored
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    lock = threading.Lock()
    in_turn: SimpleQueue[Callable[[], None] | None] = SimpleQueue()

    def read() -> None:
        for line in sys.stdin:
            asked = json.loads(line)
            number, op = asked.pop("call"), asked.pop("op")
            answer = partial(_answer, answers, lock, number, operation(op), asked, promised)
            if op in cells:
                in_turn.put(answer)
            else:
                threading.Thread(target=answer, name="chaos-serve", daemon=True).start()
        end()
        in_turn.put(None)

    threading.Thread(target=read, name="chaos-read", daemon=True).start()
    while (cell := in_turn.get()) is not None:
        cell()


def _answer(
    answers: TextIO,
    lock: threading.Lock,
    number: int,
    do: Callable[..., Any],
    arguments: dict[str, Any],
    promised: tuple[type, ...],
) -> None:
    said: dict[str, Any] = {"call": number}
    try:
        said["answer"] = do(**arguments)
    except Exception as error:  # noqa: BLE001 - the caller judges it
        traceback.print_exc()
        typed = isinstance(error, (DqlabError, *promised))
        said |= {"error": type(error).__name__, "text": str(error)[:2000], "typed": typed}
    with lock:
        answers.write(json.dumps(said) + "\n")
        answers.flush()
