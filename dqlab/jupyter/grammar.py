"""The grammar of `%dq`: words, commands with their options, and the help made from them.

Words end at spaces, except inside quotes and brackets, so that Python expressions need no quotes of their own:
``--over [f(x) for x in docs]``. A word that is one quoted text loses its quotes. Completion uses the grammar too. It
knows neither IPython nor labs. A mistake is a `UsageError` that names the nearest valid word.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Collection, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from enum import Enum, auto
from typing import Any, NoReturn

from dqlab.errors import UsageError
from dqlab.jupyter.wrapping import width_here
from dqlab.keywords import nearest

_CLOSED_BY = {"(": ")", "[": "]", "{": "}"}
_QUOTES = "'\""


def split(line: str) -> list[str]:
    """Return the words of a line up to a free ``#``, or raise `UsageError` for an open quote or bracket."""
    words: list[str] = []
    at = 0
    while True:
        while at < len(line) and line[at].isspace():
            at += 1
        if at == len(line) or line[at] == "#":
            return words
        end = _word_end(line, at)
        words.append(_unquoted(line[at:end]))
        at = end


def _word_end(line: str, at: int) -> int:
    missing: list[tuple[str, int]] = []
    while at < len(line):
        character = line[at]
        if character in _QUOTES:
            at = _text_end(line, at)
            continue
        if character in _CLOSED_BY:
            missing.append((_CLOSED_BY[character], at))
        elif missing and character == missing[-1][0]:
            missing.pop()
        elif character.isspace() and not missing:
            break
        at += 1
    if missing:
        raise _never_closed(line, missing[-1][1])
    return at


def _text_end(line: str, start: int) -> int:
    """Return the position after the text that is quoted from `start` on."""
    at = start + 1
    while at < len(line) and line[at] != line[start]:
        at += 2 if line[at] == "\\" else 1
    if at >= len(line):
        raise _never_closed(line, start)
    return at + 1


def _never_closed(line: str, at: int) -> UsageError:
    return UsageError(reason=f"the {line[at]} in {line[at : at + 20]!r} is never closed; nothing was done.")


def _unquoted(word: str) -> str:
    option, equals, value = word.partition("=")
    if equals and option.startswith("--"):
        return f"{option}={_unquoted(value)}"
    if word and word[0] in _QUOTES and _text_end(word, 0) == len(word):
        return word[1:-1].replace("\\" + word[0], word[0])
    return word


class Names(Enum):
    """The kinds of things that a word of a line can name."""

    LAB = auto()
    FUNCTION = auto()
    VALUES = auto()
    QUEUE = auto()
    RUN = auto()
    RUN_OR_QUEUE = auto()
    FILTER = auto()
    SETTING = auto()
    NEW = auto()
    """A new variable, or free text."""


WIDE = 100
"""Columns of help where no terminal has fewer."""
SHELL = "dqlab"
"""Prefix of a command in a shell."""
_OF_NOTEBOOKS = frozenset({"fn", "out"})
"""Options that name functions and variables, which a shell does not have."""
_IN_SHELL = frozenset(
    {
        "doctor",
        "status",
        "queues",
        "watch",
        "wait",
        "failed",
        "show",
        "logs",
        "slowest",
        "retry",
        "pause",
        "resume",
        "drain",
        "cancel",
        "scale",
    }
    | {"purge", "history", "runs", "drop"}
)


class _Parser(argparse.ArgumentParser):
    """Raises an error where argparse would print one and end the process."""

    def error(self, message: str) -> NoReturn:
        raise UsageError(reason=f"{self.prog}: {message}. See {self.prog} -h")

    def exit(self, status: int = 0, message: str | None = None) -> NoReturn:
        raise UsageError(reason=message or f"{self.prog} ended with status {status}")


