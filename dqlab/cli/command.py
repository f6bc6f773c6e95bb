"""The command `dqlab`, for shells.

Owns words and exit statuses (0 done, 1 failed, 2 misused); the working code is imported on demand, so that
`dqlab --version` needs neither Jupyter nor Dask.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, NoReturn
from urllib.parse import quote

from dqlab import __version__
from dqlab.jupyter.grammar import COMMANDS as LINES
from dqlab.jupyter.wrapping import say
from dqlab.keywords import nearest
from dqlab.numbers import many
from dqlab.texts import one_line

if TYPE_CHECKING:
    from dqlab.store.verbs import CheckReport, ShardCheck

NOTEBOOK = "quickstart.ipynb"
OF_NOTEBOOKS = [name for name, command in LINES.items() if command.in_shell]
"""Commands that `%dq` has too."""
FAILED, MISUSED, UNREADABLE = 1, 2, 3
READER_GONE = 141
"""Exit status after the reader of the output has ended, which is 128 + SIGPIPE, as shells count it."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run one sub-command with the words of `argv`, by default this process's, and return its exit status."""
    words = list(sys.argv[1:] if argv is None else argv)
    try:
        status = _carry_out(words)
        sys.stdout.flush()  # here, where a reader that has ended can be told from other errors
        return status
    except BrokenPipeError:
        # `dqlab store show runs/ | head`: the reader has enough. Python flushes again at exit, and would complain.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return READER_GONE


def _carry_out(words: list[str]) -> int:
    if words and words[0] in OF_NOTEBOOKS:
        from dqlab.cli.shell import carry_out

        return carry_out(words[0], words[1:])
    # Checked before argparse does: its error for an unknown command lists all of them and suggests none.
    grammar = parser()
    wrong = next((word for word in words[:1] if not word.startswith("-") and word not in COMMANDS), None)
    if wrong is not None:
        return _unknown(wrong)
    options, rest = grammar.parse_known_args(words)
    if options.command is None:
        grammar.print_help()
        return MISUSED
    if rest and options.command != "lab":
        grammar.error(f"{options.command} takes no {rest[0]!r}; `dqlab {options.command} -h` lists what it takes")
    return COMMANDS[options.command](options, rest)


def quickstart(directory: Path | None = None) -> Path:
    """Return the path of the quickstart notebook, or raise `FileNotFoundError` with the places that were tried."""
    # A wheel has the notebooks inside the package, a checkout beside it.
    package = Path(__file__).parents[1]
    above = [directory] if directory is not None else []
    places = [place / "notebooks" for place in (*above, package, package.parent)]
    for place in places:
        if (place / NOTEBOOK).is_file():
            return place / NOTEBOOK
    tried = ", ".join(str(place) for place in places)
    raise FileNotFoundError(f"no {NOTEBOOK} in {tried}. Install dqlab again, or run this in its checkout.")


class _Parser(argparse.ArgumentParser):
    """Takes an option only by its whole name, since an abbreviation may have been meant as another option."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(allow_abbrev=False, **settings)

    def error(self, message: str) -> NoReturn:
        """Print what is wrong, as wide as the terminal is, and end this process."""
        self.print_usage(sys.stderr)
        say(f"{self.prog}: error: {message}", sys.stderr)
        raise SystemExit(MISUSED)


def _path(text: str) -> Path:
    """Return a path, but refuse the empty text of a shell's unset variable, which `Path` takes for this folder."""
    if not text:
        raise argparse.ArgumentTypeError("'' names no file or directory; '.' is the current directory")
    return Path(text)


