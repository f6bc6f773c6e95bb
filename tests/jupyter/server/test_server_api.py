"""The JSON of the Jupyter server: for who is logged in, and never with a token in it."""

from __future__ import annotations

import asyncio
import os
import re
import subprocess
import sys
import time
from dataclasses import replace
from typing import Any

import pytest

import dqlab as dq
from dqlab import clusters_here
from dqlab.clusters_here import Announcement
from dqlab.jupyter.server.api import ALL, OURS, panels, routes
from dqlab.jupyter.server.services import ServiceSilent, Upstream
from dqlab.stats import Snapshot
from tests.jupyter.server.conftest import BASE, LOGIN, Jupyter
from tests.jupyter.server.dashboards import TOKEN, Dashboards

METHODS = ("GET", "HEAD", "POST", "DELETE", "PATCH", "PUT", "OPTIONS")


def walk() -> list[tuple[str, str]]:
    """Every method of every handler of the extension, with an address that it answers."""
    found = []
    for pattern, handler, _ in routes(BASE, "/nowhere"):
        path = pattern.removeprefix(BASE).replace("([A-Za-z0-9_-]+)", "papers").replace("(?:/(.*))?", "/status")
        assert re.fullmatch(pattern, BASE + path)
        own = {name for each in handler.__mro__ if each.__module__.startswith("dqlab") for name in vars(each)}
        found += [(method, path) for method in METHODS if method.lower() in own]
    return found


@pytest.mark.parametrize(("method", "path"), walk())
def test_no_request_gets_in_without_login(
    jupyter: Jupyter, papers: Announcement, dashboards: Dashboards, method: str, path: str
) -> None:
    """Each handler by itself must refuse: one that forgets is open to everybody who can reach the port."""
    for more in ({}, {"Authorization": "token wrong"}, {"Authorization": f"Bearer {TOKEN}"}):
        answer = jupyter(method, path, login=None, **more)
        assert answer.status == 403
        assert TOKEN.encode() not in answer.body
    assert dashboards.asked == []
    assert (jupyter.runtime / "dq-papers.json").exists()


@pytest.mark.parametrize(("method", "path"), [call for call in walk() if call[0] in ("POST", "DELETE")])
def test_what_changes_something_needs_the_xsrf_token(
    jupyter: Jupyter, papers: Announcement, dashboards: Dashboards, method: str, path: str
) -> None:
    """Another page in the same browser has the cookie, and not the token."""
    action = {"action": "pause", "queue": "pages"}
    for more in ({}, {"Cookie": "_xsrf=aabb"}, {"Cookie": "_xsrf=aabb", "X_XSRFToken": "ccdd"}):
        assert jupyter(method, path, login="cookie", body=action, **more).status == 403
    assert dashboards.asked == []
    status = jupyter(method, path, login="cookie", body=action, Cookie="_xsrf=aabb", X_XSRFToken="aabb").status
    assert status == (200 if method == "POST" else 409)


def test_services_are_listed_with_their_state(jupyter: Jupyter, papers: Announcement, dashboards: Dashboards) -> None:
    """Up: it answers; silent: it does not; gone: its process has ended. No token leaves the server."""
    ended = subprocess.run([sys.executable, "-c", "import os; print(os.getpid())"], capture_output=True, check=True)
    gone = replace(papers, id="gone", name="gone", pid=int(ended.stdout), started=1.0)
    silent = replace(papers, id="silent", name="silent", dashboard="http://127.0.0.1:1", embedded=False)
    other = replace(papers, id="other", scheduler_id="another one", started=papers.started + 1)
    with jupyter.announced(gone), jupyter.announced(silent), jupyter.announced(other):
        answer = jupyter("GET", "dq/api/services")
        rows = {row["id"]: row for row in answer.said["services"]}
        assert {id: row["state"] for id, row in rows.items()} == {
            "papers": "up",
            "gone": "gone",
            "silent": "silent",
            "other": "silent",
        }
        assert TOKEN.encode() not in answer.body
        assert rows["papers"]["since"] == pytest.approx(time.time(), abs=10)
        assert {name: rows["papers"][name] for name in ("name", "where", "scheduler", "embedded", "store", "pid")} == {
            name: getattr(papers, name) for name in ("name", "where", "scheduler", "embedded", "store", "pid")
        }
        asked = len(dashboards.asked)
        jupyter("GET", "dq/api/services")
        assert len(dashboards.asked) == asked  # remembered for 2 s

        assert jupyter("DELETE", "dq/api/services/papers").status == 409
        for id in ("gone", "silent"):
            assert jupyter("DELETE", f"dq/api/services/{id}").status == 204
            assert not (jupyter.runtime / f"dq-{id}.json").exists()
        assert jupyter("DELETE", "dq/api/services/gone").status == 404
        assert jupyter("GET", "dq/api/services/gone/snapshot").said["error"] == "NoSuchService"


