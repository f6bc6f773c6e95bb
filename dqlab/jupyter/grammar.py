"""The grammar of `%dq`: a table of commands with their options, from which parser, help and completion follow.

Words end at spaces, except inside quotes and brackets, so that Python expressions need no quotes of their own:
``--over [f(x) for x in docs]``. A word that is one quoted text loses its quotes. Completion uses the grammar too. It
knows neither IPython nor labs. A mistake is a `UsageError` that names the nearest valid word.
"""

from __future__ import annotations

import argparse
import math
import re
from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
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


# --- the table -----------------------------------------------------------------------------

_RUN = "run RUN?  a name, or a variable that holds it; default: the last run"
_OUT = "-o --out VAR  store it, show nothing"
_QUEUE = "queue QUEUE?  a name, or a variable that holds it; default: as for submit"
_YES = "-y --yes  do it; without, only say what it would do"
_KEY = "key KEY  the document's key, or its position as '#17'"
_LIMITS = """--timeout TIME  longest time for one document, as 90s or 5m; its process is killed then
    --memory SIZE  most memory of a process, as 1GB; it is killed when it has more"""

# A command with `$` is one of shells too. Below it stand the call in Python that does the same, and its words and
# options: name or flags, the kind of value, and its default. `?` makes a value optional, `!` an option required, and
# `*` takes several. Alternatives in small letters are choices; the first is the default.
_TABLE = f"""
connect: Connect to a cluster, or start one on this machine.
  = lab = dq.connect(target, n=4, store=..., name=...)
    target TARGET?  address of a scheduler, `local` for a cluster of `dqlab up`, or a variable that holds a Client, a
        Cluster or a Lab; default: start one here
    -n N  consumer processes; default: one for each CPU
    --store PATH  directory that keeps queues, so that runs and results outlive the cluster; without one they end with
        it
    --slurm OPTIONS?  start one of jobs of Slurm; options of dq.hpc.slurm, as cores=8,walltime=2h
    --pbs OPTIONS?  start one of jobs of PBS; options of dq.hpc.pbs, as cores=8,walltime=2h
    --jobs MIN:MAX  how many jobs; or fewest and most
    --timeout TIME  to wait for a scheduler, or for the first job
    --name NAME  of the lab; with `local`: as `dqlab up --name` was given
    {_OUT}
documents: Show documents: the first five, how many, their size, pages and formats, and what cannot be read.
  = docs, which shows itself
    over EXPR  a listing of documents, or anything that dq.Documents takes
    {_OUT}
submit: Map a function over documents; %%dq maps the last def or class of its cell.
  = run = lab.queue(q).map(fn, documents, name=..., retry=dq.Retry(n))
    fn FUNC?  the function; not with %%dq
    --over EXPR!  anything that can be iterated, or files: 'papers/*.pdf'
    -q --queue QUEUE  default: that of %config DQMagics.queue
    --name RUN  of the run; default: the function's and a number
    --retries N  tries after an exception; default: the queue's
    --executor auto|thread|process  of the function: a thread, or a process that may crash or hang; auto: a process
        with one of the next three
    {_LIMITS}
    --batch N|auto  the function takes lists of N documents, or as many as come through fastest
    --max-messages-per-process N  start a new process after so many documents
    --concurrency N|auto  calls at once over all consumers; auto, for coroutines: as many as the service allows
    --limit RATE  most calls in a time, as 500/min or 20/s; tokens=200k/min for a unit that dq.spend names; may repeat
    --cap KEY=N  most documents at once of each host of their URLs, as host=4, or of each value of a column
    --budget AMOUNT  the most that all calls may cost, as '20 eur'; calls say with dq.spend what they cost
    --weight SHARE = 1  share of the consumers' time among your runs, as 3; default: 1
    --priority N = 0  -10 to 10: before your runs with a lower one
    --delay TIME  start no document before so long, as 10m
    --at WHEN  start none before, as 18:00 or '2026-11-30 18:00'
    --gpus SHARE  devices that each call may use, or its share of one, as 0.5: each slot runs it in a process that sees
        these
    --stop-if N|N%|never = auto  pause when N documents have failed, or N % of those that ended; default: the first
        100, all of them
    --rehearse N  submit N documents drawn from all, say how long all take, and ask; default: 30 in a notebook for a
        list of more than 10,000; 0: never
    --rate PRICE  of a worker-hour, to say what all cost
    -y --yes  do not ask: submit the rest once the sample is done
    --sink PATH  write results there: a folder or URL for Parquet, or txt/{{key}}.txt for files
    --logs failed|all|none  keep what these documents print; default: failed, those that failed or were slow
    --on-existing attach|new|retry-failed|update  when a run of that name exists: the same if code and documents are,
        start over, retry what is dead, or run what is new or has changed
    --watch  show it while it runs
    -w --wait  return when it is done
    {_OUT}
attach: Return a run that was made before, here or in another notebook.
  = lab.attach(name)
    run RUN  its name
    {_OUT}
status $: Show all queues and runs, and what needs attention.
  = lab.stats()
    {_OUT}
runs $: List all runs of the cluster and of the store, also those of other clients; the newest first.
  = lab.all_runs()
    {_OUT}
queues $: List the queues of the cluster, and those in the store.
  = lab.queue_names()
    {_OUT}
watch $: Show a run while it runs.
  = run
    {_RUN}
wait $: Wait until a run is done; interrupting leaves it running.
  = run.wait(timeout='5m')
    {_RUN}
    --timeout TIME  seconds, or 90s, 5m
    {_OUT}
results: Wait for a run and return its values, in order.
  = run.results(errors='skip')
    {_RUN}
    --table  columns, types and first rows there are now
    --errors raise|skip|return  documents without a result; default: raise
    {_OUT}
failed $: Show the dead documents of a run.
  = run.failures()
    {_RUN}
    {_OUT}
show $: Show one dead document: error, traceback, deliveries, code.
  = run.failures()[0]
    letter ID|KEY  the message's id, or the document's key
    {_RUN}
    {_OUT}
logs $: Print what a document has printed: of one that failed, was slow or runs now, or was submitted with --logs.
  = run.logs('inv-00777.pdf')
    {_KEY}
    --since DURATION  of a document that runs now: only what it printed lately, as '30s'
    {_RUN}
    {_OUT}
slowest $: List the documents whose results took longest.
  = run.slowest(10)
    {_RUN}
    -n N = 10  how many; default: 10
    {_OUT}
spend: Show what the calls of a run have spent, what all will have, and what holds it back now.
  = run.spend()
    {_RUN}
debug: Run a dead document here, and open the debugger at the line that raises.
  = run.debug('inv-00777.pdf')
    {_KEY}
    {_RUN}
retry $: Retry dead documents with the function as it is defined now.
  = run.retry(fn=fn, where=..., rest=True, memory=..., note=...)
    {_RUN}
    --fn FUNC  default: the function of that name
    --rest  give that code to the rest of the run too: what waits, and what is still to come
    --executor auto|thread|process  a thread or a process from now on; auto: as given below
    {_LIMITS}
    --note TEXT  what it is for; views show it beside the version
    --where FILTER  only some: "error == 'KeyError' and deliveries < 5"
    {_OUT}
compare: Run other code over a sample of a run, and show what would change; %%dq takes that of its cell.
  = found = run.compare(fn, sample=300, equal=dq.close(1e-6))
    {_RUN}
    --fn FUNC  the code; not with %%dq
    --over EXPR  the documents of the run, in a kernel that did not map it
    --sample N = 300  how many documents; default: 300
    --equal EXPR  when two results are the same, as dq.close(1e-6) or dq.same('label'); default: equal
    --score EXPR  a function of key and result that gives a number, larger for better results
    --noise N  on how many documents the old code runs again; default: 30 where it may change results by itself
    {_OUT}
update: Run what is new or has changed in the input of a run as it is now, and keep the rest.
  = run.update(docs, fn, trust='size', keep_gone=True)
    {_RUN}
    --over EXPR  the documents; default: those that it was mapped over, listed again
    --fn FUNC  for what runs; default: the function of that name as it is defined now, or else the code of the run
    --trust version|size  size: documents of the same size have not changed, as in a restored backup; default: version
    --keep-gone  keep the results of what the input no longer has
    --plan  only say what it would do
    {_OUT}
pause $: Pause a run or a queue; documents that are running now are finished.
  = run.pause()
    {_RUN.replace("RUN", "RUN|QUEUE")}
resume $: Continue a paused run or queue.
  = run.resume()
    {_RUN.replace("RUN", "RUN|QUEUE")}
drain $: Accept no new messages in a queue; what is there is processed, then it pauses.
  = lab.queue(name).drain()
    {_QUEUE}
    {_OUT}
cancel $: Cancel every document that has no result yet.
  = run.cancel()
    {_RUN}
    {_YES}
    {_OUT}
drop $: Delete a run with its results and failures; its name is free again.
  = run.drop()
    run RUN  a name, or a variable that holds it
    --data  delete what its sink has too; without, it stays where it is
    -y --yes  do it; without, only say what it would delete
scale $: Change the number of consumers, also while the queue is busy.
  = lab.queue(name).scale(n)
    n N|auto  consumers; auto: one on each worker
    {_QUEUE}
    {_OUT}
purge $: Discard messages; they count as cancelled.
  = lab.queue(name).purge(state='dead')
    {_QUEUE}
    --state dead|ready|delayed  which; default: dead
    {_YES}
    {_OUT}
history $: Show the history of a queue: messages waiting and unacked, throughput, failures, and the cells that ran.
  = lab.queue(name).history('2h'), lab.history('2h')
    queue QUEUE?  default: all queues together
    --span TIME = 30m  how far back, as 5m or 2h; default: 30m
    {_OUT}
open: Print the address of the dashboard, or of one of its panels.
  = lab.panel('depth')
    panel dq|depth|throughput|failures|unacked|runs|storage?  default: dq, all of them
    {_OUT}
compact: Free the disk space of settled messages in a durable queue now; for all of them: %dq gc.
  = lab.queue(name).compact()
    queue QUEUE?  default: as for submit
    {_OUT}
gc: Free the disk space of settled messages in every durable queue; for one: %dq compact QUEUE.
  = lab.gc()
doctor $: Examine the cluster, its queues and its store: what is wrong, and what to do about it.
  = lab.doctor(timeout='10s')
    --timeout TIME  for all of it; default: 10s
    {_OUT}
explain: List what a function takes along and what its version rests on, with sizes.
  = dq.explain(fn)
    fn FUNC  the function
    {_OUT}
config: Show or change the defaults of lines.
  = %config DQMagics.queue = 'pages'
    settings NAME=VALUE*  queue=NAME, or display=live, static or text; default: show them
close: Close the lab; a cluster that it started ends with all that is in it.
  = lab.close()
"""
_NOTES = dict.fromkeys(
    ("compact", "gc"),
    "Neither loses a result. A queue does so by itself when more than half of its files is waste, so this is for "
    "when space is short now, or when runs that are not needed any more were dropped: %dq drop RUN, then %dq compact "
    "for its queue, or %dq gc.",
)


