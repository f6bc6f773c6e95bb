"""`dqlab run extract.py:parse --over "inbox/**"`: a function of a file over files, in a shell, as under cron.

Its exit status is the outcome: 0 all documents have results, 1 some have none, 2 the words are wrong, 3 the run refused
what was asked and nothing ran.
"""

from __future__ import annotations

import sys
from argparse import Namespace
from collections.abc import Callable
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

from dqlab.config import check_name
from dqlab.connecting import connect
from dqlab.datasets.sinks import same_sink, sink_named
from dqlab.documents import Documents
from dqlab.errors import BadOption, DqlabError, RunExists, RunNotFound
from dqlab.lab import Lab
from dqlab.live.display import conclude
from dqlab.runs.run import Run

DONE, FAILED, REFUSED = 0, 1, 3


def run(options: Namespace, say: Callable[[str], None]) -> int:
    """Map or update, wait for the end, and return the exit status."""
    function = function_of(options.function)
    name = options.name or function.__name__
    check_name(name, kind="run")
    try:
        with connect(n=options.n, store=options.store, name=f"run-{name}") as lab:
            mapped = _mapped(lab, function, name, options)
            say(str(mapped.updated or f"run {name!r}: {mapped.stats().counts.all:,} documents so far"))
            return _ended(mapped, say)
    except (DqlabError, OSError) as error:
        if isinstance(error, RunExists) and error.in_python:
            steps = "--update runs what is new or has changed, and keeps the rest; another --name keeps both."
            error = RunExists(run=error.run, difference=error.difference, steps=steps)
        say(f"dqlab run: refused, nothing ran: {type(error).__name__}: {error}")
        return REFUSED


def _mapped(lab: Lab, function: Callable[[Any], Any], name: str, options: Namespace) -> Run:
    """Start a run, attach to the same one, or update it."""
    documents = Documents.from_glob(options.over)
    sink: Any = None if options.sink is None else sink_named(options.sink)
    try:
        found = lab.attach(name) if options.update else None
    except RunNotFound:
        found = None
    if found is None:
        return lab.map(function, documents, name=name, sink=sink, retry=options.retries)
    if sink is not None and not same_sink(found.record()["sink"], sink.record()):
        raise RunExists(
            run=name, difference=f"another sink ({found.sink})", steps="Leave --sink out, or give a --name."
        )
    return found.update(documents, function, trust=options.trust, keep_gone=options.keep_gone, wait=True)


def _ended(mapped: Run, say: Callable[[str], None]) -> int:
    """Wait for the end of a run, and return the exit status."""
    try:
        progress = mapped.until_over()
    except DqlabError as error:
        if isinstance(error, RunExists):
            raise
        say(f"dqlab run: {type(error).__name__}: {error}")
        return FAILED
    say(conclude(mapped))
    return DONE if progress.counts.acked == progress.counts.all else FAILED


def function_of(word: str) -> Callable[[Any], Any]:
    """Return the function that ``FILE.py:NAME`` names, or raise `BadOption`."""
    file, _, name = word.rpartition(":")
    path = Path(file).expanduser().resolve()
    spec = spec_from_file_location(path.stem, path) if path.is_file() else None
    if spec is None or spec.loader is None:
        raise BadOption(option="FUNCTION", value=word, problem="is no FILE.py:NAME of a file that exists. Nothing ran.")
    sys.path.insert(0, str(path.parent))  # as `python FILE.py` has it: for modules beside it
    module = sys.modules[path.stem] = module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except Exception as error:  # its own code may raise anything
        problem = f"cannot be imported: {type(error).__name__}: {error}. Nothing ran."
        raise BadOption(option="FUNCTION", value=word, problem=problem) from error
    function: Callable[..., Any] | None = getattr(module, name, None)
    if not callable(function):
        raise BadOption(option="FUNCTION", value=word, problem=f"has no function {name!r}. Nothing ran.")
    return function
