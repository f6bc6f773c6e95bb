"""Which front end shows the output of this kernel, and whether it can draw the widget.

A kernel does not know which front end reads its output, so this looks for the traces that front ends leave in it.
"""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Mapping
from typing import Any

__all__ = ["draws_widgets", "in_colab", "in_vscode"]


def draws_widgets(shell: Any) -> bool:
    """Return whether a live widget is worth sending; where it is not, HTML is refreshed in place.

    VS Code and Colab fetch what draws foreign widgets from the network, if at all, and Colab delivers no change that
    a background thread makes: a widget there would stand still, or be an error message.
    """
    return importlib.util.find_spec("anywidget") is not None and not in_vscode(shell) and not in_colab()


def in_vscode(shell: Any, environ: Mapping[str, str] = os.environ) -> bool:
    """Return whether VS Code started this kernel; a Jupyter server in one of its terminals is not meant."""
    named = "__vsc_ipynb_file__" in getattr(shell, "user_ns", ())
    return named or ("VSCODE_PID" in environ and "JPY_SESSION_NAME" not in environ)


def in_colab() -> bool:
    """Return whether this is a kernel of Google Colab."""
    return "google.colab" in sys.modules
