"""The function that a cell defines: its name, the run of the cell that makes it, and its lines in tracebacks."""

from __future__ import annotations

import ast
import asyncio
import linecache
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from functools import partial
from types import FunctionType
from typing import TYPE_CHECKING, TypeGuard

from dqlab.cluster.transport.local_modules import Opened
from dqlab.errors import UsageError
from dqlab.notebook import named_after_running_cell
from dqlab.runs.code.source import innermost
from dqlab.syntax import parse

if TYPE_CHECKING:
    from IPython.core.interactiveshell import ExecutionResult, InteractiveShell

_MAGIC_LINE = "# %%dq\n"
"""Replaces the magic's line, so that lines are numbered as the user sees them; IPython drops an empty one."""


def last_function(source: str) -> str:
    """Return the name of the last top-level function or model class, or raise `UsageError` if there is none."""
    functions = [node for node in parse(source).body if _is_called(node)]
    if not functions:
        raise UsageError(
            reason="the cell defines no function, so there is nothing to map; it was not run. Write a def in it, "
            "or name a function that exists: %dq submit FUNC --over ..."
        )
    return functions[-1].name


def _is_called(node: ast.stmt) -> TypeGuard[ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef]:
    """Return whether a statement defines a function, or a class whose objects are called."""
    function = ast.FunctionDef | ast.AsyncFunctionDef
    if isinstance(node, ast.ClassDef):
        return any(isinstance(each, function) and each.name == "__call__" for each in node.body)
    return isinstance(node, function)


def define(shell: InteractiveShell, cell: str) -> str:
    """Run a cell without its line of `%%dq`, and return the name of its last function."""
    try:
        name = last_function(shell.transform_cell(cell))
    except SyntaxError:
        name = ""  # running the cell shows what is wrong, and where
    # IPython has shown the cell's own traceback by the time an error is in the result.
    with named_after_running_cell(shell):
        result = _run(shell, _indent(cell) + _MAGIC_LINE + cell, awaits=bool(name))
    error = result.error_before_exec or result.error_in_exec
    if error is not None:
        raise UsageError(reason=f"the cell raised {type(error).__name__}, shown above; nothing was submitted.")
    _attach_lines(innermost(shell.user_ns[name]))
    return name


def _run(shell: InteractiveShell, text: str, *, awaits: bool) -> ExecutionResult:
    """Run a text as a cell, which may await at its top level where it `awaits`."""
    run: Callable[[], ExecutionResult] = partial(shell.run_cell, text, store_history=False)
    transformed = shell.transform_cell(text) if awaits and asyncio._get_running_loop() else ""
    if not shell.should_run_async(text, transformed_cell=transformed):
        return run()
    # A kernel's loop runs already, and cannot run a cell inside a cell; a thread has a loop of its own.
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(copy_context().run, run).result()


def _indent(cell: str) -> str:
    """Return the indentation of a cell's first text, which the line in front needs too."""
    # IPython removes only the indentation that all lines have in common.
    return cell[: len(cell) - len(cell.lstrip())].rpartition("\n")[2]


# Pickled functions in logs of queues refer to this name: it stays in this module, with these arguments.
def _opened(filename: str, text: str) -> Opened:
    """Have a cell's lines in the tracebacks of the process that opens its function."""
    linecache.cache[filename] = (len(text), None, text.splitlines(keepends=True), filename)
    return Opened(_opened, filename, text)


def _attach_lines(function: object) -> None:
    for method in list(vars(function).values()) if isinstance(function, type) else ():
        if isinstance(method, FunctionType):
            _attach_lines(method)
    if isinstance(function, FunctionType):
        filename = function.__code__.co_filename
        # A cell is not a file: a consumer has no other source for its lines.
        vars(function)["__cell_lines__"] = Opened(_opened, filename, "".join(linecache.getlines(filename)))
