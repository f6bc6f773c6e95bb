"""Serves statistics and actions at ``/dqlab/api/`` of the scheduler's HTTP server, to clients with the token.

The Jupyter server calls it for its user, also while the kernel is busy or gone. `dqlab.proof` describes how both sides
prove that they have the token.
"""

from __future__ import annotations

import json
import logging
import math
import socket
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from distributed import Scheduler
from tornado.web import Application, HTTPError, RequestHandler

from dqlab.cluster.scheduler.actions import Action, Actions
from dqlab.cluster.statistics.collector import Collector
from dqlab.cluster.transport.dead_pages import dead_page
from dqlab.cluster.transport.internals import ActorFailed
from dqlab.errors import BadOption, CallTimeout, DqlabError, RunNotFound
from dqlab.proof import ANSWER, ANYWHERE, ASK, NONCE, PROOF, Challenges, is_nonce, mac, machine, same
from dqlab.texts import valid

logger = logging.getLogger("dqlab.registry")

PREFIX = "/dqlab/api/"
LARGEST = 1 << 20
"""Most bytes of an action."""
SPAN, SHORTEST, LONGEST = 1800.0, 60.0, 86_400.0
PAGE = 50
_STATUS = {"QueueNotFound": 404, "RunNotFound": 404, "BadOption": 400, "CallTimeout": 504}
_REFUSED = 409
_SAID = {
    403: (
        "Forbidden",
        "the proof of the token is missing, wrong or already used. Nothing was done. dq.connect() announces the "
        "current token.",
    ),
    405: ("NotAllowed", "this address does not support that method. Nothing was done."),
}


@dataclass(frozen=True, slots=True)
class Control:
    """The sources of the routes' answers, and the token that requests must prove."""

    scheduler: Scheduler
    collector: Collector
    actions: Actions
    token: str
    challenges: Challenges


def add_routes(control: Control) -> Callable[[], None] | None:
    """Serve the routes and return a function that removes them, or None if the scheduler has no HTTP server."""
    # Dask documents none of these names: without them the cluster works, and only the routes are missing.
    routing = getattr(control.scheduler, "http_application", None)
    served = getattr(routing, "applications", None)
    if routing is None or not isinstance(served, list) or not callable(getattr(routing, "add_application", None)):
        logger.info("event=control_left_out reason=%s", "the scheduler has no HTTP server that takes applications")
        return None
    given = {"control": control}
    kinds = {"service": _Service, "snapshot": _Snapshot, "history": _History, "failures": _Failures, "actions": _Act}
    application = Application([(PREFIX + name, kind, given) for name, kind in kinds.items()])
    routing.add_application(application)

    def undo() -> None:
        if application in served:
            served.remove(application)

    return undo


def served_at(scheduler: Scheduler) -> dict[str, Any] | None:
    """Return where a scheduler's HTTP server listens, or None if it has none."""
    server: Any = getattr(scheduler, "http_server", None)
    port = getattr(server, "port", None)
    if not port:
        return None
    host = str(server.address)
    return {
        "scheduler_id": scheduler.id,
        "scheme": "http" if getattr(server, "ssl_options", None) is None else "https",
        "port": port,
        "host": "" if host in ANYWHERE else host,  # "": it listens at all addresses of its machine
        "machine": socket.gethostname(),  # an address like 127.0.0.1 holds only there
    }