def parser() -> argparse.ArgumentParser:
    """Return the words and options of every command except those of notebooks."""
    parser = _Parser(
        prog="dqlab",
        description="A Jupyter-first, distributed task queue on Dask.",
        epilog=f"As in a notebook, for a cluster that runs: {', '.join(OF_NOTEBOOKS)}; `dqlab NAME -h` explains one.",
    )
    parser.add_argument("--version", action="version", version=f"dqlab {__version__}")
    commands = parser.add_subparsers(dest="command", metavar="command")
    lab = commands.add_parser(
        "lab",
        help="open JupyterLab here, on a copy of the quickstart notebook",
        description="Opens JupyterLab on the current folder, or on the one that is named first, with a copy of the "
        "quickstart notebook in it. Options go to `jupyter lab`, for example --no-browser or --port=8899.",
    )
    roots = ("--notebook-dir", "--ServerApp.root_dir", "--ServerApp.notebook_dir")
    lab.add_argument(*roots, dest="root", metavar="DIR", help="the folder, by Jupyter's own name for it")
    demo = commands.add_parser(
        "demo", help="run the quickstart notebook here, without a browser and its last, long run"
    )
    demo.add_argument("notebook", nargs="?", type=_path, help="another notebook that defines docs, run and retried")
    up = commands.add_parser(
        "up",
        help="run a cluster on this machine that outlives notebooks",
        description='Runs a cluster until Ctrl-C. Notebooks find it with dq.connect("local") or %%dq connect local.',
    )
    up.add_argument("-n", type=int, default=os.cpu_count() or 1, help="consumer processes; default: one for each CPU")
    up.add_argument("--store", type=_path, help="directory that keeps its queues; without one they end with it")
    up.add_argument("--name", default="local", help="to tell several apart; default: local")
    up.add_argument(
        "--port",
        type=int,
        help="open it to all users of this machine, at a TCP port; 0: any",
    )
    run = commands.add_parser(
        "run",
        help="run a function of a file over files, or bring such a run up to date, as under cron",
        description='For example: dqlab run extract.py:parse --over "inbox/**" --store runs/ --update. Exit status: '
        "0 all documents have results, 1 some have none, 2 misused, 3 refused, and nothing ran.",
    )
    run.add_argument("function", metavar="FILE.py:NAME", help="the function, which takes a document")
    run.add_argument("--over", required=True, metavar="PATTERN", help="of the files, or a URL of them; in quotes")
    run.add_argument("--store", required=True, type=_path, metavar="DIR", help="keeps the run and its results")
    run.add_argument("--name", help="of the run; default: that of the function")
    run.add_argument("--sink", metavar="PATH", help="write results there: a folder or URL, or txt/{key}.txt")
    run.add_argument("-n", type=int, default=os.cpu_count() or 1, help="consumer processes; default: one for each CPU")
    run.add_argument("--retries", type=int, metavar="N", help="tries after an exception; of a new run")
    run.add_argument("--update", action="store_true", help="run what is new or has changed, and keep the rest")
    run.add_argument("--trust", choices=("version", "size"), default="version", help="size: a touched file is the same")
    run.add_argument("--keep-gone", action="store_true", help="keep the results of files that are gone")
    store = commands.add_parser(
        "store",
        help="read the files of a store, a queue or a shard, without touching them",
        description="Reads the files below DIR, even while they are open. check: reads every byte, and names the ids "
        "of what is lost; show: queues, runs, counts, segments; export: JSON lines, one for each unsettled message, "
        "failure and result. Exit status of check and export: 0 clean, 1 damaged and nothing lost, 2 data lost, "
        "3 cannot be opened as it is; of show: 0 or 3.",
    )
    store.add_argument("verb", choices=("check", "show", "export"))
    store.add_argument("directory", type=_path, metavar="DIR", help="a store, a queue's directory or a shard's")
    store.add_argument("--json", action="store_true", help="of check and show: one JSON object")
    store.add_argument("--to", metavar="FILE", default="-", help="of export: a new file; default: stdout")
    return parser


def _unknown(word: str) -> int:
    known = [*COMMANDS, *OF_NOTEBOOKS]
    near = nearest(word, known)
    hint = f" Did you mean `dqlab {near}`?" if near else ""
    say(f"dqlab: no command {word!r}.{hint} Commands: {', '.join(known)}.", sys.stderr)
    return MISUSED


def _lab(options: argparse.Namespace, rest: list[str]) -> int:
    """Open JupyterLab on the current folder, or on the one that is named first, with a copy of the quickstart in it."""
    named = rest.pop(0) if rest and not rest[0].startswith("-") else "."
    try:
        from jupyterlab.labapp import LabApp
    except ModuleNotFoundError as error:
        return _missing_extra(error)
    root = Path(options.root or named).expanduser().absolute()
    if not root.is_dir():
        said = "It takes an existing folder to open JupyterLab on, by default the current one. Nothing was started."
        say(f"dqlab lab: {root} is not a folder. {said}", sys.stderr)
        return FAILED
    copy = root / NOTEBOOK
    try:
        if not copy.exists():
            shutil.copyfile(quickstart(), copy)
            say(f"dqlab lab: copied the quickstart to {copy}")
    except OSError as error:
        say(f"dqlab lab: the quickstart cannot be copied to {root}: {error}. Nothing was started.", sys.stderr)
        return FAILED
    # Jupyter prints this address for users without a browser here; its own default opens the launcher.
    ours = [f"--ServerApp.root_dir={root}", f"--LabApp.default_url=/lab/tree/{quote(copy.name)}"]
    LabApp.launch_instance([str(copy), *ours, *_as_root(), *rest])
    return 0


def _as_root() -> list[str]:
    """Return the options that Jupyter needs to start for root, as in a container."""
    return ["--allow-root"] if hasattr(os, "geteuid") and os.geteuid() == 0 else []


def _demo(options: argparse.Namespace, _: list[str]) -> int:
    try:
        from dqlab.cli import demo
    except ModuleNotFoundError as error:
        return _missing_extra(error)
    try:
        if options.notebook is not None:
            return demo.play(options.notebook)
        with TemporaryDirectory(prefix="dqlab-demo-") as scratch:  # the quickstart keeps its queues beside itself
            return demo.play(quickstart(Path.cwd()), Path(scratch))
    except FileNotFoundError as error:
        say(f"dqlab demo: {error}", sys.stderr)
        return FAILED


