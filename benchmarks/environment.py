"""Environments of their own for peers that need packages: installed once, kept in the user's cache."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from benchmarks.processes import ChildFailed

__all__ = ["python_with"]

INSTALL_S = 180.0


def python_with(name: str, packages: Sequence[str], *, say: Callable[[str], None], install: bool) -> Path:
    """Return a Python that has these packages.

    Parameters
    ----------
    name : str
        Of the environment, beside the Python version; other packages need another one.
    packages : sequence of str
        As pip takes them.
    say : callable
        Takes a line for the person who waits.
    install : bool
        False: be content with what is installed already.

    Raises
    ------
    ChildFailed
        It is not installed, or cannot be; says why.
    """
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "dqlab-bench"
    home = cache / f"{name}-python{platform.python_version()}"
    python, finished = home / "bin" / "python", home / "installed"
    if finished.exists():
        return python
    if not install:
        raise ChildFailed("it is not installed yet; a full run installs it")
    say(f"installing {packages[0]} into {home}")
    _run([sys.executable, "-m", "venv", "--clear", str(home)])
    _run([str(python), "-m", "pip", "install", "--quiet", *packages])
    finished.touch()
    return python


def _run(command: list[str]) -> None:
    try:
        subprocess.run(command, check=True, capture_output=True, text=True, timeout=INSTALL_S)
    except subprocess.TimeoutExpired:
        raise ChildFailed(f"{' '.join(command[1:4])} took over {INSTALL_S:g} s") from None
    except subprocess.CalledProcessError as error:
        last = (error.stderr.strip().splitlines() or ["no reason given"])[-1]
        raise ChildFailed(f"{' '.join(command[1:4])}: {last}") from None
