"""Pages on a real scheduler: added while it runs or before it starts, found, taken away, and leaving nothing behind."""

from __future__ import annotations

import asyncio
import gc
import json
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any
from unittest.mock import patch
from weakref import ref

import pytest

pytest.importorskip("bokeh", reason="bokeh is in the extra lab")

import distributed.dashboard.scheduler as dashboard
from bokeh.server.tornado import BokehTornado
from distributed import Scheduler
from tornado.httpclient import AsyncHTTPClient

import dqlab.live.panels as panels
import dqlab.live.panels.metrics as metrics
from dqlab.live.panels.page import APPLICATIONS, PANELS, PERIOD
from dqlab.preload import _starts_a_scheduler, dask_setup
from dqlab.stats.runs import Spend

pytestmark = pytest.mark.lowest

URLS = [f"/individual-dq-{name}" for name in PANELS]


@asynccontextmanager
async def scheduler(**options: Any) -> AsyncIterator[Scheduler]:
    """A scheduler without workers, with its dashboard on a free port."""
    async with Scheduler(host="127.0.0.1", port=0, dashboard_address="127.0.0.1:0", **options) as started:
        yield started


async def get(of: Scheduler, path: str) -> tuple[int, str]:
    url = f"http://127.0.0.1:{of.http_server.port}{path}"
    answer = await AsyncHTTPClient().fetch(url, raise_error=False, request_timeout=20)
    return answer.code, answer.body.decode()


def server_of(started: Scheduler) -> Any:
    return next(app for app in started.http_application.applications if isinstance(app, BokehTornado))


@pytest.fixture(autouse=True)
def dask_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Dask's dashboard as it is where dqlab is not imported."""
    for url in [*URLS, "/dq"]:
        monkeypatch.delitem(dashboard.applications, url, raising=False)


@pytest.mark.cluster
def test_pages_come_to_a_scheduler_that_runs_and_are_empty_without_dqlab(feed: Any) -> None:
    """A client of a cluster that another process started has panels too; when it leaves, they say so."""

    async def main() -> None:
        async with scheduler() as started:
            assert (await get(started, "/dq"))[0] == 404

            undo = panels.install(started, feed)

            for url in ("/dq", URLS[0]):
                code, page = await get(started, f"{url}?theme=dark&queue=pages")
                assert code == 200
                assert 'aria-label="Runs"' in page
            plots = json.loads((await get(started, "/individual-plots.json"))[1])
            assert set(URLS) <= set(plots.values())
            status = (await get(started, "/status"))[1]
            assert '<a href="dq">' in status
            assert '<a href="individual-dq-depth">dq Depth</a>' in status

            undo()

            assert "dqlab is not on this scheduler yet" in (await get(started, "/dq"))[1]

    asyncio.run(main())


@pytest.mark.cluster
def test_a_scheduler_that_has_the_pages_already_does_not_get_them_twice(feed: Any) -> None:
    """Preloaded, then connected to: one entry each in the navigation."""

    async def main() -> None:
        with patch.dict(dashboard.applications):
            panels.preregister()
            async with scheduler() as started:
                assert "dqlab is not on this scheduler yet" in (await get(started, "/dq"))[1]
                rules = len(server_of(started).default_router.rules)

                panels.install(started, feed)

                assert len(server_of(started).default_router.rules) == rules
                code, page = await get(started, "/dq?queue=pages")
                assert code == 200
                assert page.count('href="individual-dq-depth"') == 1
                assert page.count('href="dq"') == 1
                assert "Queue depth by state" in page

    asyncio.run(main())


@pytest.mark.cluster
def test_pages_obey_the_prefix_of_the_dashboard(feed: Any) -> None:
    """Behind a proxy all addresses begin with the same words."""

    async def main() -> None:
        async with scheduler(http_prefix="/lab/1") as started:
            panels.install(started, feed)

            assert (await get(started, "/lab/1/individual-dq-runs"))[0] == 200
            assert (await get(started, "/individual-dq-runs"))[0] == 404

    asyncio.run(main())


@pytest.mark.cluster
def test_a_scheduler_without_a_dashboard_gets_no_pages(feed: Any) -> None:
    """Queues work nevertheless, and one line says what is missing."""

    async def main() -> None:
        async with Scheduler(host="127.0.0.1", port=0, dashboard=False, dashboard_address="127.0.0.1:0") as bare:
            with pytest.raises(ImportError, match="no Bokeh dashboard"):
                panels.install(bare, feed)

    asyncio.run(main())


@pytest.mark.slow
@pytest.mark.cluster
def test_sessions_leave_nothing_behind(feed: Any) -> None:
    """A dashboard on a wall is reloaded for months."""

    async def visit(tornado: Any, url: str, name: str) -> Any:
        context = tornado.applications[url]
        session = await context.create_session_if_needed(name)
        document = session.document
        await context._discard_session(session, lambda _: True)
        return ref(document)

    async def main() -> None:
        async with scheduler() as started:
            panels.install(started, feed)
            tornado = server_of(started)
            for context in tornado.applications.values():
                context._loop = tornado._loop
            gone = [await visit(tornado, "/individual-dq-failures", f"s{at}") for at in range(3)]
            gone += [await visit(tornado, "/dq", f"d{at}") for at in range(1)]
            await asyncio.sleep(2 * PERIOD / 1000)  # timers that were set wait for their end before they see it

            gc.collect()
            assert [document for document in gone if document() is not None] == []
            assert not list(tornado.applications["/dq"].sessions)

    asyncio.run(main())


