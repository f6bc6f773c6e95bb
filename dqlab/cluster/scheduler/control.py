"""Serves statistics and actions at ``/dqlab/api/`` of the scheduler's HTTP server, to clients with the token.

The Jupyter server calls it for its user, also while the kernel is busy or gone. `dqlab.proof` describes how both sides
prove that they have the token. Each action makes the same calls as the method of its name in Python: `QueuePool.pause`,
`Run.pause` and so on.
"""

from __future__ import annotations

import asyncio
import json
import logging
import math
import socket
from collections.abc import Awaitable, Callable, Collection
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from itertools import count
from typing import Any, Literal

from distributed import Scheduler
from tornado.web import Application, HTTPError, RequestHandler

from dqlab.cluster.scheduler.actors import Actors
from dqlab.cluster.scheduler.consumer_sets import ConsumerSets
from dqlab.cluster.scheduler.state import ClusterState
from dqlab.cluster.statistics.collector import Collector
from dqlab.cluster.transport import queue_calls
from dqlab.cluster.transport.calls import A, Call, LetGoCall, RunningNowCall
from dqlab.cluster.transport.internals import (
    ActorFailed,
    NoSuchActor,
    Unreachable,
    ask_handler,
    call_actor,
    opened_bytes,
)
from dqlab.cluster.transport.orders import ORDERS, TRANSIENT, VERBS, Cancel, purged_state
from dqlab.cluster.transport.queue_calls import QueueCalls, dead_page
from dqlab.cluster.transport.ref import RPC_TIMEOUT
from dqlab.cluster.transport.reports import FRESH
from dqlab.cluster.transport.wire import Packed
from dqlab.errors import ActorGone, BadOption, CallTimeout, DqlabError, QueueNotFound, RunNotFound, UsageError
from dqlab.keywords import meant
from dqlab.numbers import duration, many, minute
from dqlab.proof import ANSWER, ANYWHERE, ASK, NONCE, PROOF, Challenges, is_nonce, mac, machine, same
from dqlab.stats.attention import GOES_ON
from dqlab.stats.queues import short_name
from dqlab.texts import valid


class Freshness:
    """Asks workers for their reports, and waits for them."""

    def __init__(self, state: ClusterState) -> None:
        self._state = state
        self._numbers = count(1)
        self._awaited: dict[tuple[str, int], asyncio.Event] = {}
        """By worker and question: set when the worker's reports have come."""

    async def bring(self, queue: str, within: float) -> bool:
        """Make the workers of a queue, or of all for "", report, and return whether all did within `within` seconds."""
        entries = [entry for entry in self._state.entries.values() if entry.address and entry.gone is None]
        return await self._bring({entry.address for entry in entries if queue in ("", entry.queue)}, within)

    async def bring_shards(self, queue: str, within: float) -> bool:
        """Make the shards of a queue report, and return whether all of them did within `within` seconds."""
        opened, shards = self._state.queues.get(queue), [entry for entry in self._state.of(queue) if entry.is_shard]
        standing = [entry.address for entry in shards if entry.gone is None and entry.made.is_set()]
        if opened is None or len(standing) < opened.shards:
            return False
        return await self._bring(set(standing), within)

    def note(self, worker: str, number: int) -> None:
        """Note that a worker's reports have come, as a stream handler."""
        # It must neither wait nor raise: an error would close the worker's stream. Nobody may wait any more.
        if (worker, number) in self._awaited:
            self._awaited[worker, number].set()

    async def _bring(self, workers: Collection[str], within: float) -> bool:
        number = next(self._numbers)
        try:
            async with asyncio.timeout(within):
                return all(await asyncio.gather(*(self._reports(worker, number) for worker in workers)))
        except TimeoutError:
            return False

    async def _reports(self, worker: str, number: int) -> bool:
        """Return True once a worker has reported, or False if it is gone, leaves, or has no such handler."""
        came = self._awaited[worker, number] = asyncio.Event()
        try:
            with suppress(Exception):  # whatever it is, the worker does not report
                if await ask_handler(self._state.scheduler.rpc, worker, "dq_report", number=number) == {}:
                    await came.wait()
                    return True
            return False
        finally:
            del self._awaited[worker, number]