@dataclass(frozen=True)
class Command:
    """One command, with its words, its options, and the kinds of things that these name."""

    name: str
    summary: str
    twin: str
    parser: _Parser = field(repr=False)
    names: dict[str, Names] = field(default_factory=dict)

    @property
    def takes_cell(self) -> bool:
        """Whether it may stand on the first line of a cell, whose function it then takes."""
        return "defined" in self.parser._defaults

    @property
    def in_shell(self) -> bool:
        """Whether the command works in a shell, as ``dqlab NAME``, because it needs nothing of a notebook."""
        return self.name in _IN_SHELL

    def for_shell(self) -> Command:
        """Return the command as it is written in a shell."""
        parser = _parser(f"{SHELL} {self.name}", self.summary)
        for action in self.actions:
            if action.dest in _OF_NOTEBOOKS:
                parser.set_defaults(**{action.dest: None})
            else:
                parser._add_action(action)
        return replace(self, parser=parser)

    def add(self, *flags: str, names: Names | None = None, **settings: Any) -> Command:
        """Add a word, or an option when `flags` begin with "-", and return the command itself."""
        action = self.parser.add_argument(*flags, **settings)
        if names is not None:
            self.names[action.dest] = names
        return self

    @property
    def actions(self) -> list[argparse.Action]:
        """Its words and options, in the order of the help."""
        return list(self.parser._actions)

    @property
    def options(self) -> dict[str, argparse.Action]:
        """Its options by flag, short and long."""
        return {flag: action for action in self.actions for flag in action.option_strings}

    @property
    def words(self) -> list[argparse.Action]:
        """Its positional arguments."""
        return [action for action in self.actions if not action.option_strings]

    def parse(self, words: Sequence[str]) -> argparse.Namespace:
        """Return the options, or raise `UsageError` for an unknown option, or for too many or too few words."""
        # Before argparse, whose errors name no near option.
        for word in words:
            flag = word.partition("=")[0]
            if flag.startswith("-") and flag.replace("-", "").isidentifier() and not self._knows(flag):
                raise UsageError(reason=f"{self.parser.prog} has no option {flag}. {_meant(flag, self.options)}")
        options, rest = self.parser.parse_known_args(words)
        if rest:
            many = " ".join(rest)
            hint = f"An expression with spaces stands in quotes; {self.parser.prog} -h lists the options."
            raise UsageError(reason=f"{self.parser.prog} does not understand {many!r}. {hint}")
        return options

    def help(self) -> str:
        """Return how the command is written, and the call in Python that does the same."""
        return f"{self.parser.format_help()}\nIn Python: {self.twin}"

    def usage(self) -> str:
        """Return how the command is written."""
        return self.parser.format_usage().removeprefix("usage: ").rstrip()

    def _knows(self, flag: str) -> bool:
        # -n4 is -n with its value, but -1 and -x+1 are values themselves.
        return flag in self.options or (not flag.startswith("--") and len(flag) > 2 and flag[:2] in self.options)


def _parser(prog: str, summary: str) -> _Parser:
    return _Parser(prog=prog, description=summary, allow_abbrev=False, formatter_class=_Shape, add_help=False)


class _Shape(argparse.HelpFormatter):
    """Help as wide as the terminal, or as a notebook has room for."""

    def __init__(self, prog: str) -> None:
        super().__init__(prog, width=width_here() or WIDE, max_help_position=28)


def _command(name: str, summary: str, twin: str) -> Command:
    return Command(name, summary, twin, _parser(f"%dq {name}", summary))


def _variable(text: str) -> str:
    if not text.isidentifier():
        raise argparse.ArgumentTypeError(f"{text!r} is not a name for a variable")
    return text


def _out(command: Command) -> Command:
    return command.add("-o", "--out", type=_variable, metavar="VAR", names=Names.NEW, help="store it, show nothing")


def _run(command: Command, names: Names = Names.RUN, metavar: str = "RUN") -> Command:
    what = "a name, or a variable that holds it; default: the last run"
    return command.add("run", nargs="?", metavar=metavar, names=names, help=what)


