"""Errors for arguments and attributes that do not exist, which suggest the one that was meant."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Iterable, Mapping
from difflib import SequenceMatcher, get_close_matches
from functools import wraps
from reprlib import repr as brief
from typing import TYPE_CHECKING, Any, ClassVar, ParamSpec, TypeVar

from dqlab.errors import NoAttribute, NotSettable, UnknownOption, WrongArguments, WrongUse
from dqlab.user_frames import is_own

__all__ = [
    "IsNoSequence",
    "KeepsAttributes",
    "SuggestsAttributes",
    "SuggestsNames",
    "call_of",
    "checks_keywords",
    "checks_making",
    "documented_as",
    "instead",
    "meant",
    "nearest",
]

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")

_OWNERS = frozenset({"self", "cls"})
"""Parameters that the caller does not write."""
_SPELLED = 2
"""Letters in which a name may differ from the one that was meant."""
_LOSES = frozenset({"cancel", "close", "compact", "drop", "forget", "gc", "give_up", "kill", "purge", "replace"})
"""Names that are never a guess, since what they do cannot be undone."""

_WRITES = "to_csv to_excel to_json to_sql"
_INSTEAD = {
    name: sentence
    for names, sentence in (
        # options
        ("batch batch_size chunksize", "A call gets one document. For several at once, map over lists of documents."),
        (
            "max_workers n_jobs n_workers num_proc num_workers processes workers",
            "dq.connect(n=4) starts four consumer processes; lab.queue().scale(4) sets how many a queue has.",
        ),
        ("attempts max_attempts max_retries retries tries", "Did you mean retry=dq.Retry({value})?"),
        (
            "max_rate rate rate_limit throttle",
            "No rate can be set. lab.queue().scale(N) limits how many calls run at a time, and a "
            "function that raises dq.Later(seconds) has its document called again later.",
        ),
        (
            "map.concurrency map.durable map.early_ack map.max_bytes map.max_deliveries map.maxsize "
            "map.n_queues map.served map.visibility_timeout",
            "It is an option of the queue, given when the queue is made: "
            "lab.queue(NAME, {name}={value}).map(fn, documents).",
        ),
        ("map.on_exists", "Did you mean on_existing=?"),
        (
            "Run.failures.where",
            "Filter the table, run.failures().to_frame().query({value}), or the letters: [letter for "
            "letter in run.failures() if ...]. run.retry(where=...) sends some of them again.",
        ),
        (
            "where.key where.pages where.size where.version where.where",
            'Write the condition as a text: docs.where("{name} == {value}").',
        ),
        ("Documents.encoding Documents.errors", "The function says how a text is read: doc.text({name}={value})."),
        ("from_glob.recursive", "Two stars match any number of folders: from_glob('folder/**/*.txt')."),
        # attributes
        ("Run.status", "run.counts has how many documents are in which state, run.state what it does."),
        ("Run.progress", "run.counts has how many documents are in which state; the run shows itself in a cell."),
        ("Run.errors Run.exception Run.exceptions", "run.failures() lists what failed."),
        ("Run.get Run.gather Run.compute", "run.results() waits and returns the results."),
        ("Run.join", "run.wait() returns when it is done."),
        ("Run.stop Run.kill", "run.pause() stops it until run.resume(); run.cancel() gives up what is not done."),
        ("Run.delete", "run.drop() deletes it with its results."),
        ("Run.to_frame", "run.results().to_frame() has its results, run.failures().to_frame() what failed."),
        ("Run.to_pandas", "run.results().to_frame() gives a DataFrame of pandas."),
        (_WRITES.replace("to_", "Run.to_"), "run.results().to_frame().{name}(...) writes its results."),
        ("Run.unacked", "lab.queue(run.queue).unacked() lists what consumers hold of its queue."),
        ("Results.to_parquet", "run.to_parquet('out/') writes them; to_frame().to_parquet(...) does too."),
        (f"{_WRITES} to_parquet", "to_frame().{name}(...) writes them."),
        ("to_pandas", "to_frame() gives a DataFrame of pandas."),
        ("Results.get", "Results are a sequence: dict(results.items()) looks keys up."),
        ("Results.values", "list(results) has its values, and results.items() yields (key, value)."),
        ("Results.to_list Results.tolist", "Write list(results)."),
        ("Results.to_dict", "Write dict(results.items())."),
        ("Documents.filter Documents.query", "where(condition) does it: docs.where('size < 50e3')."),
        ("Documents.head", "A slice does it: docs[:5]."),
        ("Documents.keys", "Write [document.key for document in docs]."),
        ("Documents.to_frame", "Write pd.DataFrame((document.key, document.size) for document in docs)."),
        (
            "Document.path Document.name Document.url",
            "where is the path or URL that it is opened at, key its name in results.",
        ),
        (
            "Document.read Document.read_text Document.read_bytes Document.content Document.contents",
            "text() reads it as text, bytes() as bytes, open() gives a file.",
        ),
        ("Document.get", "A row has its values by column, document['title'], and all of them as document.row()."),
        (
            "from_archive from_csv from_dask from_frame from_glob from_hf from_jsonl from_parquet stdlib",
            "Make a listing of documents with: dq.Documents.{name}(...)",
        ),
        (
            "dqlab.all_runs dqlab.attach dqlab.close dqlab.doctor dqlab.gc dqlab.history dqlab.map "
            "dqlab.panel dqlab.queue dqlab.stats",
            "Connect first: lab = dq.connect(); lab.{name}(...)",
        ),
        ("Run.map Documents.map", "A lab has it: lab.map(fn, documents)."),
        # lines
        ("%dq.help", "Did you mean -h?"),
        ("%dq.list %dq.ls", "Did you mean runs, or queues?"),
        ("%dq.map %dq.run", "Did you mean submit?"),
        ("%dq.progress", "Did you mean watch, or status?"),
        ("%dq.stop %dq.kill", "Did you mean pause?"),
        ("%dq.delete %dq.remove %dq.rm", "Did you mean drop, which deletes a run with its results?"),
        (
            "%dq.clean %dq.cleanup %dq.collect %dq.free %dq.garbage %dq.prune %dq.shrink %dq.trim %dq.vacuum",
            "Did you mean compact, for one queue, or gc, for all of them?",
        ),
    )
    for name in names.split()
}
"""What to write for the names of other libraries, everywhere or in a class, a function or `%dq`."""


def nearest(word: str, known: Iterable[str]) -> str:
    """Return the name that differs in two letters at most from a word, or "" if none does."""
    # `difflib` alone takes "purge" for "progress", and prefixes for everything.
    names = {name.lower(): name for name in known}
    for near in get_close_matches(word.lower(), names, n=1):
        alike = sum(block.size for block in SequenceMatcher(None, word.lower(), near).get_matching_blocks())
        if max(len(word), len(near)) - alike <= _SPELLED and names[near] not in _LOSES:
            return names[near]
    return ""


def meant(word: str, known: Iterable[str]) -> str:
    """Return `` Did you mean 'parse'?`` for the nearest name, or ""."""
    return f" Did you mean {near!r}?" if (near := nearest(word, known)) else ""


def instead(place: str, name: str, value: object = None) -> str:
    """Return what to write in `place` for a name of other libraries, or "" for an unknown one."""
    owner, _, function = place.rpartition(".")
    ways = (f"{place}.{name}", f"{owner or place.partition('.')[0]}.{name}", f"{function}.{name}", name)
    written = repr(value) if isinstance(value, str) else brief(value)
    return next((_INSTEAD[way] for way in ways if way in _INSTEAD), "").format(name=name, value=written)


def documented_as(other: Callable[..., object]) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Append the docstring of another function with the same parameters, without its summary, to a function's."""

    def document(function: Callable[P, R]) -> Callable[P, R]:
        summary, rest = inspect.cleandoc(function.__doc__ or ""), inspect.cleandoc(other.__doc__ or "")
        function.__doc__ = f"{summary}\n{rest.partition(chr(10))[2]}"
        return function

    return document


