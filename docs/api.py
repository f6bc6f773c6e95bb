"""Write docs/reference/api.md from signatures, docstrings, the grammar of `%dq` and the defaults: `make api`."""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Callable, Iterator
from enum import Enum
from pathlib import Path
from typing import Any, NamedTuple

import yaml

import dqlab as dq
from dqlab import errors, hpc, testing
from dqlab.jupyter.grammar import COMMANDS
from dqlab.runs.compare.comparison import Comparison
from dqlab.runs.failures import DeadLetter, Failures
from dqlab.runs.puts import PutResult
from dqlab.runs.reading.results import Results
from dqlab.runs.rehearsal import Estimate, Marks, Rehearsal
from dqlab.runs.update.plan import UpdatePlan
from dqlab.runs.update.updating import Following

DOCS = Path(__file__).parent
PAGE = DOCS / "reference" / "api.md"
DEFAULTS = DOCS.parent / "dqlab" / "dqlab.yaml"

INTERNAL = {
    dq.Lab: {
        *("announce", "controls", "held_elsewhere", "keep_in", "list_stored", "past", "retry", "seen", "service"),
        *("snapshot", "wait_for_change"),
    },
    dq.Run: {
        *("doubt", "examples", "handle", "left", "newer", "on_drop", "past", "record", "send_again", "snapshot"),
        *("beside", "reader", "submitter", "undecided", "until_over", "at_end", "why_none"),
        *("drawn", "rate", "tried", "waits_for_go"),
    },
    dq.QueuePool: {"forget", "gone", "past", "snapshot"},
    dq.Document: {"n_pages", "part"},
    dq.Documents: {"filtered", "repeats", "source_label", "why_none"},
    Results: {"ordinals_of", "references", "replaced_keys", "single"},
    Failures: {"example", "named", "of", "places"},
}
"""Public names that views and lines of `%dq` need, and users do not."""


class Group(NamedTuple):
    """A section: what it is about, and the owners of its names, each with the variable that pages use for it."""

    title: str
    text: str
    owners: list[tuple[str, Any]]


GROUPS = [
    Group("Connect", "A lab is a connection to a cluster.", [("dq", [dq.connect, dq.map]), ("lab", dq.Lab)]),
    Group("Run", "What `map` returns: one mapping of a function over documents.", [("run", dq.Run)]),
    Group(
        "Queue pool",
        "A queue with its own options, for single calls and plain values: `pool = lab.queue(name)`.",
        [("pool", dq.QueuePool), ("put", PutResult), ("dq", [dq.Durability])],
    ),
    Group(
        "Results and failures",
        "`run.results()` and `run.failures()` return sequences that are read page by page.",
        [("results", Results), ("failures", Failures), ("letter", DeadLetter)],
    ),
    Group(
        "Rehearsals",
        "What a sample of a run says about all of it; see also `rehearse` of `map`, and `run.go`.",
        [("rehearsal", Rehearsal), ("estimate", Estimate), ("marks", Marks)],
    ),
    Group(
        "Comparisons",
        "What other code would change in a run; see also `run.compare`.",
        [("found", Comparison), ("dq", [dq.close, dq.same, dq.same_words])],
    ),
    Group(
        "Updates",
        "What an input has that a run lacks: what `run.plan` returns, and `run.update` does.",
        [("plan", UpdatePlan), ("following", Following)],
    ),
    Group(
        "Sinks",
        "Where consumers write the results of a run, as `sink=` of `map`.",
        [("dq", [dq.Parquet, dq.Files])],
    ),
    Group(
        "Documents",
        "References to inputs, and the methods that a function calls on them.",
        [("docs", dq.Documents), ("doc", dq.Document)],
    ),
    Group(
        "Functions, retries and rules",
        "Exceptions and calls for a running function, and settings and checks before it runs.",
        [("dq", [dq.Retry, dq.Later, dq.Reject, dq.cancelled, dq.track, dq.explain])],
    ),
    Group(
        "Models",
        "Batches of documents; see also `init`, `setup`, `returns` and `gpus` of `map`.",
        [("dq", [dq.Batch, dq.Smaller])],
    ),
    Group(
        "Services",
        "How many calls run at once or in a time, what they may cost, and what is paid once.",
        [("dq", [dq.Adaptive, dq.Limit, dq.Budget, dq.spend, dq.once, dq.later_from, dq.per_consumer])],
    ),
    Group(
        "Batch systems",
        "`dq.hpc`: clusters of jobs.",
        [
            (
                "dq.hpc",
                [getattr(hpc, name) for name in ("slurm", "pbs", "recipe", "Recipe", "give_up")],
            )
        ],
    ),
    Group(
        "Consumers of your own",
        "The ancestor's classes: consumers that are started and stopped by hand.",
        [
            ("consumers", dq.ConsumerPool),
            ("dq", [dq.ConsumerBaseClass, dq.GeneralConsumer, dq.DummyConsumer, dq.Message]),
            ("consumer", dq.ConsumerBaseClass),
        ],
    ),
    Group(
        "Testing",
        "`dq.testing`: fixtures of pytest and their parts, for tests of your functions.",
        [("dq.testing", [getattr(testing, name) for name in testing.__all__])],
    ),
]

