"""What Python says of a few mistakes is not enough on another process: the record of a failure adds what it takes."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dqlab.failures.failure import Failure


def failed(function: Callable[[Any], Any], argument: Any = None) -> tuple[BaseException, Failure]:
    """Return what a function raises, and its record."""
    try:
        function(argument)
    except Exception as error:  # noqa: BLE001 - it is what the test is about
        return error, Failure.from_exception(error, skip=1, when=1.7e9, seconds=0.5)
    raise AssertionError("nothing was raised")


def test_a_variable_that_was_set_after_connecting_is_explained() -> None:
    """ "KeyError: 'MYVAR'. Fix the function" said of a notebook that had just set it."""
    _, record = failed(lambda _: os.environ["DQLAB_NOT_SET"])

    assert record.message.startswith("'DQLAB_NOT_SET': ")
    assert "consumers have the environment variables that were set when they were started, as by dq.connect" in (
        record.message
    )
    assert failed(lambda _: {}["DQLAB_NOT_SET"])[1].message == "'DQLAB_NOT_SET'", "of any other mapping"


def test_a_relative_path_is_explained_with_the_folder_of_the_consumer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After `os.chdir` in the notebook the file was there, and the consumers did not find it."""
    monkeypatch.chdir(tmp_path)

    _, record = failed(lambda _: Path("here.txt").read_bytes())

    assert record.message.startswith("[Errno 2] No such file or directory: 'here.txt'; ")
    assert f"from the folder in which the consumer was started, {tmp_path}; os.chdir" in record.message
    absolute = str(tmp_path / "gone.txt")
    assert (
        failed(lambda _: Path(absolute).read_bytes())[1].message == f"[Errno 2] No such file or directory: {absolute!r}"
    )