# --- the kinds of values -------------------------------------------------------------------


def _duration(text: str) -> float | str:
    return float(text) if text.replace(".", "", 1).isdecimal() else text


def _variable(text: str) -> str:
    if not text.isidentifier():
        raise argparse.ArgumentTypeError(f"{text!r} is not a name for a variable")
    return text


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


def _stop_if(word: str) -> int | float | str | None:
    if word in ("never", "auto"):
        return None if word == "never" else word
    try:
        return float(word[:-1]) / 100 if word.endswith("%") else int(word)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{word!r} is neither a whole number, a share as 5%, nor `never`") from None


def _price(word: str) -> float:
    with suppress(ValueError):
        if 0 <= (price := float(word)) < math.inf:
            return price
    raise argparse.ArgumentTypeError(f"{word!r} is no price: a number of 0 or more")


_KINDS: dict[str, dict[str, Any]] = {
    "N": {"type": int},
    "TIME": {"type": _duration},
    "N|auto": {"type": _number_or_auto},
    "N|N%|never": {"type": _stop_if},
    "SHARE": {"type": float},
    "PRICE": {"type": _price},
    "VAR": {"type": _variable},
    "RATE": {"type": _limit, "action": "append"},
    "KEY=N": {"type": _cap, "action": "append"},
}
"""How argparse takes a value, by its kind; a kind that is not here is a text."""
_CHOICES = re.compile(r"[a-z-]+(\|[a-z-]+)+")

