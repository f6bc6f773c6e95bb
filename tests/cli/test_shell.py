"""The commands of notebooks in a shell, on a cluster that runs."""

from __future__ import annotations

import io
import os
import sys
import time
from pathlib import Path
from typing import Any

import pytest

import dqlab as dq
from dqlab import clusters_here
from dqlab.cli.command import OF_NOTEBOOKS, main
from dqlab.cli.shell import in_words_of_a_shell
from dqlab.clusters_here import Announcement
from dqlab.live.style import Span, TextStyle, paint, spelled_by


@pytest.fixture
def at(lab: dq.Lab) -> list[str]:
    """The words that name the cluster of all tests."""
    return ["--at", lab.session.link.address]


@pytest.mark.parametrize("name", OF_NOTEBOOKS)
def test_help_speaks_of_the_shell(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([name, "-h"]) == 0

    said = capsys.readouterr().out
    assert f"dqlab {name}" in said
    assert "%dq" not in said
    assert "VAR" not in said
    assert "--at ADDRESS" in said


def test_status_pause_and_resume_from_a_shell(
    lab: dq.Lab, at: list[str], queue: dq.QueuePool, capsys: pytest.CaptureFixture[str]
) -> None:
    queue.map(abs, range(5), name=f"run-{queue.name}").wait(timeout=30)

    assert main(["pause", queue.name, *at]) == 0
    assert "is paused" in capsys.readouterr().out
    held = queue.map(abs, range(7), name=f"held-{queue.name}")  # a queue with work has a row whatever other tests left
    deadline = time.monotonic() + 10
    while not any(run.name == held.name for run in lab.stats().runs):  # a shard reports four times a second
        assert time.monotonic() < deadline
        time.sleep(0.005)
    assert main(["status", *at]) == 0
    shown = capsys.readouterr().out
    assert queue.name[:8] in shown  # names give way where figures are wide
    assert main(["resume", queue.name, *at]) == 0
    assert held.results(timeout=30)[:] == list(range(7))
    assert main(["failed", f"run-{queue.name}", *at]) == 0
    assert "no dead documents" in capsys.readouterr().out
    assert main(["history", queue.name, "--span", "1m", *at]) == 0
    assert "waiting" in capsys.readouterr().out


def started_by(lab: dq.Lab, **more: object) -> Announcement:
    """What a script that has started the cluster of a lab announces."""
    given: dict[str, Any] = {"name": "daily.py in ~/work", "id": "daily", "pid": os.getppid(), **more}
    return Announcement(
        scheduler=lab.session.link.address,
        scheduler_id="s",
        token="t",
        embedded=True,
        store=None,
        where="local",
        dashboard="",
        **given,
    )


def test_the_cluster_of_a_script_is_found_where_none_of_dqlab_up_runs(
    lab: dq.Lab, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """`dqlab status` said that no cluster runs, and the sidebar listed it."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    monkeypatch.setenv("JUPYTER_RUNTIME_DIR", str(tmp_path / "runtime"))
    there = [started_by(lab)]
    monkeypatch.setattr(clusters_here, "announced", lambda place: there)

    assert main(["status"]) == 0
    there.append(started_by(lab, name="other.py in ~", id="other"))
    capsys.readouterr()
    assert main(["status"]) == 1
    said = capsys.readouterr().err
    assert "2 clusters run here: daily (daily.py in ~/work, process" in " ".join(said.split())
    assert main(["status", "--name", "other"]) == 0
    there[:] = [started_by(lab, pid=2**22 - 3)]
    assert main(["status"]) == 1
    assert "no cluster of `dqlab up` runs" in " ".join(capsys.readouterr().err.split())


@pytest.mark.parametrize(("command", "of_run"), [("cancel", True), ("drop", True), ("purge", False)])
def test_what_was_not_done_for_want_of_a_word_is_no_success(
    at: list[str], queue: dq.QueuePool, command: str, of_run: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    """`dqlab cancel RUN` without -y did nothing, and a script went on with status 0."""
    run = queue.map(abs, range(3), name=f"run-{queue.name}").wait(timeout=30)

    assert main([command, run.name if of_run else queue.name, *at]) == 2
    assert "add -y" in capsys.readouterr().out
    assert run.results()[:] == [0, 1, 2]


def test_words_that_are_wrong_end_with_status_2(lab: dq.Lab, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["pause", "a", "b"]) == 2
    assert "does not understand 'b'" in capsys.readouterr().err
    assert main(["status", "--at"]) == 2


def test_a_cluster_that_does_not_answer_ends_with_status_1(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["status", "--at", "no-such-place"]) == 1
    assert "dqlab status: " in capsys.readouterr().err


def test_dead_documents_are_sent_again_from_a_shell(
    at: list[str], queue: dq.QueuePool, capsys: pytest.CaptureFixture[str]
) -> None:
    """With the code that the run has: a shell defines no functions, and offers no option for one."""
    run = queue.map(_inverse, [1, 0], name=f"run-{queue.name}", retry=dq.Retry(0))
    run.wait(timeout=30)

    assert main(["retry", run.name, "--where", "error == 'ZeroDivisionError'", *at]) == 0
    assert "1 document sent again with the code it had" in capsys.readouterr().out
    assert main(["retry", run.name, "--fn", "inverse", *at]) == 2
    assert "dqlab retry has no option --fn" in capsys.readouterr().err


def _inverse(x: int) -> float:
    return 1 / x


def test_a_dead_document_is_shown_whole_and_waiting_for_it_fails(
    at: list[str], queue: dq.QueuePool, capsys: pytest.CaptureFixture[str]
) -> None:
    """Scripts look at the status, and people at the traceback; neither wants a `DeadLetter(...)` or a lone number."""
    run = queue.map(_inverse, [1, 0], name=f"run-{queue.name}", retry=dq.Retry(0))

    assert main(["wait", run.name, *at]) == 1
    capsys.readouterr()
    assert main(["show", "1", run.name, *at]) == 0
    said = capsys.readouterr().out
    assert said.startswith("1  ZeroDivisionError: division by zero\ndead after 1 delivery")
    assert "return 1 / x" in said
    assert main(["retry", run.name, *at]) == 0
    assert capsys.readouterr().out.splitlines()[1:] == []


class Screen(io.StringIO):
    """A terminal."""

    def isatty(self) -> bool:
        return True


def test_a_live_view_in_a_shell_names_commands_of_a_shell(
    at: list[str], queue: dq.QueuePool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """ "next %dq failed pages" stood below what `dqlab watch` drew, beside `dqlab status`, which has the right one."""
    run = queue.map(_inverse, [1, 0], name="dead-in-shell", retry=dq.Retry(0))
    with pytest.warns(dq.errors.DqlabWarning):
        run.wait(timeout=30)
    screen = Screen()
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(sys, "stdout", screen)

    assert main(["watch", run.name, *at]) == 0
    assert f"dqlab failed {run.name}" in screen.getvalue()
    assert "%dq" not in screen.getvalue()
    monkeypatch.undo()
    assert paint([Span("%dq failed")], TextStyle.detect(screen, {})) == "%dq failed", "elsewhere it is as it was"


@pytest.mark.parametrize("command", OF_NOTEBOOKS)
def test_each_command_that_a_shell_has_is_named_as_it_has_it(command: str) -> None:
    """ "and 1 more: %dq doctor" stood below `dqlab status`."""
    with spelled_by(in_words_of_a_shell):
        style = TextStyle.detect(Screen(), {})

    assert paint([Span(f"and 1 more: %dq {command}")], style) == f"and 1 more: dqlab {command}"
    assert paint([Span("%dq submit --over docs")], style) == "%dq submit --over docs", "a shell has none"


@pytest.mark.filterwarnings("ignore::dqlab.errors.DqlabWarning")
def test_what_the_doctor_advises_can_be_typed_where_it_is_shown(
    at: list[str], queue: dq.QueuePool, capsys: pytest.CaptureFixture[str]
) -> None:
    """A shell has no `run`, and a notebook may have another one."""
    run = queue.map(lambda x: 1 // x, [0, 0], name=f"sick-{queue.name}", retry=dq.Retry(0)).wait(timeout=60)

    assert main(["doctor", *at]) == 1
    [line] = {word for word in map(str.strip, capsys.readouterr().out.splitlines()) if word.endswith(run.name)}
    assert main([*line.split()[1:], *at]) == 0
    assert "2 dead" in capsys.readouterr().out


def test_logs_and_slowest_from_a_shell(at: list[str], queue: dq.QueuePool, capsys: pytest.CaptureFixture[str]) -> None:
    run = queue.map(print, ["said"], name=f"run-{queue.name}", logs="all").wait(timeout=30)
    capsys.readouterr()

    assert main(["logs", "#0", run.name, *at]) == 0
    assert capsys.readouterr().out == "said\n"
    assert main(["slowest", run.name, "-n", "1", *at]) == 0
    assert "0  on c" in capsys.readouterr().out
