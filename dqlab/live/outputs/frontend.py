"""Find out whether this kernel can show the live widget: its front end, and whether the widget was built.

A kernel does not know which front end reads its output, so this looks for the traces that front ends leave in it. The
files are built from `extension/` into `static/`, and ignored by git.

"""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dqlab.errors import UsageError


def draws_widgets(shell: Any) -> bool:
    """Return whether a live widget is worth sending, instead of HTML refreshed in place."""
    # VS Code and Colab fetch foreign widgets from the network, if at all, and Colab drops changes made by a background
    # thread: a widget there would stand still, or be an error message.
    return importlib.util.find_spec("anywidget") is not None and not in_vscode(shell) and not in_colab()


def has_a_reader(shell: Any) -> bool:
    """Return whether a user can press a button."""
    # A front end that plays a notebook offers no answer to `input()`.
    # Private, hence tested for; tests/live/test_kernel.py.
    return bool(getattr(getattr(shell, "kernel", None), "_allow_stdin", False))


def in_vscode(shell: Any, environ: Mapping[str, str] = os.environ) -> bool:
    """Return whether VS Code started this kernel."""
    named = "__vsc_ipynb_file__" in getattr(shell, "user_ns", ())
    # A Jupyter server in a terminal of VS Code has the first variable, and also the second.
    return named or ("VSCODE_PID" in environ and "JPY_SESSION_NAME" not in environ)


def in_colab() -> bool:
    """Return whether this is a kernel of Google Colab."""
    return "google.colab" in sys.modules


STATIC = Path(__file__).parents[1] / "static"
_SCRIPT, _STYLES = "widget.js", "widget.css"


def script() -> str:
    """Return the widget's ES module, which imports nothing."""
    return _read(_SCRIPT)


def styles() -> str:
    """Return the widget's style sheet."""
    return _read(_STYLES)


def missing() -> Path | None:
    """Return the first file that was not built, if any."""
    return next((path for path in (STATIC / _SCRIPT, STATIC / _STYLES) if not path.exists()), None)


def not_built(file: Path) -> str:
    """Return what to do about a file that is missing."""
    return (
        f"the live widget has not been built: {file} is missing. Queues and runs are not touched by this, and their "
        "tables are there without it. In a checkout run `make extension`; elsewhere install dqlab again, without "
        "SKIP_JUPYTER_BUILDER."
    )


def _read(name: str) -> str:
    try:
        return (STATIC / name).read_text(encoding="utf-8")
    except FileNotFoundError:
        raise UsageError(reason=not_built(STATIC / name)) from None
