"""What is done once somebody imports something."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from dqlab.afterwards import after_import


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A module that can be imported and is not yet."""
    (tmp_path / "dq_some_module.py").write_text("name = __name__\nloader = type(__loader__).__name__\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "dq_some_module", raising=False)
    return "dq_some_module"


def test_it_is_done_once_the_module_is_there(module: str) -> None:
    before, done = list(sys.meta_path), []
    after_import(module, lambda: done.append(sys.modules[module].name))
    assert done == []

    imported = __import__(module)

    assert done == [module]
    assert imported.loader == type(imported.__spec__.loader).__name__ == "SourceFileLoader"
    assert sys.meta_path == before


def test_it_is_done_at_once_where_the_module_is_there_already(module: str) -> None:
    __import__(module)
    done = []

    after_import(module, lambda: done.append(1))

    assert done == [1]


def test_a_module_that_is_not_to_be_had_is_missed_as_ever() -> None:
    done = []
    after_import("dq_no_such_module", lambda: done.append(1))

    with pytest.raises(ModuleNotFoundError, match="dq_no_such_module"):
        __import__("dq_no_such_module")

    assert done == []