def _connect() -> Command:
    twin = "lab = dq.connect(target, n=4, store=..., name=...)"
    command = _command("connect", "Connect to a cluster, or start one on this machine.", twin)
    where = "address of a scheduler, `local` for a cluster of `dqlab up`, or a variable that holds a Client, a Cluster "
    where += "or a Lab; default: start one here"
    command.add("target", nargs="?", metavar="TARGET", names=Names.LAB, help=where)
    command.add("-n", type=int, metavar="N", help="consumer processes; default: one for each CPU")
    kept = "directory that keeps queues, so that runs and results outlive the cluster; without one they end with it"
    command.add("--store", metavar="PATH", help=kept)
    for kind, title in {"slurm": "Slurm", "pbs": "PBS"}.items():
        asks = f"start one of jobs of {title}; options of dq.hpc.{kind}, as cores=8,walltime=2h"
        command.add(f"--{kind}", nargs="?", const="", metavar="OPTIONS", names=Names.NEW, help=asks)
    command.add("--jobs", metavar="MIN:MAX", names=Names.NEW, help="how many jobs; or fewest and most")
    command.add("--timeout", metavar="TIME", names=Names.NEW, help="to wait for a scheduler, or for the first job")
    return _out(command.add("--name", metavar="NAME", help="of the lab; with `local`: as `dqlab up --name` was given"))


def _submit() -> Command:
    twin = "run = lab.queue(q).map(fn, documents, name=..., retry=dq.Retry(n))"
    command = _command("submit", "Map a function over documents; %%dq maps the last def or class of its cell.", twin)
    command.parser.set_defaults(defined=False)
    command.add("function", nargs="?", metavar="FUNC", names=Names.FUNCTION, help="the function; not with %%%%dq")
    over = "anything that can be iterated, or files: 'papers/*.pdf'"
    command.add("--over", required=True, metavar="EXPR", names=Names.VALUES, help=over)
    command.add("-q", "--queue", metavar="QUEUE", names=Names.QUEUE, help="default: that of %%config DQMagics.queue")
    command.add("--name", metavar="NAME", names=Names.RUN, help="of the run; default: the function's and a number")
    command.add("--retries", type=int, metavar="N", help="tries after an exception; default: the queue's")
    where = "of the function: a thread, or a process that may crash or hang; auto: a process with one of the next three"
    _limited(command, where)
    together = "the function takes lists of N documents, or as many as come through fastest"
    command.add("--batch", type=_number_or_auto, metavar="N|auto", help=together)
    command.add("--max-messages-per-process", type=int, metavar="N", help="start a new process after so many documents")
    at_once = "calls at once over all consumers; auto, for coroutines: as many as the service allows"
    command.add("--concurrency", type=_number_or_auto, metavar="N|auto", names=Names.NEW, help=at_once)
    most = "most calls in a time, as 500/min or 20/s; tokens=200k/min for a unit that dq.spend names; may repeat"
    command.add("--limit", type=_limit, action="append", metavar="RATE", names=Names.NEW, help=most)
    by_key = "most documents at once of each host of their URLs, as host=4, or of each value of a column"
    command.add("--cap", type=_cap, action="append", metavar="KEY=N", names=Names.NEW, help=by_key)
    paid = "the most that all calls may cost, as '20 eur'; calls say with dq.spend what they cost"
    command.add("--budget", metavar="AMOUNT", names=Names.NEW, help=paid)
    part = "share of the consumers' time among your runs, as 3; default: 1"
    command.add("--weight", type=float, metavar="N", default=1, help=part)
    command.add("--priority", type=int, metavar="N", default=0, help="-10 to 10: before your runs with a lower one")
    command.add("--delay", metavar="TIME", names=Names.NEW, help="start no document before so long, as 10m")
    command.add("--at", metavar="TIME", names=Names.NEW, help="start none before, as 18:00 or '2026-11-30 18:00'")
    seen = "devices that each call may use, or its share of one, as 0.5: each slot runs it in a process that sees these"
    command.add("--gpus", type=float, metavar="N", help=seen)
    failing = "pause when N documents have failed, or N %% of those that ended; default: the first 100, all of them"
    command.add("--stop-if", type=_stop_if, metavar="N|N%|never", default="auto", help=failing)
    first = "submit N documents drawn from all, say how long all take, and ask; default: 30 in a notebook for a list "
    first += "of more than 10,000; 0: never"
    command.add("--rehearse", type=int, metavar="N", help=first)
    command.add("--rate", type=_rate, metavar="PRICE", names=Names.NEW, help="of a worker-hour, to say what all cost")
    command.add("-y", "--yes", action="store_true", help="do not ask: submit the rest once the sample is done")
    written = "write results there: a folder or URL for Parquet, or txt/{key}.txt for files"
    command.add("--sink", metavar="PATH", names=Names.NEW, help=written)
    printed = "of which documents to keep what they print; default: failed, those that failed or were slow"
    command.add("--logs", choices=["failed", "all", "none"], default="failed", help=printed)
    there = "when a run of that name exists: the same if code and documents are, start over, retry what is dead, or "
    there += "run what is new or has changed"
    command.add("--on-existing", choices=["attach", "new", "retry-failed", "update"], default="attach", help=there)
    command.add("--watch", action="store_true", help="show it while it runs")
    return _out(command.add("-w", "--wait", action="store_true", help="return when it is done"))