HEAD = """\
# Every name

`make api` writes this page from signatures and docstrings, and a test compares them. `help(dq.connect)` has the
parameters, `dq.connect?` in a notebook too, and `%dq NAME -h` the options of a line. A link leads to where a how-to
uses the name.

"""
_WORDS = {
    "lab": "lab",
    "run": "run",
    "pool": "(?:pool|queue)",
    "doc": "(?:doc|document)",
    "docs": r"(?:docs|\bdq\.Documents)",
}


def render() -> str:
    """Return the whole page."""
    parts = [HEAD + "\n".join(_contents()), *map(_group, GROUPS), _errors(), _lines(), _options()]
    return "\n\n".join(part.rstrip() for part in parts) + "\n"


def _contents() -> Iterator[str]:
    for title in [*(group.title for group in GROUPS), "Errors", "Lines of a notebook", "Configuration"]:
        yield f"- [{title}](#{_anchor(title)})"


def _group(group: Group) -> str:
    lines = [f"## {group.title}", "", group.text]
    for variable, owner in group.owners:
        if isinstance(owner, list):
            lines += ["", *(_entry(f"{variable}.{each.__name__}", each) for each in owner)]
        else:
            head = f"### {owner.__name__}"
            made = f"`dq.{owner.__name__}`" if owner.__name__ in dq.__all__ else f"`{owner.__name__}`"
            lines += ["", head, "", f"{made}: {_first(owner)}{_used(owner.__name__, 'dq')}", ""]
            if owner.__name__ in dq.__all__ and owner not in (dq.Lab, dq.Run):
                lines.append(_entry(f"dq.{owner.__name__}", owner))
            lines += [_entry(f"{_shown(variable, each)}.{name}", each, variable) for name, each in members(owner)]
    return "\n".join(lines)


def members(owner: type) -> list[tuple[str, Any]]:
    """Return the public attributes of a class, those for views left out."""
    left_out = INTERNAL.get(owner, set())
    found = {}
    for name in dir(owner):
        value = inspect.getattr_static(owner, name)
        ours = any(name in vars(base) for base in owner.__mro__ if base.__module__.startswith("dqlab"))
        if ours and not name.startswith("_") and name not in left_out:
            found[name] = value
    found |= {
        name: None for name in getattr(owner, "__dataclass_fields__", ()) if name not in left_out and name[0] != "_"
    }
    return sorted(found.items())


def _shown(variable: str, member: Any) -> str:
    return "dq.Documents" if variable == "docs" and isinstance(member, classmethod) else variable


def _entry(written: str, value: Any, variable: str = "dq") -> str:
    name = written.rpartition(".")[2]
    called = value.__func__ if isinstance(value, classmethod | staticmethod) else value
    if isinstance(value, property):
        text, said = written, _first(value.fget)
    elif isinstance(called, type) and issubclass(called, Enum):
        text, said = written, f"{_first(called)} {', '.join(called.__members__)}"
    elif callable(called):
        text, said = f"{written}{signature(called)}", _first(called)
    else:
        text, said = written, _field(written, variable)
    return f"- `{text}`: {said}{_used(name, variable)}" if said else f"- `{text}`{_used(name, variable)}"


def signature(called: Callable[..., Any]) -> str:
    """Return the parameters of a callable with their defaults, without annotations."""
    try:
        found = inspect.signature(called)
    except ValueError:
        return "(...)"
    shown = [
        each.replace(annotation=each.empty) for each in found.parameters.values() if each.name not in ("self", "cls")
    ]
    shown = [each if each.default is each.empty else each.replace(default=_Written(each.default)) for each in shown]
    return str(found.replace(parameters=shown, return_annotation=found.empty))


class _Written:
    """A default as the page has it."""

    def __init__(self, value: Any) -> None:
        self._value = value

    def __repr__(self) -> str:
        if self._value == sys.executable:  # another one on each machine
            return "sys.executable"
        text = (
            f"{type(self._value).__name__}.{self._value.name}" if isinstance(self._value, Enum) else repr(self._value)
        )
        return "..." if " at 0x" in text or text.startswith("<") else text