BY = "JupyterLab"
MOST_CONSUMERS = 10_000
ANSWERS_WITHIN = 10.0
"""Seconds that a consumer may take to report what it runs; a consumer in a stopped process never answers."""


@dataclass(frozen=True, slots=True)
class Action:
    """One action on a queue or a run."""

    action: str
    """One of `VERBS`."""
    queue: str
    run: str = ""
    """Name of the run; "": the action is for the queue."""
    n: int | Literal["auto"] = "auto"
    """Consumers to scale to."""
    state: str = "dead"
    """State of the messages to purge."""
    fingerprints: tuple[str, ...] = ()
    """Failure classes to retry; empty: all."""
    limit: int | None = None
    """Most messages to retry."""
    consumer: str = ""
    """Consumer to replace, by its name in views."""
    document: str = ""
    """Document to give up; with a consumer too, nothing is done once that consumer runs another document."""

    @classmethod
    def parse(cls, sent: Any) -> Action:
        """Read an action sent as JSON, or raise BadOption if it is malformed."""
        if not isinstance(sent, dict):
            raise _bad("action", sent, "must be an object: {'action': 'pause', 'queue': 'default'}")
        action, run = sent.get("action"), sent.get("run", "")
        known = [verb for verb, kind in VERBS.items() if (kind.of_runs if run else kind.of_queues)]
        if not isinstance(action, str) or action not in known:
            raise _bad("action", action, f"must be one of {', '.join(known)} for a {'run' if run else 'queue'}")
        for name in sent.keys() - {"action", "queue", "run", *VERBS[action].fields}:
            takers = [verb for verb in VERBS if name in VERBS[verb].fields]
            only = f"is allowed only with {' and '.join(takers)}" if takers else "is not a field of an action"
            raise _bad(str(name)[:40], sent[name], only)
        for name, (fits, problem) in _FIELDS.items():
            if name in sent and not fits(sent[name]):
                raise _bad(name, sent[name], problem)
        for needed in (("queue",), VERBS[action].needs):
            if needed and not any(sent.get(name) for name in needed):
                raise _bad(needed[0], sent.get(needed[0]), _FIELDS[needed[0]][1])
        purged_state(sent.get("state", "dead"))
        return cls(**{**sent, "fingerprints": tuple(sent.get("fingerprints", ()))})


def _is_text(value: object) -> bool:
    return isinstance(value, str)


def _is_count(value: object, most: int = 1 << 53) -> bool:
    # JSON's `true` is an int in Python, and would count as 1.
    return isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= most


_FIELDS: dict[str, tuple[Callable[[Any], bool], str]] = {
    "queue": (_is_text, "must be the name of a queue"),
    "run": (_is_text, "must be the name of a run"),
    "n": (
        lambda n: n == "auto" or _is_count(n, MOST_CONSUMERS),
        f"must be a number of consumers, 1 to {MOST_CONSUMERS:,}, or 'auto'",
    ),
    "limit": (lambda limit: limit is None or _is_count(limit), "must be a limit, 1 or more"),
    "fingerprints": (
        lambda marks: isinstance(marks, list) and all(isinstance(mark, str) and mark for mark in marks),
        "must be a list of fingerprints of failure classes",
    ),
    "consumer": (_is_text, "must be the name of a consumer, as views show it: c0"),
    "document": (_is_text, "must be a name, as views show it"),
}
"""What the value of a field must be, and the words for it."""


def _bad(option: str, value: Any, problem: str) -> BadOption:
    short = value if not isinstance(value, str) else value[:100]
    return BadOption(option=option, value=short, problem=f"{problem}. Nothing was done.")


# --- carrying out ---------------------------------------------------------------------------