def _limit(word: str) -> tuple[str, str]:
    unit, _, rate = word.rpartition("=")
    return unit or "calls", rate


def _cap(word: str) -> tuple[str, int]:
    key, _, most = word.rpartition("=")
    if not (key and most.isdecimal()):
        raise argparse.ArgumentTypeError(f"{word!r} is not written as host=4")
    return key, int(most)


def _number_or_auto(word: str) -> int | str:
    if word == "auto":
        return word
    if not word.isdecimal():
        raise argparse.ArgumentTypeError(f"{word!r} is neither a whole number nor `auto`")
    return int(word)


def _limited(command: Command, where: str = "a thread or a process from now on; auto: as given below") -> None:
    """Add the options for where a function runs, and within which limits."""
    command.add("--executor", choices=["auto", "thread", "process"], default="auto", help=where)
    longest = "longest time for one document, as 90s or 5m; its process is killed then"
    command.add("--timeout", metavar="TIME", names=Names.NEW, help=longest)
    most = "most memory of a process, as 1GB; it is killed when it has more"
    command.add("--memory", metavar="SIZE", names=Names.NEW, help=most)


def _stop_if(word: str) -> int | float | str | None:
    if word in ("never", "auto"):
        return None if word == "never" else word
    try:
        return float(word[:-1]) / 100 if word.endswith("%") else int(word)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{word!r} is neither a whole number, a share as 5%, nor `never`") from None


def _rate(word: str) -> float:
    with suppress(ValueError):
        if 0 <= (rate := float(word)) < math.inf:
            return rate
    raise argparse.ArgumentTypeError(f"{word!r} is no price: a number of 0 or more")


def _results() -> Command:
    command = _run(_command("results", "Wait for a run and return its values, in order.", "run.results(errors='skip')"))
    missing = "documents without a result; default: raise"
    command = command.add("--table", action="store_true", help="columns, types and first rows there are now")
    return _out(command.add("--errors", choices=["raise", "skip", "return"], default="raise", help=missing))


def _wait() -> Command:
    command = _run(
        _command("wait", "Wait until a run is done; interrupting leaves it running.", "run.wait(timeout='5m')")
    )
    return _out(command.add("--timeout", metavar="TIME", names=Names.NEW, help="seconds, or 90s, 5m"))


def _status() -> Command:
    return _out(_command("status", "Show all queues and runs, and what needs attention.", "lab.stats()"))


