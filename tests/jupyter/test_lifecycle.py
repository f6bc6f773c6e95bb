"""Connecting, closing and coming back by magics: nothing is left running, and what is said is true."""

from __future__ import annotations

import time
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any, cast

import pytest

import dqlab as dq
from dqlab.errors import RunExists, UsageError
from dqlab.jupyter.line import _check_idle
from dqlab.jupyter.messages import standing
from dqlab.stats import Counts, RunState, RunStats, StopReason
from dqlab.testing import Gate

pytestmark = pytest.mark.cluster


@pytest.fixture
def alone(notebook: Any) -> Iterator[Any]:
    """A notebook whose lab is its own."""
    notebook.run("%dq connect -n 1 -o lab")
    first = notebook["lab"]
    yield notebook
    for lab in (first, notebook["lab"]):
        lab.close()


# --- connecting ------------------------------------------------------------------------------


def test_connecting_otherwise_closes_what_the_magic_opened(alone: Any, capsys: Any) -> None:
    """No variable led to the first cluster any more, and its processes would stay."""
    first = alone["lab"]
    alone.run("%dq submit abs --over range(3) --name small --wait -o run")
    assert alone.run("%dq connect -n 1") is first
    capsys.readouterr()

    alone.run("%dq connect -n 2 -o lab")

    said = capsys.readouterr().out
    assert first.closed
    assert not alone["lab"].closed
    assert "lab local is closed; its cluster ended with it, and the results of small are gone" in said
    assert "local: 2 consumer processes at unix" in said


def test_target_is_an_address_a_variable_or_an_expression_in_braces(notebook: Any, lab: dq.Lab) -> None:
    """IPython expands braces in every other magic."""
    address = notebook["address"] = str(lab.client.scheduler.address)
    notebook["places"] = {"scheduler": address}
    for word in ("address", "{address}", "{places['scheduler']}", address):
        notebook.run(f"%dq connect {word} -o there")
        assert notebook["there"].client.scheduler.address == address
        notebook.run("%dq close")

    assert "name 'adress' is not defined" in str(notebook.fails("%dq connect {adress}"))


def test_connecting_otherwise_while_a_run_is_in_flight_is_refused(alone: Any, tmp_path: Any) -> None:
    """An hour of work must not end with a line that speaks of another cluster."""
    gate = Gate(tmp_path)
    first = alone["lab"]
    alone["slow"] = lambda x: gate.wait(x)
    alone.run("%dq submit slow --over range(3) --name slow-one -o run")

    error = alone.fails("%dq connect -n 2")

    assert "slow-one" in str(error)
    assert "%dq close" in str(error)
    assert not first.closed
    gate.open()
    assert len(alone.run("%dq results")) == 3


class Shown:
    """What a session and the sentences of lines ask of a run."""

    done = False
    submitter = None
    queue = "pages"

    def __init__(self, state: RunState, why: str = "", stop: StopReason | None = None) -> None:
        self.name = "typo"
        self._stats = RunStats(self.name, self.queue, state, Counts(ready=5, dead=5), why=why, stop=stop)

    def stats(self, *, timeout: float | None = None) -> RunStats:
        return self._stats


@pytest.mark.parametrize(
    ("state", "stop", "why", "said"),
    [
        (
            RunState.STOPPED,
            StopReason.ALL_FAILED,
            "all of its first 5 failed with KeyError: 'x'",
            "%dq retry typo --rest",
        ),
        (RunState.STOPPED, StopReason.RESULTS_FULL, "no room for more results", "%dq resume typo"),
        (RunState.PAUSED, None, "", "%dq resume"),
        (RunState.RUNNING, None, "", "Wait for it with %dq wait"),
    ],
)
def test_what_does_not_end_by_itself_is_named_with_what_it_needs(
    state: RunState, stop: StopReason | None, why: str, said: str
) -> None:
    """`%dq wait` would raise at once, or for ever do nothing."""
    run = Shown(state, why, stop)
    pool = SimpleNamespace(name="pages", counts=lambda: {"ready": 5, "delayed": 0, "leased": 0})
    lab: Any = SimpleNamespace(name="local", runs=[run], queues=[pool], embedded=True)

    with pytest.raises(UsageError) as raised:
        _check_idle(lab)

    assert said in str(raised.value)
    assert "%dq close" in str(raised.value)
    assert why in str(raised.value)
    assert ("--rest" in standing(cast(dq.Run, run))) is ("failed" in why)


