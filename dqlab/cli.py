"""The command `dqlab`: what people type in a shell.

Owns words and exit statuses; the work is done elsewhere and imported when it is asked for, so
that `dqlab --version` needs neither Jupyter nor Dask. Exit status: 0 done, 1 failed, 2 misused.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
from collections.abc import Callable, Sequence
from difflib import get_close_matches
from pathlib import Path
from urllib.parse import quote

from dqlab import __version__

__all__ = ["main", "quickstart"]

NOTEBOOK = "quickstart.ipynb"
FAILED, MISUSED = 1, 2


def main(argv: Sequence[str] | None = None) -> int:
    """Run one sub-command.

    Parameters
    ----------
    argv : sequence of str, optional
        Words after `dqlab`; those of this process by default.

    Returns
    -------
    int
        Exit status: 0 done, 1 failed, 2 misused.
    """
    words = list(sys.argv[1:] if argv is None else argv)
    parser = _parser()
    wrong = next((word for word in words[:1] if not word.startswith("-") and word not in COMMANDS), None)
    if wrong is not None:
        return _unknown(wrong)
    options, rest = parser.parse_known_args(words)
    if options.command is None:
        parser.print_help()
        return MISUSED
    if rest and options.command != "lab":
        parser.error(f"{options.command} takes no {rest[0]!r}")
    return COMMANDS[options.command](options, rest)


def quickstart(directory: Path) -> Path:
    """Return where the quickstart notebook lies.

    Parameters
    ----------
    directory : Path
        Where to look for `notebooks/quickstart.ipynb` first.

    Raises
    ------
    FileNotFoundError
        Neither there, nor in the installed package, nor in the checkout it was installed from.
    """
    package = Path(__file__).parent
    places = [directory / "notebooks", package / "notebooks", package.parent / "notebooks"]
    for place in places:
        if (place / NOTEBOOK).is_file():
            return place / NOTEBOOK
    tried = ", ".join(str(place) for place in places)
    raise FileNotFoundError(f"no {NOTEBOOK} in {tried}. Install dqlab again, or run this in its checkout.")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="dqlab", description="A Jupyter-first, distributed task queue on Dask.")
    parser.add_argument("--version", action="version", version=f"dqlab {__version__}")
    commands = parser.add_subparsers(dest="command", metavar="command")
    commands.add_parser(
        "lab",
        help="open JupyterLab on the quickstart notebook",
        description="Opens JupyterLab on the quickstart notebook. Other options go to `jupyter lab`.",
    )
    demo = commands.add_parser("demo", help="run the quickstart notebook here, without a browser")
    demo.add_argument("notebook", nargs="?", type=Path, help="another notebook that defines docs, run and retried")
    compact = commands.add_parser(
        "compact",
        help="give back the disk space of what is settled in a store or a queue that nobody has open",
        description="Offline: opens the logs below DIR, copies what is needed, deletes the rest.",
    )
    compact.add_argument("directory", type=Path, metavar="DIR", help="a store, or one queue's directory")
    return parser


def _unknown(word: str) -> int:
    near = get_close_matches(word, COMMANDS, n=1)
    hint = f" Did you mean `dqlab {near[0]}`?" if near else ""
    print(f"dqlab: no command {word!r}.{hint} Commands: {', '.join(COMMANDS)}.", file=sys.stderr)
    return MISUSED


def _lab(_: argparse.Namespace, rest: list[str]) -> int:
    """Open JupyterLab; a notebook outside this directory is copied here first, never over a file."""
    try:
        from jupyterlab.labapp import LabApp
    except ModuleNotFoundError as error:
        return _missing_extra(error)
    here = Path.cwd()
    try:
        notebook = quickstart(here)
    except FileNotFoundError as error:
        print(f"dqlab lab: {error}", file=sys.stderr)
        return FAILED
    if not notebook.is_relative_to(here):
        copy = here / NOTEBOOK
        if not copy.exists():
            shutil.copyfile(notebook, copy)
            print(f"dqlab lab: copied the quickstart to {copy}")
        notebook = copy
    # The address that is printed, for who has no browser here; Jupyter's own opens the launcher.
    address = f"--LabApp.default_url=/lab/tree/{quote(notebook.name)}"
    LabApp.launch_instance([str(notebook), address, *_as_root(), *rest])
    return 0


def _as_root() -> list[str]:
    """Return what Jupyter wants to be told before it starts for root, as in a container."""
    return ["--allow-root"] if hasattr(os, "geteuid") and os.geteuid() == 0 else []


def _demo(options: argparse.Namespace, _: list[str]) -> int:
    try:
        from dqlab import demo
    except ModuleNotFoundError as error:
        return _missing_extra(error)
    try:
        notebook = options.notebook or quickstart(Path.cwd())
        return demo.play(notebook)
    except FileNotFoundError as error:
        print(f"dqlab demo: {error}", file=sys.stderr)
        return FAILED


def _compact(options: argparse.Namespace, _: list[str]) -> int:
    from dqlab.errors import DqlabError
    from dqlab.store.offline import compact_offline

    def progress(name: str, done: int, of: int) -> None:
        if sys.stderr.isatty():
            print(f"\r{name}: {done / 1e6:,.1f} of {of / 1e6:,.1f} MB read ", end="", file=sys.stderr, flush=True)

    try:
        for name, gave in compact_offline(options.directory, progress):
            print(f"{name}: {gave}")
    except DqlabError as error:
        print(f"dqlab compact: {error}", file=sys.stderr)
        return FAILED
    return 0


def _missing_extra(error: ModuleNotFoundError) -> int:
    print(
        f"dqlab: {error.name} is not installed here. In the checkout: pip install '.[lab]'",
        file=sys.stderr,
    )
    return FAILED


COMMANDS: dict[str, Callable[[argparse.Namespace, list[str]], int]] = {
    "lab": _lab,
    "demo": _demo,
    "compact": _compact,
}
