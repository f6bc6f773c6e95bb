"""`dqlab store check`, `show` and `export`, as somebody types them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from dqlab.cli.command import READER_GONE, main
from dqlab.testing import FakeClock
from tests.store.workload import busy_queue

WITHOUT_DASK = """
import sys
from dqlab.cli.command import main
statuses = [main(["store", verb, sys.argv[1]]) for verb in ("show", "check", "export")]
print(statuses, sorted({"distributed", "dqlab.cluster"} & set(sys.modules)))
"""


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """A store with one queue."""
    busy_queue(tmp_path, FakeClock(), seed=1, steps=20, name="pages")
    return tmp_path


def test_show_prints_what_is_there(directory: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["store", "show", str(directory)]) == 0

    shown = capsys.readouterr().out
    assert shown.startswith(f"queue pages:\n  name: pages\n  directory: {directory}")
    assert "name: run-0" in shown
    assert "epoch: 3\n" in shown


def test_check_of_a_whole_store_ends_with_0(directory: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["store", "check", str(directory)]) == 0
    assert capsys.readouterr().out.endswith("2 shards checked: clean. Exit status 0.\n")


@pytest.mark.parametrize("verb", ["show", "check"])
def test_json_is_one_object(directory: Path, capsys: pytest.CaptureFixture[str], verb: str) -> None:
    assert main(["store", verb, str(directory), "--json"]) == 0

    told = json.loads(capsys.readouterr().out)
    assert told["schema"] == 3
    assert [queue["name"] for queue in told["queues"]] == ["pages"]


@pytest.mark.parametrize("verb", ["show", "check"])
def test_a_directory_that_is_no_store_is_answered_with_a_sentence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], verb: str
) -> None:
    assert main(["store", verb, str(tmp_path / "nowhere")]) == 3
    assert f"dqlab store {verb}: " in capsys.readouterr().err


def test_export_writes_one_line_a_message_and_never_over_a_file(
    directory: Path, tmp_path_factory: pytest.TempPathFactory, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path_factory.mktemp("export") / "messages.jsonl"

    assert main(["store", "export", str(directory), "--to", str(file)]) == 0
    assert main(["store", "export", str(directory), "--to", str(file)]) == 3
    assert "File exists" in capsys.readouterr().err
    assert main(["store", "export", str(directory)]) == 0

    captured = capsys.readouterr()
    assert captured.out == file.read_text()
    assert captured.err.endswith("Exit status 0.\n")
    rows = [json.loads(line) for line in captured.out.splitlines()]
    assert {frozenset(row) for row in rows} == {
        frozenset({"queue", "shard", "id", "state", "run", "ordinal", "payload", "result", "reason", "failure"})
    }


def test_export_of_a_store_that_cannot_be_opened_writes_what_is_there_and_says_what_is_not(
    directory: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    next(directory.glob("pages-*/000/MANIFEST-*")).unlink()

    assert main(["store", "export", str(directory)]) == 3

    captured = capsys.readouterr()
    assert {json.loads(line)["shard"] for line in captured.out.splitlines()} == {0, 1}
    assert "is damaged: it is missing" in captured.err


@pytest.mark.cluster
def test_a_store_is_read_without_dask_and_without_a_pickle(directory: Path) -> None:
    """On the node where a disk was rescued there may be nothing else."""
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_DASK, str(directory)],
        capture_output=True,
        text=True,
        check=True,
        cwd=directory,
    )

    assert done.stdout.splitlines()[-1] == "[0, 0, 0] []"


@pytest.mark.cluster
def test_a_reader_that_has_enough_gets_no_traceback(directory: Path) -> None:
    """`dqlab store show runs/ | head -n 1`."""
    reading, writing = os.pipe()
    os.close(reading)
    done = subprocess.run(
        [sys.executable, "-m", "dqlab", "store", "show", str(directory)],
        stdout=writing,
        stderr=subprocess.PIPE,
        text=True,
        timeout=60,
    )
    os.close(writing)

    assert (done.returncode, done.stderr) == (READER_GONE, "")