class Actions:
    """Carries out actions on the queues of one scheduler."""

    def __init__(
        self,
        state: ClusterState,
        actors: Actors,
        consumer_sets: ConsumerSets,
        freshness: Freshness,
    ) -> None:
        self._state = state
        self._actors = actors
        self._consumer_sets = consumer_sets
        self._freshness = freshness

    def queue(self, name: str) -> _SchedulerCalls:
        """Return calls to an open queue, or raise QueueNotFound."""
        if name not in self._state.queues:
            raise QueueNotFound(queue=name, **_hint_and_known(name, self._state.queues))
        return _SchedulerCalls(name, self._state, self._actors)

    async def run(self, queue: QueueCalls, name: str) -> bytes:
        """Return the id of a queue's run, or raise RunNotFound."""
        runs = await queue_calls.runs_of(queue)
        if name not in runs:
            raise RunNotFound(run=name, **_hint_and_known(name, runs))
        return runs[name]

    async def carry_out(self, action: Action) -> dict[str, Any]:
        """Carry out an action and return {count, text, snapshot}, with the snapshot taken afterwards."""
        queue = self.queue(action.queue)
        run = await self.run(queue, action.run) if action.run else None
        kinds: dict[str, Callable[[QueueCalls, bytes | None, Action], Awaitable[tuple[int | None, str]]]] = {
            **dict.fromkeys(ORDERS, self._order),
            "scale": self._scale,
            "purge": self._purge,
            "compact": self._compact,
            "replace": self._let_go,
            "give_up": self._let_go,
            "cancel": self._cancel,
            "retry": self._retry,
        }
        count, text = await kinds[action.action](queue, run, action)
        # The page draws this snapshot at once. Without a look, it would show the state before the action.
        await self.look(queue.name)
        return {"count": count, "text": text, "snapshot": self._state.collector.snapshot().to_dict()}

    async def look(self, queue: str) -> None:
        """Make a queue's workers report now, and not with their next report in up to 250 ms."""
        await self._freshness.bring(queue, FRESH)

    # --- the actions ------------------------------------------------------------------------

    async def _order(self, queue: QueueCalls, run: bytes | None, action: Action) -> tuple[None, str]:
        verb = ORDERS[action.action]
        await queue.order(verb.order(run))
        self._mark(action.action, queue, stops=verb.stops)
        return None, f"{_subject(action)} {verb.said}."

    async def _scale(self, queue: QueueCalls, run: bytes | None, action: Action) -> tuple[None, str]:
        if await self._consumer_sets.scale(queue.name, None if action.n == "auto" else action.n) is None:
            raise UsageError(
                reason=f"queue {queue.name!r} has no consumers of its own: its consumers belong to a ConsumerPool, or "
                "it never had any. Nothing was changed. Call scale() of that pool, or map something on the queue."
            )
        self._mark(f"scale {action.n}", queue)
        amount = "one consumer on each worker" if action.n == "auto" else many(action.n, "consumer")
        return None, f"{_subject(action)} has {amount} from now on."

    async def _purge(self, queue: QueueCalls, run: bytes | None, action: Action) -> tuple[int, str]:
        count = await queue.order(purged_state(action.state))
        self._mark(f"purge {action.state}", queue)
        return count, f"{_subject(action)}: {many(count, f'{action.state} message')} thrown away."

    async def _compact(self, queue: QueueCalls, run: bytes | None, action: Action) -> tuple[None, str]:
        self._mark("compact", queue)
        return None, f"{_subject(action)} is compacted: {await queue_calls.compact(queue)}."

    async def _let_go(self, queue: QueueCalls, run: bytes | None, action: Action) -> tuple[int, str]:
        give_up = action.action == "give_up"
        taken = await self.let_go(queue.name, action.consumer, action.document, give_up=give_up)
        consumers, done = sorted({*taken.values()}), "given up, a failure now" if give_up else "tried again"
        free = f"{', '.join(consumers)} {'takes' if len(consumers) == 1 else 'take'} other documents now"
        return len(taken), f"{_subject(action)}: {', '.join(taken)} {done}; {free}. {GOES_ON}."

    async def let_go(
        self, queue: str, consumer: str = "", document: str = "", run: bytes | None = None, *, give_up: bool
    ) -> dict[str, str]:
        """Make consumers drop documents, to be retried or given up, and return {document: consumer}.

        Raise BadOption where no consumer matches or runs the document now.
        """
        # Names are those of views. No consumer: the one that runs `document`. No document: all that the consumer runs.
        # No run: any. A function that does not end within 5 s continues in an abandoned thread.
        calls = self.queue(queue)
        names = {short_name(entry.name): entry.name for entry in self._state.of(queue) if not entry.is_shard}
        if consumer and consumer not in names:
            known = ", ".join(sorted(names)[:20]) or "none"
            raise _bad("consumer", consumer, f"queue {queue} has no consumer of that name; it has {known}")
        asked = {consumer: names[consumer]} if consumer else self._running(document, names) or names
        looked = (
            RunningNowCall(document).ask(partial(calls.call_actor, name, timeout=ANSWERS_WITHIN))
            for name in asked.values()
        )
        answers = await asyncio.gather(*looked, return_exceptions=True)
        taken: dict[str, str] = {}
        for (short, name), answer in zip(asked.items(), answers, strict=True):
            if isinstance(answer, BaseException):
                if len(asked) == 1:
                    raise answer
                continue
            for held in answer[0].running:
                if (document and held.document != document) or run not in (None, held.run):
                    continue
                why = f"given up after {duration(held.seconds)} on {short}" if give_up else ""
                # The shard decides: between the two calls, the consumer may have settled the document.
                given, _ = await calls.ask(held.shard, LetGoCall(held.run, [(held.id, held.id + 1)], why))
                if given.count:
                    taken[held.document] = short
                    self._state.collector.took(name, held.document)
        if not taken:
            where = consumer or f"a consumer of queue {queue}"
            option, value = ("document", document) if document else ("consumer", consumer)
            raise _bad(option, value, f"{where} does not run {document or 'anything'} now; it may have just ended")
        self._mark(f"{'give up' if give_up else 'replace'} {', '.join(sorted({*taken.values()}))}", calls)
        return taken

    def _running(self, document: str, names: dict[str, str]) -> dict[str, str]:
        """Return the consumers whose last report names a document."""
        # Reports may be old: `let_go` asks these consumers what they run now. They name what runs longest: a document
        # beside others in a batch, or among coroutines, is looked for in all consumers.
        known = self._state.collector.known.consumers
        running = {short: known[name].report.oldest for short, name in names.items() if name in known}
        return {short: names[short] for short, oldest in running.items() if oldest and oldest.document == document}

    async def _cancel(self, queue: QueueCalls, run: bytes | None, action: Action) -> tuple[int, str]:
        assert run is not None, "only runs are cancelled"
        count = await queue.order(Cancel(run))
        self._mark("cancel", queue)
        if not count:
            return 0, f"{_subject(action)} had nothing left to cancel; its results stay."
        return count, f"{_subject(action)} is cancelled: {many(count, 'document')} given up; results that exist stay."

    async def _retry(self, queue: QueueCalls, run: bytes | None, action: Action) -> tuple[int, str]:
        assert run is not None, "only runs are retried"
        codes = (await queue_calls.progress_of(queue, run)).record.codes
        count = await queue_calls.retry(queue, run, classes=action.fingerprints, limit=action.limit)
        if not count:
            return 0, f"{_subject(action)} has no dead document of that kind; nothing was sent."
        version = f"{codes[-1]['name']} v{len(codes)}"
        self._mark(f"retry, {version}", queue)
        return count, f"{_subject(action)}: {many(count, 'document')} sent through again, with {version}."

    def _mark(self, text: str, queue: QueueCalls, *, stops: bool = False) -> None:
        collector = self._state.collector
        by = f"by {BY}, {minute(collector.known.clock.wall())}" if stops else ""
        collector.mark(text, queue=queue.name, by=by)