def checks_keywords(
    function: Callable[P, R], called: str = "", usage: Callable[[Any], str] | None = None
) -> Callable[P, R]:
    """Make a public function raise `UnknownOption` for an unknown keyword, and `WrongArguments` for other mistakes.

    `usage` returns a call, given the first argument; without one, the call is made of the signature.
    """
    # Python's own TypeError suggests nothing before 3.13, and its traceback shows our frame.
    signature = inspect.signature(function)
    known = [name for name in signature.parameters if name not in _OWNERS]
    called = called or function.__qualname__.removesuffix(".__init__")

    @wraps(function)
    def checked(*args: P.args, **kwargs: P.kwargs) -> R:
        try:  # arguments are checked only once Python has refused them, so that calls stay cheap
            return function(*args, **kwargs)
        except TypeError:
            try:
                signature.bind(*args, **kwargs)
            except TypeError as error:
                refused = error
            else:
                raise  # the arguments fit: the error is about a value
        way = "" if usage is None else usage(next(iter([*args[1:], *kwargs.values()]), None))
        for name in kwargs:
            if name not in known:
                hint = f"There are: {', '.join(known)}. Make it with: {way}." if way else ""
                hint = hint or _hint(called, name, kwargs[name], known)
                raise UnknownOption(function=called, option=name, hint=hint)
        raise WrongArguments(function=called, reason=str(refused), usage=way or _usage(called, signature))

    return checked


def checks_making(kind: type[T], usage: Callable[[Any], str]) -> type[T]:
    """Make a class raise `UnknownOption` and `WrongArguments` when it is called with arguments that do not fit."""
    kind.__init__ = checks_keywords(kind.__init__, kind.__name__, usage)  # type: ignore[method-assign]
    return kind


def call_of(kind: type, name: str) -> str:
    """Return an attribute of a class as it is written after its object (``submit(...)``), or "" if it has none."""
    found = getattr(kind, name, None)
    return "" if found is None else f"{name}(...)" if callable(found) else name