class _Handler(RequestHandler):
    """Answers requests that prove the token, as JSON."""

    _nonce = ""
    """Nonce of a request that proved the token. The answer then proves the token too."""

    def initialize(self, control: Control) -> None:
        self.control = control

    def set_default_headers(self) -> None:
        self.set_header("Content-Type", "application/json; charset=utf-8")
        self.set_header("Cache-Control", "no-store")
        self.set_header("X-Content-Type-Options", "nosniff")

    def prepare(self) -> None:
        # Spend the nonce before checking the proof, so that each nonce allows one guess.
        request, nonce = self.request, self.request.headers.get(NONCE, "")
        if not self.is_fresh(nonce):
            raise HTTPError(403, reason="Forbidden")
        expected = mac(self.control.token, ASK, nonce, str(request.method), str(request.uri), body=request.body)
        if not same(request.headers.get(PROOF, ""), expected):
            raise HTTPError(403, reason="Forbidden")
        self._nonce = nonce

    def is_fresh(self, nonce: str) -> bool:
        """Spend a nonce, and return whether it was unused."""
        return self.control.challenges.spend(nonce)

    def write_error(self, status_code: int, **kwargs: Any) -> None:
        """Answer an error as {error, message}, without a traceback."""
        raised = kwargs.get("exc_info", (None, None, None))[1]
        kind, text = "Failed", "the scheduler could not answer; see its log for the reason."
        if isinstance(raised, HTTPError):
            kind, text = _SAID.get(status_code, ("BadRequest", str(raised)))
        self.answer({"error": kind, "message": text})

    def answer(self, content: dict[str, Any]) -> None:
        body = json.dumps(valid(content), separators=(",", ":")).encode()
        if self._nonce:
            asked = (str(self.request.method), str(self.request.uri), str(self.get_status()))
            self.set_header(PROOF, mac(self.control.token, ANSWER, self._nonce, *asked, body=body))
        self.finish(body)

    def refuse(self, error: DqlabError | ActorFailed) -> None:
        kind = error.kind if isinstance(error, ActorFailed) else type(error).__name__
        text = error.said if isinstance(error, ActorFailed) else str(error)
        self.set_status(_STATUS.get(kind, _REFUSED))
        self.answer({"error": kind or "Failed", "message": text or str(error)})

    async def of(self) -> tuple[str, str]:
        """Return the requested queue and run, "" for one not requested, or raise if one does not exist."""
        queue, run = self.get_query_argument("queue", ""), self.get_query_argument("run", "")
        actions, known = self.control.actions, self.control.collector.known.has_run
        if queue:
            actions.queue(queue)  # raises QueueNotFound
        if run and queue and not known(run):  # it may have begun since the last report
            await actions.look(queue)
        if run and not known(run):
            raise RunNotFound(run=run, hint="", known="see the snapshot")
        return queue, run

    def number(self, name: str, default: float) -> float:
        said = self.get_query_argument(name, "")
        try:
            number = float(said) if said else default
        except ValueError:
            number = math.nan
        if not math.isfinite(number):
            raise BadOption(option=name, value=said[:40], problem="must be a number.")
        return number


class _Service(_Handler):
    """Returns the scheduler's id, the address it was called at, and the nonce of the next request."""

    # The first request has no nonce of ours yet, and may bring its own: it changes and reveals nothing.
    def is_fresh(self, nonce: str) -> bool:
        return is_nonce(nonce)

    def get(self) -> None:
        scheduler = self.control.scheduler
        connection: Any = self.request.connection
        server: Any = scheduler.http_server
        self.answer(
            {
                "scheduler_id": scheduler.id,
                "at": connection.stream.socket.getsockname()[:2],
                "anywhere": str(server.address) in ANYWHERE,
                "machine": machine(),
                "challenge": self.control.challenges.give(),
            }
        )


class _Snapshot(_Handler):
    """Returns the current snapshot."""

    async def get(self) -> None:
        try:
            self.answer(self.control.collector.snapshot(*await self.of()).to_dict())
        except (DqlabError, ActorFailed) as error:
            self.refuse(error)


class _History(_Handler):
    """Returns the history."""

    async def get(self) -> None:
        try:
            span = min(max(self.number("span", SPAN), SHORTEST), LONGEST)
            self.answer(self.control.collector.history(span, *await self.of()).to_dict())
        except (DqlabError, ActorFailed) as error:
            self.refuse(error)


class _Failures(_Handler):
    """Returns a page of dead letters."""

    async def get(self) -> None:
        try:
            name, run = self.get_query_argument("queue", ""), self.get_query_argument("run", "")
            queue = self.control.actions.queue(name)
            id = await self.control.actions.run(queue, run) if run else None
            mark, after = self.get_query_argument("fingerprint", ""), self.get_query_argument("after", "")
            found = await dead_page(queue, id, mark, after, int(self.number("limit", PAGE)))
            self.answer({"run": run, "queue": name, **found})
        except (DqlabError, ActorFailed) as error:
            self.refuse(error)


class _Act(_Handler):
    """Carries out an action, as the only route that changes anything."""

    async def post(self) -> None:
        try:
            self.answer(await self.control.actions.carry_out(Action.parse(self._body())))
        except (DqlabError, ActorFailed) as error:
            if isinstance(error, CallTimeout):
                logger.warning("event=action_late %s", error)
            self.refuse(error)

    def _body(self) -> Any:
        body = self.request.body
        if len(body) > LARGEST:
            raise BadOption(option="action", value=f"{len(body):,} bytes", problem=f"has {LARGEST:,} at most.")
        try:
            return json.loads(body)
        except (ValueError, RecursionError):
            said = body[:80].decode("utf-8", "replace")
            raise BadOption(option="action", value=said, problem="is not JSON. Nothing was done.") from None