def _first(value: Any) -> str:
    """Return the first sentence of a docstring, as Markdown."""
    text = inspect.getdoc(value) or ""
    first = " ".join(text.partition("\n\n")[0].split())
    return re.sub(r"``(.+?)``", r"`\1`", first)


def _field(written: str, variable: str) -> str:
    """Return what the docstring of a class has about an attribute."""
    owner = next((owner for group in GROUPS for name, owner in group.owners if name == variable), None)
    name, doc = written.rpartition(".")[2], inspect.getdoc(owner) or ""
    found = re.search(rf"^(?:\w+, )*{name}(?:, \w+)* : .*\n((?:    .*\n?)+)", doc, re.MULTILINE)
    return " ".join(found[1].split()).partition(". ")[0].rstrip(".") + "." if found else ""


# --- where a how-to uses a name ---


def _anchor(heading: str) -> str:
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


def _sections() -> Iterator[tuple[str, str, str]]:
    """Yield (title, link, text) of each section of each how-to."""
    for page in sorted((DOCS / "how-to").glob("*.md")):
        fenced, heading, lines = False, "", list[str]()
        title = page.read_text().partition("\n")[0].removeprefix("# ")
        for line in page.read_text().splitlines():
            fenced ^= line.startswith("```")
            if line.startswith("## ") and not fenced:
                yield title, f"../how-to/{page.name}{heading}", "\n".join(lines)
                heading, lines = f"#{_anchor(line.removeprefix('## '))}", []
            lines.append(line)
        yield title, f"../how-to/{page.name}{heading}", "\n".join(lines)


SECTIONS = list(_sections())


def _used(name: str, variable: str) -> str:
    """Return a link to the section that uses a name most, "" for none."""
    word = re.compile(rf"\b{_WORDS.get(variable, re.escape(variable))}\.{name}\b")
    counts = [(len(word.findall(text)), title, link) for title, link, text in SECTIONS]
    most, title, link = max(counts, key=lambda each: each[0])
    return f" [{title}]({link})" if most else ""


# --- tables ---


def _errors() -> str:
    lines = ["## Errors", "", "`dq.errors`: each is a sentence that says what to do; its values are attributes.", ""]
    lines += ["| error | is a | when |", "|---|---|---|"]
    for name in errors.__all__:
        kind = getattr(errors, name)
        if isinstance(kind, type):
            above = ", ".join(f"`{base.__name__}`" for base in kind.__bases__)
            public = f"`dq.{name}`" if name in dq.__all__ else f"`{name}`"
            lines.append(f"| {public} | {above} | {_first(kind)} |")
    return "\n".join(lines)


def _lines() -> str:
    lines = ["## Lines of a notebook", "", "`%load_ext dqlab` brings them; `-o VAR` stores what a line returns.", ""]
    lines += ["| line | in Python | what it does |", "|---|---|---|"]
    for command in COMMANDS.values():
        usage = command.usage().replace("|", r"\|")
        lines.append(f"| `{usage}` | `{command.twin}` | {command.summary.replace('%%', '%')} |")
    return "\n".join(lines)


def _options() -> str:
    lines = [
        *("## Configuration", ""),
        "In any configuration file of Dask, in the environment as `DASK_DQLAB__QUEUE__MAXSIZE=1000`, or before",
        "`dq.connect`, `dask.config.set({'dqlab.queue.maxsize': 1000})`.",
        *("", "| key | default | meaning |", "|---|---|---|"),
    ]
    # Comments stand in the order of the keys; PyYAML leaves them out.
    written = re.findall(r"^ {4}([\w-]+):[^#\n]*(?:# (.*))?$|^  views:.*?# (.*)$", DEFAULTS.read_text(), re.MULTILINE)
    options = leaves(yaml.safe_load(DEFAULTS.read_text())["dqlab"])
    for (key, default), (name, meaning, of_views) in zip(options, written, strict=True):
        assert key.endswith(name or "views"), key
        lines.append(f"| `dqlab.{key}` | `{default}` | {meaning or of_views} |")
    return "\n".join(lines)


def leaves(tree: dict[str, Any], above: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the dotted key and the default of each option."""
    for name, value in tree.items():
        if isinstance(value, dict):
            yield from leaves(value, f"{above}{name}.")
        else:
            yield f"{above}{name}", value


if __name__ == "__main__":
    PAGE.write_text(render())
