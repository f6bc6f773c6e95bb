"""The JSON that the sidebar requests (services, their replies, actions on them), and the routes of all handlers."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from http import HTTPStatus
from pathlib import Path
from typing import Any

from jupyter_server.auth.decorator import authorized
from jupyter_server.base.handlers import APIHandler
from jupyter_server.utils import url_path_join
from tornado import web

from dqlab.clusters_here import Announcement
from dqlab.jupyter.server.proxy import Dashboard
from dqlab.jupyter.server.services import Handler, Refused, Services, ServiceSilent

ALL = "dq"
_ID = r"([A-Za-z0-9_-]+)"
OURS = {
    "individual-dq-runs": "Runs",
    "individual-dq-depth": "Queue depth",
    "individual-dq-unacked": "Unacked",
    "individual-dq-throughput": "Throughput",
    "individual-dq-failures": "Failures",
    "individual-dq-storage": "Storage",
}
"""Titles of our panels by path, in the order of the page that has all of them."""


def panels(plots: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return {path, name, ours} for each page in Dask's ``individual-plots.json``, ours first."""
    paths = {str(path).strip("/"): str(name).removeprefix("Individual ") for name, path in plots.items()}
    ours = [{"path": path, "name": title, "ours": True} for path, title in OURS.items() if path in paths]
    if ours:
        ours.insert(0, {"path": ALL, "name": "All six", "ours": True})
    others = sorted((name, path) for path, name in paths.items() if path not in OURS)
    return [*ours, *({"path": path, "name": name, "ours": False} for name, path in others)]


LOOK, DO, COMPACT = 10.0, 60.0, 3600.0
"""Timeouts, in seconds, of a query, an action, and an action that reads a whole store."""
LARGEST = 1 << 20
"""Most bytes of an action's request."""


class _Handler(Handler, APIHandler):
    """Reports failures as {error, message}."""

    def write_error(self, status_code: int, **kwargs: Any) -> None:
        """Write an exception as JSON, with a status that fits its class."""
        raised = kwargs.get("exc_info", (None, None, None))[1]
        if isinstance(raised, ServiceSilent):
            self.explain()
        status, said = _error_as_json(raised, status_code)
        self.set_status(status)
        self.set_header("Content-Type", "application/json")
        self.finish(json.dumps(said))

    def log_exception(self, typ: Any, value: Any, tb: Any) -> None:
        """Log unexpected exceptions, which a silent service is not."""
        if not isinstance(value, ServiceSilent | Refused):
            super().log_exception(typ, value, tb)

    async def ask(self, service: Announcement, call: str, wait: float, **asked: Any) -> bytes:
        """Call a service, and note whether it answered."""
        with self.asking(service):
            return await self.services.upstream.ask(service, call, wait=wait, **asked)


def _error_as_json(raised: BaseException | None, status: int) -> tuple[int, dict[str, Any]]:
    """Return the status and the JSON for an error."""
    if isinstance(raised, Refused):
        return raised.status, dict(raised.said)
    if isinstance(raised, ServiceSilent):
        return 504 if raised.late else 502, {"error": "ServiceSilent", "message": str(raised)}
    if isinstance(raised, web.HTTPError):
        words = {403: "you are not logged in, or may not do that. Load the page again."}
        message = raised.log_message or words.get(status, raised.reason or "this address does not support that method")
        return status, {"error": {403: "Forbidden", 400: "BadOption"}.get(status, "Failed"), "message": message}
    return 500, {"error": "Failed", "message": "the Jupyter server could not answer; see its log for the reason."}


class ServiceList(_Handler):
    """Every service."""

    @web.authenticated
    @authorized
    async def get(self) -> None:
        """Return all services and their states."""
        self.finish(json.dumps({"services": await self.services.list()}))


class Service(_Handler):
    """One service."""

    @web.authenticated
    @authorized
    async def delete(self, id: str) -> None:
        """Forget the service, if it does not answer."""
        await self.services.forget(id)
        self.set_status(204)
        self.finish()


class Ask(_Handler):
    """A reply of a service, unchanged."""

    def initialize(self, services: Services, call: str, takes: Sequence[str]) -> None:  # type: ignore[override]
        """Set the call, and the arguments of the address that it accepts."""
        super().initialize(services)
        self.call, self.takes = call, takes

    @web.authenticated
    @authorized
    async def get(self, id: str) -> None:
        """Forward the query."""
        query = {name: value for name in self.takes if (value := self.get_query_argument(name, ""))}
        self.finish(await self.ask(self.services.living(id), self.call, LOOK, query=query))


class Panels(_Handler):
    """The pages of a service's dashboard."""

    @web.authenticated
    @authorized
    async def get(self, id: str) -> None:
        """Return the pages that can be opened."""
        service = self.services.living(id)
        url = f"{service.dashboard}/individual-plots.json"
        with self.asking(service):
            answer = await self.services.upstream.fetch(service, url, wait=LOOK)
            if answer.code == HTTPStatus.FOUND:  # the first request makes the dashboard, and is redirected
                answer = await self.services.upstream.fetch(service, url, wait=LOOK)
            await self.services.upstream.prove(service, wait=LOOK)  # after the answer, see `services`
        try:
            plots = json.loads(answer.body) if answer.code == 200 else {}
        except ValueError:
            plots = {}
        self.finish(json.dumps({"panels": panels(plots if isinstance(plots, dict) else {})}))


class Act(_Handler):
    """An action on a service."""

    @web.authenticated
    @authorized
    async def post(self, id: str) -> None:
        """Forward the action, and return its outcome."""
        body = self.request.body
        try:
            action = json.loads(body) if len(body) <= LARGEST else None
        except (ValueError, RecursionError):
            action = None
        if not isinstance(action, dict):
            raise web.HTTPError(400, "an action is a JSON object, such as {'action': 'pause', 'queue': 'default'}.")
        wait = COMPACT if action.get("action") == "compact" else DO
        self.finish(await self.ask(self.services.living(id), "actions", wait, body=json.dumps(action).encode()))


def routes(base_url: str, runtime_dir: str) -> list[tuple[str, type, dict[str, Any]]]:
    """Return the handlers of a server, which share one `Services` for its runtime directory."""
    services = Services(Path(runtime_dir))

    def at(path: str, handler: type, **given: Any) -> tuple[str, type, dict[str, Any]]:
        return url_path_join(base_url, "dq", path), handler, {"services": services, **given}

    return [
        at(r"api/services", ServiceList),
        at(rf"api/services/{_ID}", Service),
        at(rf"api/services/{_ID}/snapshot", Ask, call="snapshot", takes=("queue", "run")),
        at(rf"api/services/{_ID}/history", Ask, call="history", takes=("span", "queue", "run")),
        at(
            rf"api/services/{_ID}/failures",
            Ask,
            call="failures",
            takes=("queue", "run", "fingerprint", "after", "limit"),
        ),
        at(rf"api/services/{_ID}/panels", Panels),
        at(rf"api/services/{_ID}/actions", Act),
        at(rf"dashboard/{_ID}(?:/(.*))?", Dashboard),
    ]
