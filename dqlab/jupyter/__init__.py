"""Additions to a notebook: the magic `%dq`, its completion, and how our objects are displayed.

Owns the words of a line and what they stand for; every line makes one or two public calls of Python. Importing this
package loads nothing of Jupyter; `load` does.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from IPython.core.interactiveshell import InteractiveShell

__all__ = ["load", "unload"]


def load(shell: InteractiveShell) -> None:
    """Add `%dq` and `%%dq` to a shell, in place of those that are there."""
    from dqlab.jupyter.magics import DQMagics
    from dqlab.jupyter.messages import letter_bundle
    from dqlab.live.display import register_formatters

    unload(shell)
    register_formatters(shell)
    display: Any = shell.display_formatter
    display.mimebundle_formatter.for_type_by_name("dqlab.runs.failures", "DeadLetter", letter_bundle)
    magics = DQMagics(shell)
    shell.register_magics(magics)
    magics.start()


def unload(shell: InteractiveShell) -> None:
    """Remove `%dq` and `%%dq` again, and leave labs and runs alone."""
    magics = shell.magics_manager.registry.pop("DQMagics", None)
    if magics is not None:
        magics.stop()
        for kind in ("line", "cell"):
            shell.magics_manager.magics[kind].pop("dq", None)