def _up(options: argparse.Namespace, _: list[str]) -> int:
    from dqlab.cli.here import up
    from dqlab.errors import DqlabError

    try:
        up(options.n, store=options.store, name=options.name, port=options.port, say=say)
    except (DqlabError, OSError) as error:
        say(f"dqlab up: {error}", sys.stderr)
        return FAILED
    return 0


def _run(options: argparse.Namespace, _: list[str]) -> int:
    from dqlab.cli.here import run
    from dqlab.errors import DqlabError

    try:
        return run(options, lambda text: say(text, sys.stderr if text.startswith("dqlab run:") else None))
    except DqlabError as error:
        say(f"dqlab run: {error}", sys.stderr)
        return MISUSED
    except KeyboardInterrupt:
        return FAILED


def _store(options: argparse.Namespace, _: list[str]) -> int:
    from dqlab.errors import DqlabError
    from dqlab.store.verbs import check, readable, show

    out, text = sys.stdout, ""
    try:
        if options.verb == "show":
            report = show(options.directory)
            status = 0 if readable(report) else UNREADABLE
            text = "" if options.json else show_text(report)
        else:
            found = check(options.directory)
            report, status = found.to_dict(), int(found.level)
            text = "" if options.json else check_text(found)
        if options.verb == "export":
            _export(options.directory, options.to)
            out = sys.stderr  # the findings say what could not be exported
    except (DqlabError, OSError) as error:
        if isinstance(error, BrokenPipeError):
            raise
        say(f"dqlab store {options.verb}: {error}", sys.stderr)
        return UNREADABLE
    if options.json:
        print(json.dumps(report, indent=1), file=out)
    else:
        say(text, out)
    return status


def _export(directory: Path, file: str) -> None:
    from dqlab.store.verbs import export

    if file != "-":
        Path(file).touch(mode=0o600, exist_ok=False)  # private, as logs are: it has users' payloads
    with nullcontext(sys.stdout) if file == "-" else Path(file).open("w", encoding="utf-8") as target:
        for line in export(directory):
            target.write(line + "\n")


# --- reports of `dqlab store` --------------------------------------------------------------

_LONG = 2_000
_WORDS = ("clean", "damaged, but nothing is lost", "data lost", "cannot be opened as it is")
"""The levels of a check, from 0."""


def show_text(found: dict[str, Any]) -> str:
    """Return the contents of a store, one line for each fact."""
    return "\n".join(_facts({f"queue {queue['name']}": queue for queue in found["queues"]}))


def _facts(known: Mapping[Any, Any], indent: str = "") -> Iterator[str]:
    """Yield plain data as indented lines, without what is empty."""
    for name, value in known.items():
        if isinstance(value, dict | tuple | list) and value:
            yield f"{indent}{one_line(name)}:"
            yield from _facts(value if isinstance(value, dict) else dict(enumerate(value)), indent + "  ")
        elif value not in (None, "", (), {}, []):
            text = f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else value
            yield f"{indent}{one_line(name)}: {one_line(text, _LONG)}"


def check_text(found: CheckReport) -> str:
    """Return the findings, what to do next, and the verdict."""
    lines: list[str] = []
    for queue in found.queues:
        lines.append(f"queue {one_line(queue.name)}: {one_line(queue.directory, _LONG)}")
        lines += [f"  - {one_line(finding, _LONG)}" for finding in queue.findings]
        for shard in queue.shards:
            lines += _shard_check(shard)
    shards = list(found.shards())
    if found.level:
        lines.append(f"next: {found.level.advice}")
    verdict = f"{many(len(shards), 'shard')} checked: {_WORDS[int(found.level)]}."
    return "\n".join([*lines, f"{verdict} Exit status {int(found.level)}."])


def _shard_check(shard: ShardCheck) -> Iterator[str]:
    size = f"{many(shard.segments, 'segment')}, {many(shard.records, 'record')}"
    yield f"  shard {shard.index:03d}: {_WORDS[int(shard.level)]} ({size})"
    for finding in shard.findings:
        yield f"    - {one_line(finding, _LONG)}"
    if shard.lost:
        from dqlab.store.verbs import describe_ids

        yield f"    lost in all: {describe_ids(shard.lost)}"


def _missing_extra(error: ModuleNotFoundError) -> int:
    say(f"dqlab: {error.name} is not installed: {sys.executable} -m pip install 'dqlab[lab]'", sys.stderr)
    return FAILED


COMMANDS: dict[str, Callable[[argparse.Namespace, list[str]], int]] = {
    "lab": _lab,
    "demo": _demo,
    "up": _up,
    "run": _run,
    "store": _store,
}