class SuggestsAttributes:
    """Suggests the public name that was meant for one that does not exist, as IPython hides Python's guess."""

    __slots__ = ()

    if not TYPE_CHECKING:  # else every name would pass the type checker

        def __getattr__(self, name: str) -> Any:
            kind = type(self)
            if hasattr(kind, name):
                return object.__getattribute__(self, name)  # a property raised AttributeError: read it again to show it
            if name.startswith("_"):
                raise AttributeError(f"{kind.__name__!r} object has no attribute {name!r}")
            raise _no_attribute(kind, name, self._elsewhere(name))

    def _elsewhere(self, name: str) -> str:
        """Return where an attribute is that users look for here, or "" where that is not known."""
        return instead(type(self).__name__, name)


class SuggestsNames(type):
    """Suggests the public name of a class that was meant, as `SuggestsAttributes` does for its objects."""

    if not TYPE_CHECKING:

        def __getattr__(cls, name: str) -> Any:
            if name.startswith("_"):
                raise AttributeError(f"type object {cls.__name__!r} has no attribute {name!r}")
            raise _no_attribute(cls, name, instead(cls.__name__, name), f"dir({cls.__name__})")


def _no_attribute(kind: type, name: str, hint: str, listed: str = "dir(...)") -> NoAttribute:
    near = nearest(name, (known for known in dir(kind) if not known.startswith("_")))
    hint = hint or (f"Did you mean {near}?" if near else f"{listed} lists what it has.")
    return NoAttribute(what=kind.__name__, attribute=name, hint=hint)


class KeepsAttributes:
    """Refuses to let users set a public name that an object does not have or that is read-only."""

    # Python accepts any name: without this, ``run.timeout = 5`` changes nothing, in silence.
    __slots__ = ()
    _read_only: ClassVar[Mapping[str, str]] = {}
    """Attributes that users can only read, and what to write instead of setting them."""

    if not TYPE_CHECKING:

        def __setattr__(self, name: str, value: Any) -> None:
            kind = type(self)
            is_there = name in self.__dict__
            # The caller's own frame decides whose code this is: with a wrapper around this method it would be ours.
            if (
                not name.startswith("_")
                and not is_own(sys._getframe(1).f_code.co_filename)
                and (is_there or name not in getattr(kind, "__dataclass_fields__", {}))
            ):
                found = getattr(kind, name, None)
                only_read = name in self._read_only or (isinstance(found, property) and found.fset is None)
                a_method = callable(found) and not callable(value)  # a function may take its place
                if only_read or a_method or not (is_there or hasattr(kind, name)):
                    problem = "is only read" if only_read else "is a method" if a_method else "is not there"
                    way = self._read_only.get(name) or self._set_elsewhere(name)
                    raise NotSettable(what=kind.__name__, attribute=name, problem=problem, way=way)
            object.__setattr__(self, name, value)

    def _set_elsewhere(self, name: str) -> str:
        """Return how to set what such a name stands for."""
        return "dir(...) lists what it has. Keep what is yours in a variable of its own"


class IsNoSequence:
    """Refuses `len`, an index and a loop with what to write instead, and counts as true, as any object does."""

    __slots__ = ()

    def _instead(self, use: str) -> tuple[str, str, str]:
        """Return what this is, why the use ("len", "loop" or an index) is wrong, and what to write."""
        raise NotImplementedError

    if not TYPE_CHECKING:  # else the type checker would take it for a sequence
        # Python would otherwise ask `__len__`, and ``if run:`` would raise.
        def __bool__(self) -> bool:
            return True

        def __len__(self) -> int:
            raise self._wrong("len")

        def __getitem__(self, index: Any) -> Any:
            raise self._wrong(_bracketed(index))

        def __iter__(self) -> Any:
            raise self._wrong("loop")

        def __contains__(self, value: Any) -> bool:
            raise self._wrong("loop")

        def _wrong(self, use: str) -> WrongUse:
            what, problem, hint = self._instead(use)
            return WrongUse(what=what, problem=problem, hint=hint)


def _bracketed(index: Any) -> str:
    """Format an index as it stands between brackets."""
    if isinstance(index, slice) and index.step is None:
        return ":".join("" if end is None else brief(end) for end in (index.start, index.stop))
    return brief(index)


def _hint(called: str, name: str, value: Any, known: list[str]) -> str:
    if near := nearest(name, known):
        return f"Did you mean {near}=?"
    there = f"There are: {', '.join(known)}." if known else "It takes no arguments."
    return instead(called, name, value) or there


def _usage(called: str, signature: inspect.Signature) -> str:
    """Return a call with the arguments that have no name or no default, as in ``Lab.map(fn, documents, ...)``."""
    needed = [
        parameter.name
        for parameter in signature.parameters.values()
        if parameter.name not in _OWNERS and parameter.kind is not parameter.KEYWORD_ONLY
    ]
    more = ["..."] if len(needed) < len(signature.parameters.keys() - _OWNERS) else []
    return f"{called}({', '.join([*needed, *more])})"