def _subject(action: Action) -> str:
    return f"Run {action.run}" if action.run else f"Queue {action.queue}"


def _hint_and_known(name: str, known: Any) -> dict[str, str]:
    return {"hint": meant(name, known), "known": ", ".join(sorted(known)[:20]) or "none"}


class _SchedulerCalls(QueueCalls):
    """Calls an open queue from the scheduler, whose connections unpickle neither answers nor errors."""

    def __init__(self, name: str, state: ClusterState, actors: Actors) -> None:
        self.name, self._rpc, self._actors = name, state.scheduler.rpc, actors
        queue = state.queues[name]
        self.shards = queue.shards
        self.promise = TRANSIENT if queue.store is None else str(queue.store.get("sync", TRANSIENT))

    async def ask(self, shard: int, call: Call[A], *parts: bytes, wait: float = 0.0) -> tuple[A, list[memoryview]]:
        """Call one shard like `call_actor`."""
        name, timeout = f"queue/{self.name}/{shard}", RPC_TIMEOUT + wait
        return call.opened(await self.call_actor(name, call.method, call.pack(*parts), timeout=timeout))

    async def call_actor(self, name: str, call: str, body: Packed, *, timeout: float) -> Packed:
        """Call a shard or a consumer, or raise ActorGone, CallTimeout, or ActorFailed for an error of the actor."""
        place = await self._actors.find(name)
        if place.gone is not None:
            raise ActorGone(name=name, reason=place.gone)
        if place.address is None:  # it is still being recreated
            raise CallTimeout(name=name, call=call, seconds=timeout)
        try:
            async with asyncio.timeout(timeout):
                work = call_actor(self._rpc, place.address, place.key, call, body)
                return opened_bytes(await work)
        except (TimeoutError, Unreachable):
            raise CallTimeout(name=name, call=call, seconds=timeout) from None
        except NoSuchActor:
            raise ActorGone(name=name, reason="its worker no longer holds it") from None


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

    def log_exception(self, kind: Any, value: Any, traceback: Any) -> None:
        if isinstance(value, CallTimeout):
            logger.warning("event=answer_late %s", value)
        elif not isinstance(value, DqlabError | ActorFailed):
            super().log_exception(kind, value, traceback)

    def write_error(self, status_code: int, **kwargs: Any) -> None:
        """Answer an error as {error, message}, without a traceback."""
        raised = kwargs.get("exc_info", (None, None, None))[1]
        kind, text = "Failed", "the scheduler could not answer; see its log for the reason."
        if isinstance(raised, HTTPError):
            kind, text = _SAID.get(status_code, ("BadRequest", str(raised)))
        elif isinstance(raised, ActorFailed):
            kind, text = raised.kind or "Failed", raised.said or str(raised)
        elif isinstance(raised, DqlabError):
            kind, text = type(raised).__name__, str(raised)
        if isinstance(raised, DqlabError | ActorFailed):
            self.set_status(_STATUS.get(kind, _REFUSED))
        self.answer({"error": kind, "message": text})

    def answer(self, content: dict[str, Any]) -> None:
        body = json.dumps(valid(content), separators=(",", ":")).encode()
        if self._nonce:
            asked = (str(self.request.method), str(self.request.uri), str(self.get_status()))
            self.set_header(PROOF, mac(self.control.token, ANSWER, self._nonce, *asked, body=body))
        self.finish(body)

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
        self.answer(self.control.collector.snapshot(*await self.of()).to_dict())