WIDE = 100
"""Columns of help where no terminal has fewer."""
SHELL = "dqlab"
"""Prefix of a command in a shell."""
_OF_NOTEBOOKS = ("fn", "out")
"""Options that name functions and variables, which a shell does not have."""
_WHERE = {
    "--at ADDRESS = local": "of that scheduler; default: the cluster of `dqlab up` on this machine, or else that of a "
    "script or notebook of yours",
    "--name NAME": "one of several clusters",
}
"""Options of shells."""


class _Parser(argparse.ArgumentParser):
    """Raises an error where argparse would print one and end the process."""

    def take(self, spec: str, help: str) -> None:
        """Add a word or an option as the table has it."""
        said, _, default = spec.partition(" = ")
        *names, kind = said.split()
        given: dict[str, Any] = {"help": help.replace("%", "%%")}
        if kind.startswith("-"):
            self.add_argument(*names, kind, action="store_true", **given)
            return
        given |= {"default": default} if default else {}
        given |= {"required": True} if kind.endswith("!") else {}
        given |= {"nargs": kind[-1], "const": "" if kind[-1] == "?" else None} if kind[-1] in "?*" else {}
        kind = kind.rstrip("?*!")
        if _CHOICES.fullmatch(kind):
            choices = kind.split("|")
            given |= {"choices": choices, "default": choices[0]}
        else:
            given |= {"metavar": kind, **_KINDS.get(kind, {})}
        self.add_argument(*names, **given)

    def error(self, message: str) -> NoReturn:
        raise UsageError(reason=f"{self.prog}: {message}. See {self.prog} -h")

    def exit(self, status: int = 0, message: str | None = None) -> NoReturn:
        raise UsageError(reason=message or f"{self.prog} ended with status {status}")