def _attach() -> Command:
    command = _command("attach", "Return a run that was made before, here or in another notebook.", "lab.attach(name)")
    return _out(command.add("run", metavar="RUN", names=Names.RUN, help="its name"))


def _show() -> Command:
    command = _command("show", "Show one dead document: error, traceback, deliveries, code.", "run.failures()[0]")
    command.add("letter", metavar="ID|KEY", names=Names.NEW, help="the message's id, or the document's key")
    return _out(_run(command))


def _logs() -> Command:
    summary = (
        "Print what a document has printed: of one that failed, was slow or runs now, or was submitted with --logs."
    )
    command = _command("logs", summary, "run.logs('inv-00777.pdf')")
    command.add("key", metavar="KEY", names=Names.NEW, help="the document's key, or its position as '#17'")
    command.add(
        "--since", metavar="DURATION", help="of a document that runs now: only what it printed lately, as '30s'"
    )
    return _out(_run(command))


def _slowest() -> Command:
    command = _run(_command("slowest", "List the documents whose results took longest.", "run.slowest(10)"))
    return _out(command.add("-n", type=int, metavar="N", default=10, help="how many; default: 10"))


def _spend() -> Command:
    summary = "Show what the calls of a run have spent, what all will have, and what holds it back now."
    return _run(_command("spend", summary, "run.spend()"))


def _debug() -> Command:
    summary = "Run a dead document here, and open the debugger at the line that raises."
    command = _command("debug", summary, "run.debug('inv-00777.pdf')")
    command.add("key", metavar="KEY", names=Names.NEW, help="the document's key, or its position as '#17'")
    return _run(command)


def _retry() -> Command:
    summary = "Retry dead documents with the function as it is defined now."
    command = _run(_command("retry", summary, "run.retry(fn=fn, where=..., rest=True, memory=..., note=...)"))
    command.add("--fn", metavar="NAME", names=Names.FUNCTION, help="default: the function of that name")
    rest = "give that code to the rest of the run too: what waits, and what is still to come"
    command.add("--rest", action="store_true", help=rest)
    _limited(command)
    note = "what it is for; views show it beside the version"
    command.add("--note", metavar="TEXT", names=Names.NEW, help=note)
    which = "only some: \"error == 'KeyError' and deliveries < 5\""
    return _out(command.add("--where", metavar="EXPR", names=Names.FILTER, help=which))


def _compare() -> Command:
    summary = "Run other code over a sample of a run, and show what would change; %%dq takes that of its cell."
    command = _run(_command("compare", summary, "found = run.compare(fn, sample=300, equal=dq.close(1e-6))"))
    command.parser.set_defaults(defined=False)
    command.add("--fn", dest="function", metavar="NAME", names=Names.FUNCTION, help="the code; not with %%%%dq")
    there = "the documents of the run, in a kernel that did not map it"
    command.add("--over", metavar="EXPR", names=Names.VALUES, help=there)
    command.add("--sample", type=int, default=300, metavar="N", help="how many documents; default: 300")
    alike = "when two results are the same, as dq.close(1e-6) or dq.same('label'); default: equal"
    command.add("--equal", metavar="EXPR", names=Names.VALUES, help=alike)
    better = "a function of key and result that gives a number, larger for better results"
    command.add("--score", metavar="EXPR", names=Names.VALUES, help=better)
    again = "on how many documents the old code runs again; default: 30 where it may change results by itself"
    return _out(command.add("--noise", type=int, metavar="N", help=again))


def _update() -> Command:
    summary = "Run what is new or has changed in the input of a run as it is now, and keep the rest."
    command = _run(_command("update", summary, "run.update(docs, fn, trust='size', keep_gone=True)"))
    there = "the documents; default: those that it was mapped over, listed again"
    command.add("--over", metavar="EXPR", names=Names.VALUES, help=there)
    code = "for what runs; default: the function of that name as it is defined now, or else the code of the run"
    command.add("--fn", metavar="NAME", names=Names.FUNCTION, help=code)
    _differing(command)
    return _out(command.add("--plan", action="store_true", help="only say what it would do"))


