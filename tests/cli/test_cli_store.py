"""`dqlab inspect` and `dqlab fsck`, as somebody types them."""

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
statuses = [main([command, sys.argv[1]]) for command in ("inspect", "fsck")]
print(statuses, sorted({"distributed", "dqlab.cluster"} & set(sys.modules)))
"""


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """A store with one queue."""
    busy_queue(tmp_path, FakeClock(), seed=1, steps=20, name="pages")
    return tmp_path


def test_inspect_prints_what_is_there(directory: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["inspect", str(directory)]) == 0

    shown = capsys.readouterr().out
    assert shown.startswith(f"queue pages: {directory}")
    assert "run-0" in shown
    assert "shard 001: format 1.0, epoch 3, closed" in shown


def test_fsck_of_a_whole_store_ends_with_0(directory: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["fsck", str(directory)]) == 0
    assert capsys.readouterr().out.endswith("2 shards checked: clean. Exit status 0.\n")


@pytest.mark.parametrize("command", ["inspect", "fsck"])
def test_json_is_one_object(directory: Path, capsys: pytest.CaptureFixture[str], command: str) -> None:
    assert main([command, str(directory), "--json"]) == 0

    told = json.loads(capsys.readouterr().out)
    assert told["schema"] == 1
    assert [queue["name"] for queue in told["queues"]] == ["pages"]


def test_fsck_of_a_store_that_cannot_be_opened_ends_with_3(directory: Path, capsys: pytest.CaptureFixture[str]) -> None:
    next(directory.glob("pages-*/000/MANIFEST-*")).unlink()

    assert main(["fsck", str(directory)]) == 3
    assert "is damaged: it is missing" in capsys.readouterr().out


@pytest.mark.parametrize("command", ["inspect", "fsck"])
def test_a_directory_that_is_no_store_is_answered_with_a_sentence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], command: str
) -> None:
    assert main([command, str(tmp_path / "nowhere")]) == 3
    assert f"dqlab {command}: " in capsys.readouterr().err


def test_repair_writes_a_store_that_is_clean_and_ends_with_what_was_lost(
    directory: Path, tmp_path_factory: pytest.TempPathFactory, capsys: pytest.CaptureFixture[str]
) -> None:
    new = tmp_path_factory.mktemp("new") / "store"
    next(directory.glob("pages-*/000/MANIFEST-*")).unlink()

    assert main(["fsck", str(directory), "--repair", str(new)]) == 1
    assert "unsettled messages and" in capsys.readouterr().out
    assert main(["fsck", str(new)]) == 0


def test_repair_of_a_store_that_lost_a_segment_ends_with_2(
    directory: Path, tmp_path_factory: pytest.TempPathFactory, capsys: pytest.CaptureFixture[str]
) -> None:
    new = tmp_path_factory.mktemp("new") / "store"
    max(directory.glob("pages-*/000/*.seg"), key=lambda file: file.stat().st_size).unlink()

    assert main(["fsck", str(directory), "--repair", str(new), "--json"]) == 2
    told = json.loads(capsys.readouterr().out)
    assert (told["status"], len(told["repaired"])) == (2, 2)
    assert [shard["complete"] for shard in told["repaired"]] == [False, True]


def test_repair_into_a_directory_with_files_is_refused(directory: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["fsck", str(directory), "--repair", str(directory)]) == 3
    assert "is not an empty directory" in capsys.readouterr().err


def test_export_writes_one_line_a_message_and_never_over_a_file(
    directory: Path, tmp_path_factory: pytest.TempPathFactory, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path_factory.mktemp("export") / "messages.jsonl"

    assert main(["fsck", str(directory), "--export", str(file)]) == 0
    assert main(["fsck", str(directory), "--export", str(file)]) == 3
    assert "File exists" in capsys.readouterr().err
    assert main(["fsck", str(directory), "--export", "-"]) == 0

    captured = capsys.readouterr()
    assert captured.out == file.read_text()
    assert captured.err.endswith("Exit status 0.\n")
    rows = [json.loads(line) for line in captured.out.splitlines()]
    assert {frozenset(row) for row in rows} == {
        frozenset({"queue", "shard", "id", "state", "run", "ordinal", "payload"})
    }


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

    assert done.stdout.splitlines()[-1] == "[0, 0] []"


@pytest.mark.cluster
def test_a_reader_that_has_enough_gets_no_traceback(directory: Path) -> None:
    """`dqlab inspect runs/ | head -n 1`."""
    reading, writing = os.pipe()
    os.close(reading)
    done = subprocess.run(
        [sys.executable, "-m", "dqlab", "inspect", str(directory)],
        stdout=writing,
        stderr=subprocess.PIPE,
        text=True,
        timeout=60,
    )
    os.close(writing)

    assert (done.returncode, done.stderr) == (READER_GONE, "")
