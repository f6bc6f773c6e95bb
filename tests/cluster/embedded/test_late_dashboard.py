"""The dashboard of an embedded cluster: not there when it starts, there for the first page that somebody opens."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

pytest.importorskip("bokeh", reason="bokeh is in the extra lab")

from distributed import Scheduler
from tornado.httpclient import AsyncHTTPClient, HTTPResponse

from dqlab.cluster.embedded import dashboard
from dqlab.cluster.embedded.dashboard import LateDashboard

pytestmark = pytest.mark.cluster


@asynccontextmanager
async def scheduler() -> AsyncIterator[Scheduler]:
    """A scheduler without workers, as an embedded cluster makes it."""
    async with Scheduler(host="127.0.0.1", port=0, dashboard=False, dashboard_address="127.0.0.1:0") as started:
        LateDashboard(started)
        yield started


async def get(of: Scheduler, path: str, *, follow: bool = True) -> HTTPResponse:
    url = f"http://127.0.0.1:{of.http_server.port}{path}"
    return await AsyncHTTPClient().fetch(url, raise_error=False, request_timeout=20, follow_redirects=follow)


def test_connecting_imports_no_bokeh() -> None:
    """It takes longer than all else that `connect` does, and most notebooks never open the dashboard."""
    script = "import sys, dqlab as dq\nwith dq.connect(n=1): sys.exit('bokeh' in sys.modules)"

    subprocess.run([sys.executable, "-c", script], check=True, timeout=60)


def test_first_pages_opened_at_once_are_all_answered() -> None:
    """A dashboard restored by the browser asks for all of its tabs in the same moment."""

    async def main() -> None:
        async with scheduler() as started:
            paths = ["/status", "/", "/individual-task-stream", "/individual-plots.json", "/graph"]
            answers = await asyncio.gather(*(get(started, path) for path in paths))

            assert [answer.code for answer in answers] == [200] * len(paths)
            assert "/individual-task-stream" in json.loads(answers[3].body).values()
            assert (await get(started, "/no-such-page")).code == 404

    asyncio.run(main())


def test_what_dask_serves_without_a_dashboard_does_not_make_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """Prometheus scrapes and health checks come every few seconds."""

    async def main() -> None:
        async with scheduler() as started:
            monkeypatch.setattr(dashboard, "import_module", lambda name: pytest.fail(f"imported {name}"))
            for path in ("/health", "/metrics", "/info/main/workers.html", "/json/identity.json"):
                assert (await get(started, path)).code == 200
            assert (await get(started, "/dqlab/api/service")).code == 404

    asyncio.run(main())


@pytest.mark.parametrize("before", [True, False], ids=["added before", "added after"])
def test_pages_that_are_added_come_with_the_dashboard_and_go_again(*, before: bool) -> None:
    """The registry adds dqlab's pages as a client connects, and takes them away when it leaves."""
    done: list[str] = []

    def serve() -> Any:
        done.append("served")
        return lambda: done.append("gone")

    async def main() -> None:
        async with scheduler() as started:
            late = started.late_dashboard
            if not before:
                await get(started, "/status")
            undo = late.add(serve)
            if before:
                assert not done
                await get(started, "/status")

            assert done == ["served"]
            undo()
            undo()
            assert done == ["served", "gone"]

    asyncio.run(main())


@pytest.mark.parametrize("path", ["//example.org/x", "/\\example.org/x", "///example.org"])
def test_no_first_request_is_sent_to_another_host(path: str) -> None:
    """A link to a dashboard must not lead elsewhere."""

    async def main() -> None:
        async with scheduler() as started:
            answer = await get(started, path, follow=False)

            assert answer.code == 302
            assert answer.headers["Location"] in {"/example.org/x", "/example.org"}

    asyncio.run(main())


@pytest.mark.parametrize("error", [ImportError("Dask needs a newer bokeh"), RuntimeError("broken")])
def test_a_bokeh_that_cannot_be_used_is_named_on_the_page(error: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not an endless redirect, and not an empty page."""

    def fail(name: str) -> None:
        raise error

    async def main() -> None:
        async with scheduler() as started:
            monkeypatch.setattr(dashboard, "import_module", fail)
            undo = started.late_dashboard.add(lambda: pytest.fail("served without a dashboard"))

            answer = await get(started, "/status")

            assert answer.code == 200
            assert "Dask needs bokeh" in answer.body.decode()
            undo()

    asyncio.run(main())