def _differing(command: Command) -> Command:
    """Add the options for which documents have changed, and what becomes of those that are gone."""
    touched = "size: documents of the same size have not changed, as in a restored backup; default: version"
    command.add("--trust", choices=["version", "size"], default="version", help=touched)
    return command.add("--keep-gone", action="store_true", help="keep the results of what the input no longer has")


def _cancel() -> Command:
    command = _run(_command("cancel", "Cancel every document that has no result yet.", "run.cancel()"))
    return _out(command.add("-y", "--yes", action="store_true", help="do it; without, only say what it would do"))


def _drop() -> Command:
    command = _command("drop", "Delete a run with its results and failures; its name is free again.", "run.drop()")
    command.add("run", metavar="RUN", names=Names.RUN, help="a name, or a variable that holds it")
    command.add("--data", action="store_true", help="delete what its sink has too; without, it stays where it is")
    return command.add("-y", "--yes", action="store_true", help="do it; without, only say what it would delete")


def _queue(command: Command) -> Command:
    what = "a name, or a variable that holds it; default: as for submit"
    return command.add("queue", nargs="?", metavar="QUEUE", names=Names.QUEUE, help=what)


def _scale() -> Command:
    summary = "Change the number of consumers, also while the queue is busy."
    command = _command("scale", summary, "lab.queue(name).scale(n)")
    command.add("n", metavar="N", names=Names.NEW, help="consumers; auto: one on each worker")
    return _out(_queue(command))


def _purge() -> Command:
    summary = "Discard messages; they count as cancelled."
    command = _queue(_command("purge", summary, "lab.queue(name).purge(state='dead')"))
    command.add("--state", choices=["dead", "ready", "delayed"], default="dead", help="which; default: dead")
    return _out(command.add("-y", "--yes", action="store_true", help="do it; without, only say what it would do"))


def _history() -> Command:
    summary = "Show the history of a queue: messages waiting and unacked, throughput, failures, and the cells that ran."
    command = _command("history", summary, "lab.queue(name).history('2h'), lab.history('2h')")
    command.add("queue", nargs="?", metavar="QUEUE", names=Names.QUEUE, help="default: all queues together")
    command.add(
        "--span", metavar="TIME", default="30m", names=Names.NEW, help="how far back, as 5m or 2h; default: 30m"
    )
    return _out(command)


def _open() -> Command:
    summary = "Print the address of the dashboard, or of one of its panels."
    command = _command("open", summary, "lab.panel('depth')")
    panels = ["dq", "depth", "throughput", "failures", "unacked", "runs", "storage"]
    return _out(command.add("panel", nargs="?", choices=panels, default="dq", help="default: dq, all of them"))


def _config() -> Command:
    command = _command("config", "Show or change the defaults of lines.", "%config DQMagics.queue = 'pages'")
    what = "queue=NAME, or display=live, static or text; default: show them"
    return command.add("settings", nargs="*", metavar="NAME=VALUE", names=Names.SETTING, help=what)


def _compact() -> Command:
    summary = "Free the disk space of settled messages in a durable queue now; for all of them: %dq gc."
    command = _command("compact", summary, "lab.queue(name).compact()")
    command.parser.epilog = _WHEN
    command.add("queue", nargs="?", metavar="QUEUE", names=Names.QUEUE, help="default: as for submit")
    return _out(command)


def _gc() -> Command:
    summary = "Free the disk space of settled messages in every durable queue; for one: %dq compact QUEUE."
    command = _command("gc", summary, "lab.gc()")
    command.parser.epilog = _WHEN
    return command


