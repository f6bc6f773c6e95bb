"""The commands of `%dq` that make sense in a shell, as in ``dqlab status`` or ``dqlab pause word-count``.

They call a running cluster: the one of `dqlab up` on this machine, else that of a script or a
notebook here, or ``--at ADDRESS``.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from dqlab.cli.command import OF_NOTEBOOKS
from dqlab.clusters_here import LOCAL, Registration, find_any
from dqlab.errors import DqlabError, UsageError
from dqlab.jupyter.commands import ACTIONS
from dqlab.jupyter.grammar import COMMANDS, SHELL
from dqlab.jupyter.line import Line, ShellSession
from dqlab.jupyter.messages import Said, letter_bundle
from dqlab.jupyter.wrapping import say
from dqlab.live.display import text_of, watch
from dqlab.live.style import spelled_by
from dqlab.runs.failures import DeadLetter

if TYPE_CHECKING:
    from dqlab.lab import Lab
    from dqlab.runs.pool import QueuePool
    from dqlab.runs.run import Run

DONE, FAILED, MISUSED = 0, 1, 2


class _OneLineSession(ShellSession):
    """A session without state between lines, since here is only one line."""

    def __init__(self, lab: Lab) -> None:  # without super(): that needs IPython's shell
        self._lab, self._submitted, self._undecided = lab, None, {}

    def said(self, held: Run | QueuePool) -> None:
        """Remember nothing, since a shell shows a returned value only once."""

    def show(self, run: Run) -> None:
        """Follow a run until it rests."""
        watch(run)


class _Line(Line):
    """A line in a shell, which prints the commands of a shell."""

    def say(self, sentence: str) -> None:
        """Print one line."""
        super().say(in_words_of_a_shell(sentence))


def in_words_of_a_shell(sentence: str) -> str:
    """Return a sentence with its commands of notebooks as a shell has them, where it has them."""
    return re.sub(rf"%dq (?=({'|'.join(OF_NOTEBOOKS)})\b)", f"{SHELL} ", sentence)


def _text(value: object) -> str:
    """Return the text of a command's value, or "" for a number that is in a printed sentence."""
    if isinstance(value, Said):
        return ""
    return letter_bundle(value)["text/plain"] if isinstance(value, DeadLetter) else in_words_of_a_shell(text_of(value))


def carry_out(name: str, words: Sequence[str]) -> int:
    """Carry out one command of `OF_NOTEBOOKS`, print what a notebook would show, and return an exit status."""
    command = COMMANDS[name].for_shell()
    if any(word in ("-h", "--help") for word in words):
        print(command.help())
        return DONE
    try:
        options = command.parse(words)
        address, cluster = options.at, options.name
    except UsageError as error:
        say(str(error), sys.stderr)
        return MISUSED
    from dqlab.connecting import connect  # on demand: help and wrong words need no Dask

    try:
        if address == LOCAL:
            found = find_any(cluster)
            # One of a script or a notebook is no target by its name.
            address = LOCAL if isinstance(found, Registration) else found.scheduler
            cluster = found.name
        lab = connect(address, name=cluster)
    except DqlabError as error:
        say(f"{SHELL} {name}: {error}", sys.stderr)
        return FAILED
    try:
        with spelled_by(in_words_of_a_shell):
            value = ACTIONS[name](_Line(None, _OneLineSession(lab), {}, "default", None), options)
        shown = _text(value)
        if shown:
            print(shown)
        # As the wait found it: the cluster of a script may end as soon as its run has.
        if name == "wait" and value.at_end.counts.dead:
            return FAILED
        if name == "doctor" and not value:
            return FAILED
        if not getattr(options, "yes", True):  # a script must not take it for done
            return MISUSED
    except DqlabError as error:
        say(f"{SHELL} {name}: {in_words_of_a_shell(str(error))}", sys.stderr)
        return MISUSED if isinstance(error, UsageError) else FAILED
    except KeyboardInterrupt:
        return FAILED
    finally:
        lab.close()
    return DONE
