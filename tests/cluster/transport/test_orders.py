"""Orders to a queue: what each shard gets, and in which order."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from dqlab.cluster.transport import orders
from dqlab.cluster.transport.orders import Code, Order
from dqlab.cluster.transport.queue_calls import QueueCalls
from dqlab.cluster.transport.wire import pack, unpack
from dqlab.errors import CallTimeout, RunCancelled
from dqlab.frame import NO_ID
from dqlab.rules.puts import Submitted
from dqlab.rules.ranges import Ranges, first_id

RUN = b"r" * 16
RECORD = {"name": "n", "codes": [{"hash": "1"}]}
CODE = Code(b"f" * 16, b"blob", {"hash": "2"})
SUBMITTED = orders.RecordSubmitted(RUN, Submitted(5, "d", Ranges([(7, 9)]), "e"), b"producer")
KNOWN = {"submitted": 5, "digest": "d", "beyond": [[7, 9]], "end_digest": "e"}


class Queue(QueueCalls):
    """A queue of three shards; keeps what it is asked, in order."""

    name, shards = "q", 3

    def __init__(self, promise: str = "transient", refuse: int | None = None, error: Exception | None = None) -> None:
        self.promise, self.refuse, self.error = promise, refuse, error
        self.events: list[tuple[Any, dict[str, Any] | None]] = []

    async def ask(self, shard: int, call: Any, *parts: bytes, wait: float = 0.0) -> tuple[Any, list[memoryview]]:
        assert call.method == "control"
        self.events.append((shard, unpack(call.pack(*parts))[0]))
        if shard == self.refuse and self.error is not None:
            raise self.error
        return call.opened(pack({"count": 10}))

    def give(self, order: Order, shard: int | None = None) -> int:
        return asyncio.run(self.order(order, shard=shard))


ids = [(first_id(1, 5), first_id(1, 7)), (first_id(2, 0), first_id(2, 1))]
FORMS: list[tuple[Order, list[tuple[int, dict[str, Any]]]]] = [
    (orders.Pause(RUN), [(at, {"op": "pause", "run": RUN}) for at in range(3)]),
    (orders.Resume(None), [(at, {"op": "resume", "run": None}) for at in range(3)]),
    (orders.Drain(None), [(at, {"op": "drain", "run": None}) for at in range(3)]),
    (orders.Purge(None, "DEAD"), [(at, {"op": "purge", "run": None, "state": "DEAD"}) for at in range(3)]),
    (orders.Forget(NO_ID, [(0, 9)]), [(at, {"op": "forget", "run": NO_ID, "ids": [[0, 9]]}) for at in range(3)]),
    (orders.Open(RUN, RECORD), [(at, {"op": "open", "open": {"run": RUN, "record": RECORD}}) for at in range(3)]),
    (
        orders.Open(RUN, RECORD, {"retries": 2}),
        [(at, {"op": "open", "open": {"run": RUN, "record": RECORD, "retry": {"retries": 2}}}) for at in range(3)],
    ),
    (orders.Drop(RUN), [(at, {"op": "drop", "run": RUN}) for at in range(3)]),
    (orders.Cancel(RUN), [(at, {"op": "cancel", "run": RUN}) for at in range(3)]),
    (
        orders.RetryDead(RUN, ids, [(3, 5)], CODE.function, CODE.blob),
        [
            (at, {"op": "retry", "run": RUN, "ids": own, "ordinals": [[3, 5]], "function": b"f" * 16, "blob": b"blob"})
            for at, own in ((0, []), (1, [[*ids[0]]]), (2, [[*ids[1]]]))
        ],
    ),
    (
        orders.LearnCode(RUN, CODE),
        [(at, {"op": "retry", "run": RUN, "ids": [], "ordinals": [], **CODE._asdict()}) for at in range(3)],
    ),
    (orders.Adopt(RUN, CODE), [(at, {"op": "adopt", "run": RUN, **CODE._asdict()}) for at in range(3)]),
    (orders.Retries(NO_ID, 7), [(at, {"op": "retries", "run": NO_ID, "retries": 7}) for at in range(3)]),
    (orders.Judge(RUN, [[3, True]]), [(0, {"op": "judge", "run": RUN, "marks": [[3, True]]})]),
    (orders.Pace(RUN, {"most": 3}), [(at, {"op": "flow", "run": RUN, "flow": {"most": 3}}) for at in range(3)]),
    (SUBMITTED, [(0, {"op": "submitted", "run": RUN, **KNOWN, "by": b"producer"})]),
    (
        orders.Seal(RUN, [3, 2, 0], "why", SUBMITTED),
        [
            (0, {"op": "submitted", "run": RUN, **KNOWN, "by": b"producer"}),
            *(
                (
                    at,
                    {
                        "op": "seal",
                        "seal": {"total": 5, "incomplete": "why", "run": RUN, "here": here, "by": b"producer"},
                    },
                )
                for at, here in enumerate([3, 2, 0])
            ),
        ],
    ),
    (
        orders.Reopen(RUN, "me", b"mine"),
        [(at, {"op": "reopen", "run": RUN, "client": "me", "producer": b"mine"}) for at in range(3)],
    ),
]


def name_of(order: object) -> str:
    return type(order).__name__


@pytest.mark.parametrize(("order", "messages"), FORMS, ids=[name_of(order) for order, _ in FORMS])
def test_every_order_has_the_form_that_logs_have(order: Order, messages: list[tuple[int, dict[str, Any]]]) -> None:
    """A log that an earlier dqlab wrote is replayed order by order."""
    queue = Queue("always")

    assert queue.give(order) == 10 * len(messages)
    assert sorted(queue.events, key=lambda event: event[0]) == messages


def test_every_order_is_tried_here() -> None:
    known = {name for name, kind in vars(orders).items() if isinstance(kind, type) and issubclass(kind, Order)}
    assert {name_of(order) for order, _ in FORMS} == {name for name in known if name[0] != "_"} - {"Order", "RunOrder"}


def test_an_order_for_one_shard_reaches_no_other() -> None:
    queue = Queue()
    queue.give(orders.Forget(NO_ID, [(0, 9)], coming=True), shard=1)

    assert queue.events == [(1, {"op": "forget", "run": NO_ID, "ids": [[0, 9]], "coming": True})]


def test_a_run_is_sealed_one_shard_after_the_other() -> None:
    """The first has the record: where it is out of reach, no other ends the run."""
    queue = Queue(refuse=0, error=CallTimeout(name="q", call="control", seconds=1.0))
    with pytest.raises(CallTimeout):
        queue.give(orders.Seal(RUN, [3, 2, 0], None, SUBMITTED))

    assert [where for where, _ in queue.events] == [0]


@pytest.mark.parametrize(
    ("order", "refuses", "reached"),
    [
        (orders.Open(RUN, RECORD), 0, [0]),
        (orders.Open(RUN, RECORD), 1, [0, 1, 2]),
        (orders.Drop(RUN), 0, [1, 2, 0]),
        (orders.Drop(RUN), 1, [1, 2]),
    ],
    ids=["open, refused by the first", "open", "drop, refused by the first", "drop"],
)
def test_first_shard_has_a_run_before_all_others_and_as_long_as_any(
    order: Order, refuses: int, reached: list[int]
) -> None:
    """It is asked which runs there are: what another shard has must never be out of sight."""
    queue = Queue("durable", refuse=refuses, error=CallTimeout(name="q", call="control", seconds=1.0))
    with pytest.raises(CallTimeout):
        queue.give(order)

    assert [where for where, _ in queue.events] == reached


def test_a_refused_order_raises_why() -> None:
    error = RunCancelled(run="n", cancelled=1, total=2, acked=1)
    with pytest.raises(RunCancelled):
        Queue(refuse=2, error=error).give(orders.Reopen(RUN, "me", b"mine"))