# --- closing ---------------------------------------------------------------------------------


def test_closing_says_what_is_gone(alone: Any, capsys: Any) -> None:
    """ "Back to it" above the line would be a lie from then on."""
    alone.run("%dq submit abs --over range(3) --name small --wait -o run")
    capsys.readouterr()

    alone.run("%dq close")

    assert (
        capsys.readouterr().out == "lab local is closed; its cluster ended with it, and the results of small are gone\n"
    )
    assert "no lab is open. Start one with: %dq connect" in str(alone.fails("%dq wait"))
    assert "lab 'local' was closed, so run 'small' can no longer be used" in str(alone.fails("%dq wait run"))


def test_back_to_a_run_by_name(connected: Any, capsys: Any) -> None:
    """Also where no variable holds the lab or the run."""
    connected.run("%dq submit abs --over range(3) --name found-again --on-existing new --wait -o run")
    run = connected["run"]
    del connected.shell.user_ns["run"]

    assert connected.run("%dq attach found-again") is run
    capsys.readouterr()
    connected.run("%dq attach found-again -o back")
    assert connected["back"] is run
    said = capsys.readouterr().out
    assert said == "back is run 'found-again': 3 documents, 3 acked; it is done\n", "nothing else is shown of it"
    assert "no run named 'found-agan' here. Did you mean 'found-again'?" in str(
        connected.fails("%dq attach found-agan")
    )


# --- workers that are gone ---------------------------------------------------------------------


def test_status_without_workers_does_not_show_what_is_lost(alone: Any, capsys: Any, monkeypatch: Any) -> None:
    """The last reports of a dead queue are no status."""
    monkeypatch.setattr("dqlab.cluster.scheduler.actors.RESOLVE_WAIT", 0.5)
    alone.run("%dq submit abs --over range(3) --name small --wait -o run")
    lab = alone["lab"]
    lab._cluster.scale(0)
    deadline = time.monotonic() + 30
    while lab.stats().workers:
        assert time.monotonic() < deadline
        lab.wait_for_change(lab.stats().seq, timeout=0.2)
    capsys.readouterr()

    snapshot = alone.run("%dq status")

    said = capsys.readouterr().out
    assert "no worker is left, and what transient queues held is lost. Begin again: %dq connect -o lab" in said
    assert snapshot.queues == snapshot.runs == ()
    assert "%dq connect -o lab" in str(alone.fails("%dq submit abs --over range(3)"))
    alone.run("%dq connect -n 1 -o lab")
    assert alone["lab"] is not lab
    assert len(alone.run("%dq submit abs --over range(3) --wait").results()) == 3


# --- waiting -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("before", "said"),
    [("", "it goes on"), ("%dq pause {queue}", "it is paused: %dq resume"), ("%dq cancel -y", "it is done")],
)
def test_interrupted_wait_says_how_the_run_stands(
    connected: Any, queue: dq.QueuePool, monkeypatch: Any, tmp_path: Any, before: str, said: str
) -> None:
    """A run that is paused does not go on."""
    gate = Gate(tmp_path)
    connected["slow"] = lambda x: gate.wait(x)
    connected.run("%dq submit slow --over range(3) -o run")
    gate.until_arrived(1)
    if before:
        connected.run(before.format(queue=queue.name))
    monkeypatch.setattr(dq.Run, "until_over", interrupted)

    error = connected.fails("%dq wait")

    assert isinstance(error, KeyboardInterrupt)
    assert f"no longer waiting for {connected['run'].name}; {said}" in str(error)
    gate.open()


def interrupted(self: dq.Run, timeout: object = None) -> dq.Run:
    raise KeyboardInterrupt


# --- what a line says --------------------------------------------------------------------------


def test_other_documents_of_a_run_that_exists_say_how_to_go_on_by_magics(connected: Any) -> None:
    """Here new code is of no use."""
    connected.run("%dq submit abs --over [1, 2] --name renamed --on-existing new --wait -o run")

    error = connected.fails("%dq submit abs --over [1, 3] --name renamed --wait -o run")

    assert isinstance(error, RunExists)
    assert "run 'renamed' exists with other documents" in str(error)
    assert "--on-existing new" in str(error)
    assert "on_existing=" not in str(error)
    assert "%dq retry" not in str(error)
