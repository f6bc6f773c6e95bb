"""Carries out actions on a queue or a run, ordered from a page that has no client of its own.

Each action makes the same calls as the method of its name in Python: `QueuePool.pause`, `Run.pause` and so on.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

from dqlab.cluster.scheduler.actors import Actors
from dqlab.cluster.scheduler.consumer_sets import ConsumerSets
from dqlab.cluster.scheduler.freshness import Freshness
from dqlab.cluster.scheduler.state import ClusterState
from dqlab.cluster.transport import queue_calls
from dqlab.cluster.transport.calls import A, Call, LetGoCall, RunningNowCall
from dqlab.cluster.transport.internals import NoSuchActor, Unreachable, call_actor, opened_bytes
from dqlab.cluster.transport.orders import TRANSIENT
from dqlab.cluster.transport.queue_calls import QueueCalls
from dqlab.cluster.transport.ref import RPC_TIMEOUT
from dqlab.cluster.transport.reports import FRESH
from dqlab.cluster.transport.verbs import ORDERS, VERBS, purged_state
from dqlab.cluster.transport.wire import Packed
from dqlab.errors import ActorGone, BadOption, CallTimeout, QueueNotFound, RunNotFound, UsageError
from dqlab.keywords import meant
from dqlab.numbers import duration, many, minute
from dqlab.stats.attention import GOES_ON
from dqlab.stats.queues import short_name

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
        for name in sent.keys() - set(cls.__slots__):
            raise _bad(str(name)[:40], sent[name], f"is not a field of an action. Fields: {', '.join(cls.__slots__)}")
        action, queue, run = _target_of(sent)
        for name in sent.keys() - {"action", "queue", "run", *VERBS[action].fields}:
            takers = [verb for verb in VERBS if name in VERBS[verb].fields]
            raise _bad(name, sent[name], f"is allowed only with {' and '.join(takers)}")
        if action == "scale" and "n" not in sent:
            raise _bad("n", None, "must be the number of consumers, or 'auto'")
        n, state, limit = sent.get("n", "auto"), sent.get("state", "dead"), sent.get("limit")
        if n != "auto" and not _is_count(n, MOST_CONSUMERS):
            raise _bad("n", n, f"must be a number of consumers, 1 to {MOST_CONSUMERS:,}, or 'auto'")
        purged_state(state)
        if limit is not None and not _is_count(limit):
            raise _bad("limit", limit, "must be a limit, 1 or more")
        marks = sent.get("fingerprints", [])
        if not isinstance(marks, list) or not all(isinstance(mark, str) and mark for mark in marks):
            raise _bad("fingerprints", marks, "must be a list of fingerprints of failure classes")
        return cls(action, queue, run, n, state, tuple(marks), limit, *_consumer_and_document(action, sent))


def _target_of(sent: dict[str, Any]) -> tuple[str, str, str]:
    """Return the action's name, its queue and its run."""
    action, queue, run = sent.get("action"), sent.get("queue"), sent.get("run", "")
    if not isinstance(run, str):
        raise _bad("run", run, "must be the name of a run")
    known = [verb for verb, kind in VERBS.items() if (kind.of_runs if run else kind.of_queues)]
    if not isinstance(action, str) or action not in known:
        raise _bad("action", action, f"must be one of {', '.join(known)} for a {'run' if run else 'queue'}")
    if not isinstance(queue, str) or not queue:
        raise _bad("queue", queue, "must be the name of a queue")
    return action, queue, run


def _consumer_and_document(action: str, sent: dict[str, Any]) -> tuple[str, str]:
    """Return the action's consumer and document, "" for one that it does not name."""
    consumer, document = sent.get("consumer", ""), sent.get("document", "")
    for name, value in (("consumer", consumer), ("document", document)):
        if not isinstance(value, str):
            raise _bad(name, value, "must be a name, as views show it")
    if action in ("replace", "give_up") and not (consumer or document):
        raise _bad("consumer", "", "must be the name of a consumer, as views show it: c0")
    return consumer, document


def _bad(option: str, value: Any, problem: str) -> BadOption:
    short = value if not isinstance(value, str) else value[:100]
    return BadOption(option=option, value=short, problem=f"{problem}. Nothing was done.")


def _is_count(value: object, most: int = 1 << 53) -> bool:
    # JSON's `true` is an int in Python, and would count as 1.
    return isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= most


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
            "replace": self._replace,
            "give_up": self._give_up,
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

    async def _replace(self, queue: QueueCalls, run: bytes | None, action: Action) -> tuple[int, str]:
        running = await self.let_go(queue.name, action.consumer, action.document, give_up=False)
        return len(running), f"{_subject(action)}: {', '.join(running)} tried again; {_freed(running)}."

    async def _give_up(self, queue: QueueCalls, run: bytes | None, action: Action) -> tuple[int, str]:
        running = await self.let_go(queue.name, action.consumer, action.document, give_up=True)
        return len(running), f"{_subject(action)}: {', '.join(running)} given up, a failure now; {_freed(running)}."

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
                    self._state.collector.took(name, held.document, held.seconds)
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
        reports = self._state.collector.known.consumers
        running = {short: reports[name].oldest for short, name in names.items() if name in reports}
        return {short: names[short] for short, oldest in running.items() if oldest and oldest.document == document}

    async def _cancel(self, queue: QueueCalls, run: bytes | None, action: Action) -> tuple[int, str]:
        assert run is not None, "only runs are cancelled"
        count = await queue_calls.cancel(queue, run)
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


def _freed(taken: dict[str, str]) -> str:
    consumers = sorted({*taken.values()})
    return f"{', '.join(consumers)} {'takes' if len(consumers) == 1 else 'take'} other documents now. {GOES_ON}"


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
