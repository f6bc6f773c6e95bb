"""A run shown in a real Jupyter kernel, by the messages that a front end would see."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from queue import Empty
from typing import Any

import pytest

pytest.importorskip("ipykernel", reason="the extra `lab` is not installed")
manager = pytest.importorskip("jupyter_client.manager", reason="the extra `lab` is not installed")

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore::DeprecationWarning:zmq"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning:jupyter_client"),
]

ROOT = Path(__file__).parents[2]
SETUP = f"""
import json, sys, threading, time
from dataclasses import replace
sys.path.insert(0, {str(ROOT)!r})
from dqlab.live.display import register_formatters
from dqlab.stats import Counts, History, RunState, Snapshot

scene = Snapshot.from_dict(json.load(open({str(ROOT / "tests" / "golden" / "snapshot.json")!r})))
now = scene.own_run
pressed = threading.Event()

class Run:
    name, answer, source = now.name, now, None
    def snapshot(self, *, timeout=None): return replace(scene, runs=(self.answer,))
    def past(self, span, *, timeout=None): return History(t0=0.0, step=1.0)
    def newer(self, code): return None
    def pause(self): pressed.set()
    def resume(self): pass
    def cancel(self): pass

Run.__module__ = "dqlab.runs.run"
register_formatters(get_ipython())
run = Run()
"""
WIDGET = "application/vnd.jupyter.widget-view+json"


class Front:
    """The front end's side: sends cells and presses, reads what comes until it has seen enough."""

    def __init__(self, client: Any, kernel: Any) -> None:
        self.client, self.kernel = client, kernel

    def until(self, kind: str, **wanted: Any) -> Any:
        deadline = time.monotonic() + 60  # connecting takes its time on a machine that others use
        while True:
            message = self.client.get_iopub_msg(timeout=max(0.1, deadline - time.monotonic()))
            content = message["content"]
            assert message["msg_type"] != "error", content
            if message["msg_type"] == kind and all(content.get(name) == value for name, value in wanted.items()):
                return content

    def printed_until_the_end(self) -> list[str]:
        """Return what comes into cells until the kernel has ended."""
        texts: list[str] = []
        deadline = time.monotonic() + 60
        while self.kernel.is_alive() and time.monotonic() < deadline:
            with suppress(Empty):
                message = self.client.get_iopub_msg(timeout=0.5)
                texts += [message["content"]["text"]] if message["msg_type"] == "stream" else []
        return texts

    def press(self, comm: str, command: str) -> None:
        """As JupyterLab does: through a subshell, so that a busy cell is no obstacle."""
        session, control = self.client.session, self.client.control_channel
        control.send(session.msg("create_subshell_request", {}))
        reply = control.get_msg(timeout=10)["content"]
        content = {"comm_id": comm, "data": {"method": "custom", "content": {"command": command}}}
        message = session.msg("comm_msg", content)
        message["header"]["subshell_id"] = reply["subshell_id"]
        self.client.shell_channel.send(message)


@pytest.fixture
def front() -> Iterator[Front]:
    kernel, client = manager.start_new_kernel(kernel_name="python3")
    client.execute(SETUP)
    yield Front(client, kernel)
    client.stop_channels()
    kernel.shutdown_kernel(now=True)
    kernel.cleanup_resources()


def test_run_is_live_obeys_beside_a_busy_cell_and_ends_as_html(front: Front) -> None:
    """The whole way: widget, a press while another cell runs, and a table that the notebook can keep."""
    front.client.execute("run")
    while "head" not in (opened := front.until("comm_open"))["data"]["state"]:
        pass
    shown = front.until("display_data")
    assert {WIDGET, "text/html", "text/plain"} <= set(shown["data"])

    front.client.execute("assert pressed.wait(15), 'the press waited for this cell'")
    front.until("execute_input")
    front.press(opened["comm_id"], "pause")
    front.until("status", execution_state="idle")
    front.client.execute("run.answer = replace(now, state=RunState.DONE, counts=Counts(acked=48210), units=None)")
    last = front.until("update_display_data")

    assert last["transient"] == shown["transient"]
    assert set(last["data"]) == {"text/html", "text/plain"}
    front.until("comm_close", comm_id=opened["comm_id"])
    front.client.execute("print([t.name for t in threading.enumerate() if t.name == 'dqlab-live'])")
    assert front.until("stream")["text"] == "[]\n"


def test_a_kernel_that_ends_with_work_to_do_writes_nothing_into_its_last_cell(front: Front) -> None:
    """Lines of workers that were told to end stood there, and were saved with the notebook."""
    work = "lab = dq.connect(n=2); run = lab.map(time.sleep, [0.01] * 10_000); print('up')"
    front.client.execute(f"import time; import dqlab as dq; {work}")
    while front.until("stream")["text"] != "up\n":
        pass

    front.client.shutdown()

    assert front.printed_until_the_end() == []


def test_kernel_knows_whether_its_outputs_are_read(front: Front) -> None:
    """A program that plays a notebook offers no answer to `input()`; ipykernel keeps that to itself."""
    line = "from dqlab.live.canvases import has_a_reader; print(has_a_reader(get_ipython()))"
    for reads in (True, False):
        front.client.execute(line, allow_stdin=reads)
        assert front.until("stream")["text"] == f"{reads}\n"
