"""A real IPython shell in this process, on the cluster that all tests share."""

from __future__ import annotations

import atexit
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("IPython", reason="the extra `lab` is not installed")

from IPython.core.interactiveshell import InteractiveShell
from traitlets.config import Config

import dqlab as dq
from dqlab.live.display import set_mode


class Notebook:
    """A shell, and cells that run in it one after the other."""

    def __init__(self, shell: InteractiveShell) -> None:
        self.shell = shell

    def run(self, cell: str) -> Any:
        """Run a cell that must succeed; return the value of its last expression."""
        result = self.shell.run_cell(cell, store_history=True)
        result.raise_error()
        return result.result

    def fails(self, cell: str) -> BaseException:
        """Run a cell that must fail; return its error."""
        result = self.shell.run_cell(cell, store_history=True)
        error = result.error_before_exec or result.error_in_exec
        assert error is not None, f"{cell!r} succeeded"
        return error

    def __getitem__(self, name: str) -> Any:
        return self.shell.user_ns[name]

    def __setitem__(self, name: str, value: Any) -> None:
        self.shell.user_ns[name] = value


@pytest.fixture
def notebook(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Notebook]:
    """A shell with `%load_ext dqlab`, and nothing else."""
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path))
    monkeypatch.delenv("VIRTUAL_ENV", raising=False)  # of the user who runs the tests; IPython warns of another one
    monkeypatch.setenv("DQLAB_DISPLAY", "static")
    main = sys.modules["__main__"]
    config = Config()
    config.HistoryManager.enabled = False
    shell = InteractiveShell.instance(config=config)
    shell.run_line_magic("load_ext", "dqlab")
    yield Notebook(shell)
    shell.run_line_magic("unload_ext", "dqlab")
    InteractiveShell.clear_instance()
    atexit.unregister(
        shell.atexit_operations
    )  # keeps it, and collects garbage: hundreds of them took minutes at the end
    sys.modules["__main__"] = main
    set_mode(None)


@pytest.fixture
def connected(notebook: Notebook, lab: dq.Lab, queue: dq.QueuePool) -> Notebook:
    """A notebook with the variable `lab`, whose lines use a fresh queue."""
    notebook["lab"] = lab
    notebook.run("%dq connect lab -o lab")
    notebook.run(f"%config DQMagics.queue = '{queue.name}'")
    return notebook