@pytest.mark.cluster
def test_each_scheduler_of_a_process_shows_its_own_metrics(feed: Any, crowd: Any) -> None:
    """Prometheus asks the notebook's scheduler; another one in the same process must not answer for it."""

    async def main() -> None:
        async with scheduler() as first, scheduler() as second:
            undo = [metrics.install(first, feed), metrics.install(second, crowd)]

            one, other = (await get(first, "/metrics"))[1], (await get(second, "/metrics"))[1]
            assert 'dqlab_queue_messages{queue="pages",state="ready"} 15846.0' in one
            assert 'dqlab_run_documents{queue="pages",run="parse-invoices",state="dead"} 212.0' in one
            assert "dqlab_unacked_oldest_seconds 252.0" in one
            assert 'dqlab_storage_bytes{kind="garbage"} 1.34e+09' in one
            assert "dqlab_consumers 14.0" in one
            assert "dqlab_consumers 200.0" in other
            assert 'dqlab_queue_messages{queue="pages"' not in other
            assert len([line for line in one.splitlines() if line.startswith("# TYPE dqlab_queue_messages ")]) == 1
            assert "dask_scheduler_clients" in one

            undo[1]()
            assert "dqlab_" not in (await get(second, "/metrics"))[1]
            undo[0]()
            assert "dqlab_" not in (await get(first, "/metrics"))[1]

    asyncio.run(main())


def test_metrics_have_the_level_the_spending_and_the_budget_of_runs_that_have_them(feed: Any) -> None:
    """Somebody who watches money wants an alert, and none for a run that spends nothing."""
    shown = feed.snapshot()
    paid = replace(shown.runs[0], spend=Spend({"eur": 3.2, "tokens": 70.0}, budget=(20.0, "eur"), level=24))

    found = {
        tuple(sample.labels.values()): sample.value
        for family in metrics.metrics(replace(shown, runs=(paid, *shown.runs[1:])))
        if family.name in ("dqlab_run_level", "dqlab_run_spent", "dqlab_run_budget")
        for sample in ((each._replace(labels={"": family.name, **each.labels})) for each in family.samples)
    }

    assert found == {
        ("dqlab_run_level", "pages", "parse-invoices"): 24.0,
        ("dqlab_run_spent", "pages", "parse-invoices", "eur"): 3.2,
        ("dqlab_run_spent", "pages", "parse-invoices", "tokens"): 70.0,
        ("dqlab_run_budget", "pages", "parse-invoices", "eur"): 20.0,
    }


@pytest.mark.cluster
def test_a_preloaded_scheduler_has_dqlab_before_the_first_client_connects() -> None:
    """The dashboard of a cluster that was just started does not say that something is missing."""

    async def main() -> None:
        async with scheduler(preload=["dqlab.preload"]) as started:
            assert "dqlab" in started.plugins
            assert "dq_hello" in started.handlers
            code, page = await get(started, "/dq")
            assert code == 200
            assert "Queue depth by state" in page

    asyncio.run(main())


@pytest.mark.cluster
def test_importing_dqlab_leaves_the_import_system_as_it_was() -> None:
    """A finder of ours would be in every traceback of a failed import, in processes that show no panel."""
    script = "import sys; before = list(sys.meta_path); import dqlab; sys.exit(sys.meta_path != before)"

    subprocess.run([sys.executable, "-c", script], check=True)


@pytest.mark.parametrize(
    ("command", "draws"),
    [
        (["/usr/bin/dask", "scheduler", "--port", "0"], True),
        (["/usr/bin/dask-scheduler"], True),
        (["/lib/distributed/cli/dask_scheduler.py"], True),
        (["/usr/bin/dask", "worker", "scheduler:8786"], False),
        (["-c"], False),
        ([], False),
    ],
)
def test_only_the_command_that_starts_a_scheduler_loads_what_draws(command: list[str], *, draws: bool) -> None:
    """Workers load the same module, and have neither Bokeh nor a use for it."""
    assert _starts_a_scheduler(command) is draws


@pytest.mark.cluster
def test_importing_panels_loads_no_bokeh() -> None:
    """The registry names them in its configuration; a scheduler without Bokeh works as well."""
    script = "import sys, dqlab.live.panels, dqlab.preload; sys.exit('bokeh' in sys.modules)"

    subprocess.run([sys.executable, "-c", script], check=True)


def test_applications_and_installs_are_what_the_configuration_names() -> None:
    """A view that is renamed must not be lost silently."""
    from dqlab.config import option

    assert option("views") == ["dqlab.live.panels", "dqlab.live.panels.metrics"]
    assert set(APPLICATIONS) == {"/dq", *URLS}
    install: Callable[..., Any] = panels.install
    assert callable(install)
    assert callable(dask_setup)
