"""The function that a cell defines: which it is, and running the cell so that it exists.

Knows nothing of queues.
"""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from dqlab.errors import UsageError

if TYPE_CHECKING:
    from IPython.core.interactiveshell import InteractiveShell

__all__ = ["define", "last_function"]


def last_function(source: str) -> str:
    """Return the name of the last function that a source defines at its top level.

    Raises
    ------
    UsageError
        It defines none.
    SyntaxError
        It is not Python.
    """
    functions = [node for node in ast.parse(source).body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    if not functions:
        raise UsageError(
            reason="the cell defines no function, so there is nothing to map; it was not run. Write a def in it, "
            "or name a function that exists: %dq submit FUNC --over ..."
        )
    return functions[-1].name


def define(shell: InteractiveShell, cell: str) -> str:
    """Run a cell as if it stood alone; return the name of its last function, which then exists.

    Raises
    ------
    UsageError
        The cell has no function, or raised; its own traceback is shown by then.
    """
    try:
        name = last_function(shell.transform_cell(cell))
    except SyntaxError:
        name = ""  # running the cell shows what is wrong, and where
    result = shell.run_cell(cell, store_history=False)
    error = result.error_before_exec or result.error_in_exec
    if error is not None:
        raise UsageError(reason=f"the cell raised {type(error).__name__}, shown above; nothing was submitted.")
    return name