def test_service_that_was_silent_for_a_week_is_forgotten(
    jupyter: Jupyter, papers: Announcement, dashboards: Dashboards
) -> None:
    """One that answers is kept, however long nobody has looked."""
    silent = replace(papers, id="silent", dashboard="http://127.0.0.1:1", embedded=False)
    with jupyter.announced(silent):
        for id in ("papers", "silent"):
            os.utime(jupyter.runtime / f"dq-{id}.json", (1, 1))
        assert [row["id"] for row in jupyter("GET", "dq/api/services").said["services"]] == ["papers"]
        assert not (jupyter.runtime / "dq-silent.json").exists()


def test_hung_service_delays_no_other_answer(jupyter: Jupyter, papers: Announcement, dashboards: Dashboards) -> None:
    """One scheduler that swaps must not take the sidebar away from the others."""
    dashboards.hanging = True
    began = time.monotonic()
    (row,) = jupyter("GET", "dq/api/services").said["services"]
    assert row["state"] == "silent"
    assert time.monotonic() - began < 5


def test_questions_are_passed_on_without_the_token(
    jupyter: Jupyter, papers: Announcement, dashboards: Dashboards
) -> None:
    """Only what a call takes is passed on, and names are escaped; the token is proved and not sent."""
    said = jupyter("GET", f"dq/api/services/papers/snapshot?queue=a%26b&run=r&token={LOGIN}&admin=1").said
    assert said == {"call": "snapshot", "query": "queue=a%26b&run=r", "body": ""}
    said = jupyter("GET", "dq/api/services/papers/failures?queue=q&fingerprint=f&after=1-2-3&limit=5").said
    assert said["query"] == "queue=q&fingerprint=f&after=1-2-3&limit=5"
    assert jupyter("GET", "dq/api/services/papers/history?span=60").said["query"] == "span=60"
    action = {"action": "scale", "queue": "pages", "n": 3}
    said = jupyter("POST", "dq/api/services/papers/actions", body=action).said
    assert said == {"call": "actions", "query": "", "body": '{"action": "scale", "queue": "pages", "n": 3}'}
    for _, _, _, headers in dashboards.asked:
        assert TOKEN not in str(headers)
        assert not {"Authorization", "Cookie"} & set(headers)


def test_refusals_come_through(jupyter: Jupyter, papers: Announcement, dashboards: Dashboards) -> None:
    """The sentence of the scheduler stands in the row of the sidebar."""
    answer = jupyter("GET", "dq/api/services/papers/snapshot?queue=none-such")
    assert (answer.status, answer.said["error"]) == (404, "QueueNotFound")
    for body in (b"", b"[]", b"{", b"x" * (2 << 20)):
        answer = jupyter("POST", "dq/api/services/papers/actions", body=body)
        assert (answer.status, answer.said["error"]) == (400, "BadOption")


def test_silent_service_is_a_bad_gateway(jupyter: Jupyter, papers: Announcement, dashboards: Dashboards) -> None:
    """No process there, no dqlab there, or one with another token."""
    for changed in (
        {"dashboard": "http://127.0.0.1:1"},
        {"dashboard": f"http://127.0.0.1:{jupyter.port}"},
        {"token": "of another scheduler"},
    ):
        with jupyter.announced(replace(papers, id="silent", name="silent", **changed)):
            answer = jupyter("GET", "dq/api/services/silent/snapshot")
            assert (answer.status, answer.said["error"]) == (502, "ServiceSilent")
            assert "silent" in answer.said["message"]