class _History(_Handler):
    """Returns the history."""

    async def get(self) -> None:
        span = min(max(self.number("span", SPAN), SHORTEST), LONGEST)
        self.answer(self.control.collector.history(span, *await self.of()).to_dict())


class _Failures(_Handler):
    """Returns a page of dead letters."""

    async def get(self) -> None:
        name, run = self.get_query_argument("queue", ""), self.get_query_argument("run", "")
        queue = self.control.actions.queue(name)
        id = await self.control.actions.run(queue, run) if run else None
        mark, after = self.get_query_argument("fingerprint", ""), self.get_query_argument("after", "")
        found = await dead_page(queue, id, mark, after, int(self.number("limit", PAGE)))
        self.answer({"run": run, "queue": name, **found})


class _Act(_Handler):
    """Carries out an action, as the only route that changes anything."""

    async def post(self) -> None:
        self.answer(await self.control.actions.carry_out(Action.parse(self._body())))

    def _body(self) -> Any:
        body = self.request.body
        if len(body) > LARGEST:
            raise BadOption(option="action", value=f"{len(body):,} bytes", problem=f"has {LARGEST:,} at most.")
        try:
            return json.loads(body)
        except (ValueError, RecursionError):
            said = body[:80].decode("utf-8", "replace")
            raise BadOption(option="action", value=said, problem="is not JSON. Nothing was done.") from None