class _Shape(argparse.HelpFormatter):
    """Help as wide as the terminal, or as a notebook has room for."""

    def __init__(self, prog: str) -> None:
        super().__init__(prog, width=width_here() or WIDE, max_help_position=28)


@dataclass(frozen=True)
class Command:
    """One command, with its words and its options."""

    name: str
    summary: str
    twin: str
    takes: dict[str, str]
    """Help by word or option, as the table has them."""
    in_shell: bool
    """Whether the command works in a shell, as ``dqlab NAME``, because it needs nothing of a notebook."""
    prefix: str = "%dq"

    @cached_property
    def parser(self) -> _Parser:
        """What parses its words, and writes its help."""
        parser = _Parser(
            prog=f"{self.prefix} {self.name}",
            description=self.summary,
            epilog=_NOTES.get(self.name),
            allow_abbrev=False,
            formatter_class=_Shape,
            add_help=False,
        )
        parser.set_defaults(defined=False, **dict.fromkeys(_OF_NOTEBOOKS))
        for spec, help in self.takes.items():
            parser.take(spec, help)
        return parser

    @property
    def takes_cell(self) -> bool:
        """Whether it may stand on the first line of a cell, whose function it then takes."""
        return self.name in ("submit", "compare")

    def for_shell(self) -> Command:
        """Return the command as a shell takes it, with its cluster."""
        takes = {spec: help for spec, help in self.takes.items() if not spec.startswith(("--fn ", "-o --out "))}
        return replace(self, takes=takes | _WHERE, prefix=SHELL)

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


def _commands() -> Iterator[Command]:
    """Read the table."""
    for block in re.split(r"\n(?=\w)", _TABLE.strip()):
        head, *lines = re.split(r"\n(?: {4}| {2}(?==))(?! )", block)
        name, _, summary = head.partition(": ")
        takes = (" ".join(line.split("\n")).split("  ", 1) for line in lines[1:])
        yield Command(
            name.removesuffix(" $"),
            summary,
            lines[0].removeprefix("= "),
            {spec: re.sub(r" {2,}", " ", help) for spec, help in takes},
            name.endswith("$"),
        )


COMMANDS: dict[str, Command] = {command.name: command for command in _commands()}
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