def test_a_silent_service_fills_no_log(jupyter: Jupyter, papers: Announcement, dashboards: Dashboards) -> None:
    """The sidebar asks every few seconds: a line for each request buried what else the server had to report."""
    silent = replace(papers, id="hushed", name="hushed", dashboard="http://127.0.0.1:1")
    with jupyter.logged() as lines, jupyter.announced(silent):
        for poll in ("snapshot", "history?span=60", "failures?queue=q", "panels"):
            assert jupyter("GET", f"dq/api/services/hushed/{poll}").status == 502
        assert jupyter("GET", "dq/dashboard/hushed/dq").status == 502
        assert [row["state"] for row in jupyter("GET", "dq/api/services").said["services"]].count("silent") == 1
    assert not lines


def test_answer_that_takes_too_long_is_late(papers: Announcement, dashboards: Dashboards) -> None:
    """Every question has a limit, and its own error."""
    dashboards.hanging = True

    async def ask() -> None:
        with pytest.raises(ServiceSilent) as raised:
            await Upstream().ask(papers, "snapshot", wait=0.2)
        assert raised.value.late

    asyncio.run(ask())


def test_panels_are_ours_first(jupyter: Jupyter, papers: Announcement, dashboards: Dashboards) -> None:
    """What a dashboard does not have is not offered."""
    assert jupyter("GET", "dq/api/services/papers/panels").said == {
        "panels": [
            {"path": "dq", "name": "All six", "ours": True},
            {"path": "individual-dq-runs", "name": "Runs", "ours": True},
            {"path": "individual-progress", "name": "Progress", "ours": False},
        ]
    }
    assert panels({}) == []


def test_panels_of_a_dashboard_that_is_made_at_its_first_page_are_there_at_once(
    jupyter: Jupyter, papers: Announcement, dashboards: Dashboards
) -> None:
    """The sidebar had none to offer until it asked again."""
    dashboards.late = True

    assert len(jupyter("GET", "dq/api/services/papers/panels").said["panels"]) == 3


def test_our_panels_are_all_named() -> None:
    """A panel that is added needs a title in the sidebar, and its name for `lab.panel` and `%dq open`."""
    pytest.importorskip("bokeh", reason="the extra `lab` is not installed")
    from dqlab import lab
    from dqlab.jupyter.grammar import COMMANDS
    from dqlab.live.panels.page import PANELS

    [panel] = [action for action in COMMANDS["open"].actions if action.dest == "panel"]

    assert list(OURS) == [f"individual-dq-{name}" for name in PANELS]
    assert sorted(lab.PANELS) == sorted([ALL, *PANELS])
    assert list(panel.choices or ()) == list(lab.PANELS)


@pytest.mark.cluster
def test_extension_loads_neither_dask_nor_what_draws() -> None:
    """Jupyter's start waits for it, with or without a cluster."""
    code = "import sys, dqlab.jupyter.server.api as r; print(*sorted({m.partition('.')[0] for m in sys.modules}))"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert not {"distributed", "dask", "bokeh", "pandas", "IPython", "ipywidgets", "matplotlib"} & set(loaded)
    code = "import sys, dqlab.jupyter.server; print(*sorted(m for m in sys.modules if m.startswith('dqlab')))"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert [name for name in loaded if name.startswith("dqlab.jupyter")] == ["dqlab.jupyter", "dqlab.jupyter.server"]


def test_real_lab_is_found_looked_at_and_told(jupyter: Jupyter, lab: dq.Lab, queue: dq.QueuePool) -> None:
    """From the file to the action, without a kernel that takes part."""
    place = clusters_here.directory()
    assert place is not None
    (service,) = [found for found in clusters_here.announced(place) if found.token == lab.session.token]
    with jupyter.announced(service):
        services: list[dict[str, Any]] = jupyter("GET", "dq/api/services").said["services"]
        assert [row["state"] for row in services if row["id"] == service.id] == ["up"]
        said = jupyter("POST", f"dq/api/services/{service.id}/actions", body={"action": "pause", "queue": queue.name})
        found = Snapshot.from_dict(said.said["snapshot"]).queue(queue.name)
        assert found is not None
        assert [shard.stats()["state"] for shard in queue] == ["paused"]
        said = jupyter("GET", f"dq/api/services/{service.id}/snapshot?queue={queue.name}")
        assert Snapshot.from_dict(said.said).queue(queue.name) is not None
        assert jupyter("GET", f"dq/api/services/{service.id}/panels").said["panels"][0]["path"] == "dq"