_WHEN = (
    "Neither loses a result. A queue does so by itself when more than half of its files is waste, so this is for "
    "when space is short now, or when runs that are not needed any more were dropped: %dq drop RUN, then %dq compact "
    "for its queue, or %dq gc."
)


def _documents() -> Command:
    summary = "Show documents: the first five, how many, their size, pages and formats, and what cannot be read."
    command = _command("documents", summary, "docs, which shows itself")
    what = "a listing of documents, or anything that dq.Documents takes"
    command.add("over", metavar="EXPR", names=Names.VALUES, help=what)
    return _out(command)


def _explain() -> Command:
    summary = "List what a function takes along and what its version rests on, with sizes."
    command = _command("explain", summary, "dq.explain(fn)")
    command.add("function", metavar="FUNC", names=Names.FUNCTION, help="the function")
    return _out(command)


def _doctor() -> Command:
    summary = "Examine the cluster, its queues and its store: what is wrong, and what to do about it."
    command = _command("doctor", summary, "lab.doctor(timeout='10s')")
    return _out(command.add("--timeout", metavar="TIME", names=Names.NEW, help="for all of it; default: 10s"))


def _all() -> Iterable[Command]:
    yield _connect()
    yield _documents()
    yield _submit()
    yield _attach()
    yield _status()
    runs = "List all runs of the cluster and of the store, also those of other clients; the newest first."
    yield _out(_command("runs", runs, "lab.all_runs()"))
    yield _out(_command("queues", "List the queues of the cluster, and those in the store.", "lab.queue_names()"))
    yield _run(_command("watch", "Show a run while it runs.", "run"))
    yield _wait()
    yield _results()
    yield _out(_run(_command("failed", "Show the dead documents of a run.", "run.failures()")))
    yield _show()
    yield _logs()
    yield _slowest()
    yield _spend()
    yield _debug()
    yield _retry()
    yield _compare()
    yield _update()
    for name, summary in (
        ("pause", "Pause a run or a queue; documents that are running now are finished."),
        ("resume", "Continue a paused run or queue."),
    ):
        yield _run(_command(name, summary, f"run.{name}()"), Names.RUN_OR_QUEUE, "RUN|QUEUE")
    drain = "Accept no new messages in a queue; what is there is processed, then it pauses."
    yield _out(_queue(_command("drain", drain, "lab.queue(name).drain()")))
    yield _cancel()
    yield _drop()
    yield _scale()
    yield _purge()
    yield _history()
    yield _open()
    yield _compact()
    yield _gc()
    yield _doctor()
    yield _explain()
    yield _config()
    yield _command("close", "Close the lab; a cluster that it started ends with all that is in it.", "lab.close()")


COMMANDS: dict[str, Command] = {command.name: command for command in _all()}
"""Every command by its name."""


def find(word: str) -> Command:
    """Return the command of that name, or raise `UsageError` that names the nearest."""
    if word not in COMMANDS:
        raise UsageError(reason=f"%dq has no command {word!r}. {_meant(word, COMMANDS)}")
    return COMMANDS[word]


def overview() -> str:
    """Return all commands, each in one or two lines."""
    lines = ["%dq COMMAND ...: queues, runs and failures of a lab. `%dq COMMAND -h` explains one.", ""]
    for command in COMMANDS.values():
        lines += [f"  {command.usage()}", f"      {command.summary}"]
    lines += [
        "",
        "With `%%dq submit --over EXPR` and `%%dq compare RUN` the cell defines the function: its last def, or class "
        "with a __call__.",
    ]
    lines += ["`x = %dq failed` works as `x = run.failures()` does; `-o x` stores it and shows nothing."]
    lines += ["Defaults: `%config DQMagics.queue`, `%config DQMagics.display` ('live', 'static' or 'text')."]
    return "\n".join(lines)


def _meant(word: str, known: Collection[str]) -> str:
    near = nearest(word, known)
    return f"Did you mean {near}?" if near else f"There are: {', '.join(known)}."
