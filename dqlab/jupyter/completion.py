"""Completes a line of `%dq` while it is being written.

It calls no queue and no network, since it runs at every press of the key: it offers only the runs that this lab knows
already.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable, Iterable, Mapping
from types import ModuleType
from typing import TYPE_CHECKING, Any

from dqlab.jupyter.grammar import COMMANDS, Command, Names
from dqlab.lab import Lab
from dqlab.live.display import Mode
from dqlab.runs.pool import QueuePool
from dqlab.runs.reading.where import FIELDS
from dqlab.runs.run import Run

if TYPE_CHECKING:
    from IPython.core.completer import CompletionContext, SimpleMatcherResult

_LINE = re.compile(r"\s*(?:[\w.]+\s*=\s*)?(?P<percents>%%?)dq\s+(?P<rest>.*)", re.DOTALL)

_Matcher = Callable[["CompletionContext"], "SimpleMatcherResult"]


def candidates(text: str, names: Mapping[str, Any], lab: Lab | None) -> tuple[list[str], str] | None:
    """Return the words that may stand at the end of a line, and the partial word before them, or None outside `%dq`."""
    line = _LINE.fullmatch(text)
    if line is None:
        return None
    *words, begun = re.split(r"\s+", line["rest"])
    if not words:
        found: Iterable[str] = ["submit"] if line["percents"] == "%%" else COMMANDS
    elif words[0] not in COMMANDS:
        found = []
    else:
        found = _inside(COMMANDS[words[0]], words[1:], begun, names, lab)
    return [word for word in found if word.startswith(begun)], begun


def _inside(command: Command, words: list[str], begun: str, names: Mapping[str, Any], lab: Lab | None) -> Iterable[str]:
    before = command.options.get(words[-1]) if words else None
    if before is not None and before.nargs != 0:
        return _values(before, command, names, lab)
    if begun.startswith("-"):
        return [flag for flag in command.options if flag not in words]
    at = _position(command, words)
    if at < len(command.words):
        return _values(command.words[at], command, names, lab)
    return [flag for flag in command.options if flag not in words and flag.startswith("--")]


def _position(command: Command, words: list[str]) -> int:
    """Return how many words are neither options nor their values."""
    count, taken = 0, False
    for word in words:
        option = command.options.get(word)
        count += option is None and not taken
        taken = option is not None and option.nargs != 0
    return count


def _values(action: argparse.Action, command: Command, names: Mapping[str, Any], lab: Lab | None) -> Iterable[str]:
    if action.choices is not None:
        return [str(choice) for choice in action.choices]
    kind = command.names.get(action.dest)
    return sorted(_SOURCES[kind](names, lab)) if kind in _SOURCES else []


# --- what each kind of word may be -------------------------------------------------------------


def _visible(names: Mapping[str, Any], fits: Callable[[Any], bool]) -> set[str]:
    # A copy: a thread of the user may add names meanwhile. `fits` looks at classes only: a value's own methods may do
    # anything, at every press of the key.
    return {name for name, value in list(names.items()) if not name.startswith("_") and fits(value)}


def _functions(names: Mapping[str, Any], _: Lab | None) -> set[str]:
    return _visible(names, lambda value: callable(value) and not isinstance(value, type))


def _iterables(names: Mapping[str, Any], _: Lab | None) -> set[str]:
    plain = (str, bytes, ModuleType, type)
    return _visible(names, lambda value: hasattr(type(value), "__iter__") and not isinstance(value, plain))


def _labs(names: Mapping[str, Any], _: Lab | None) -> set[str]:
    from distributed import Client
    from distributed.deploy.cluster import Cluster

    return _visible(names, lambda value: isinstance(value, Lab | Client | Cluster))


def _runs(names: Mapping[str, Any], lab: Lab | None) -> set[str]:
    known = {run.name for run in lab.runs} | {run.name for run in lab.seen.runs} if lab else set()
    return _visible(names, lambda value: isinstance(value, Run)) | known


def _queues(_: Mapping[str, Any], lab: Lab | None) -> set[str]:
    return {queue.name for queue in lab.queues} | {queue.name for queue in lab.seen.queues} if lab else set()


def _runs_and_queues(names: Mapping[str, Any], lab: Lab | None) -> set[str]:
    return _runs(names, lab) | _queues(names, lab) | _visible(names, lambda value: isinstance(value, QueuePool))


def _fields(_: Mapping[str, Any], __: Lab | None) -> set[str]:
    return set(FIELDS.kinds)


def _settings(_: Mapping[str, Any], __: Lab | None) -> set[str]:
    return {"queue=", *(f"display={mode}" for mode in Mode)}


_SOURCES: dict[Names | None, Callable[[Mapping[str, Any], Lab | None], set[str]]] = {
    Names.LAB: _labs,
    Names.FUNCTION: _functions,
    Names.VALUES: _iterables,
    Names.QUEUE: _queues,
    Names.RUN: _runs,
    Names.RUN_OR_QUEUE: _runs_and_queues,
    Names.FILTER: _fields,
    Names.SETTING: _settings,
}


def matcher(names: Callable[[], Mapping[str, Any]], lab: Callable[[], Lab | None]) -> _Matcher:
    """Return a matcher for IPython that suppresses all other words in a line of `%dq`."""
    from IPython.core.completer import SimpleCompletion, context_matcher

    @context_matcher(identifier="dqlab.dq", priority=1000)  # type: ignore[untyped-decorator]
    def match(context: CompletionContext) -> SimpleMatcherResult:
        found = candidates(context.text_until_cursor, names(), lab())
        if found is None:
            return {"completions": []}
        words, begun = found
        completions = [SimpleCompletion(text=word) for word in words]
        return {"completions": completions, "matched_fragment": begun, "suppress": True}

    return match  # type: ignore[no-any-return]
