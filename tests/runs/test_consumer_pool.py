"""Consumers that are started and stopped by hand: what their classes get, and how waiting for them ends."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
from distributed import Client

from dqlab import ConsumerBaseClass, ConsumerPool, GeneralConsumer, Message, QueuePool
from dqlab.errors import ActorGone, BadOption, NotPicklable, ResultsFull, RunStalled
from dqlab.runs import waiting

pytestmark = pytest.mark.lowest


@pytest.fixture
def pool(client: Client) -> Iterator[QueuePool]:
    """A queue that no consumer serves until a ConsumerPool is started."""
    pool = QueuePool(client, retry=False)
    yield pool
    pool.close()


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let join give up after a moment."""
    monkeypatch.setattr(waiting, "STALLED_AFTER", 0.2)


def joined(pool: QueuePool, kind: type[ConsumerBaseClass] = GeneralConsumer, **options: Any) -> ConsumerPool:
    """Return consumers that have processed all that is in the pool."""
    consumers = ConsumerPool(pool.session.link.client, pool, kind, **options)
    consumers.start()
    consumers.join()
    return consumers


def test_process_item_gets_a_message_for_a_call(pool: QueuePool) -> None:
    """A class of one's own can do something around calls: it sees function, arguments and id."""

    class Around(ConsumerBaseClass):
        def process_item(self, item: Any) -> Any:
            return item.id, item.func.__name__, item.args, item.kwargs, item()

    put = pool.submit(int, "ff", base=16)

    assert list(joined(pool, Around).results().values()) == [(put.ids[0], "int", ("ff",), {"base": 16}, 255)]


def test_put_takes_a_message_as_the_call_it_is(pool: QueuePool) -> None:
    """The ancestor's way to queue a call by hand; among plain values it keeps its place."""

    class Both(ConsumerBaseClass):
        def process_item(self, item: Any) -> Any:
            return item() if isinstance(item, Message) else item

    pool.put_many(["before", Message(int, "12", base=8), "behind"])

    assert list(joined(pool, Both).results().values()) == ["before", 10, "behind"]


def test_process_item_may_be_a_coroutine_function(pool: QueuePool) -> None:
    """Downloads wait side by side in one consumer; each call still knows its own id."""

    class Waits(ConsumerBaseClass):
        async def process_item(self, item: Any) -> Any:
            import asyncio

            await asyncio.sleep(0.01)
            return (item.id, await item()) if isinstance(item, Message) else item

    async def double(x: int) -> int:
        return 2 * x

    calls = pool.batch_submit([(double, i) for i in range(20)])
    pool.put("plain")
    results = joined(pool, Waits).results()

    assert [results[id] for id in calls.ids] == [(id, 2 * i) for i, id in enumerate(calls.ids)]
    assert list(results.values()).count("plain") == 1


def test_object_is_made_once_for_each_consumer(client: Client, pool: QueuePool) -> None:
    """A model is loaded in __init__, not for each message; and no other thread ever uses the object."""

    class Loads(ConsumerBaseClass):
        def __init__(self) -> None:
            self.thread = threading.get_ident()
            self.key = os.urandom(8)

        def process_item(self, item: int) -> tuple[str, bytes, bool]:
            return self.name, self.key, threading.get_ident() == self.thread

    pool.put_many(range(50))
    values = list(joined(pool, Loads, n_consumers=3).results().values())

    assert all(same_thread for _, _, same_thread in values)
    assert len({key for _, key, _ in values}) == len({name for name, _, _ in values})


def test_a_general_consumer_that_makes_things_ready_runs_functions_in_processes(pool: QueuePool) -> None:
    class Ready(GeneralConsumer):
        def __init__(self) -> None:
            pass

    run = pool.map(lambda _: os.getpid(), range(3), executor="process", consumers=None)
    joined(pool, Ready)
    workers = set(pool.session.link.client.run(os.getpid).values())
    assert workers.isdisjoint(run.results(timeout=20))


def test_join_without_consumers_says_so(client: Client, pool: QueuePool, impatient: None) -> None:
    """A join that can never end must not hang: nobody called start()."""
    pool.submit(len, "abc")

    with pytest.raises(RunStalled, match=r"1 message waits .* no consumer"):
        ConsumerPool(client, pool).join()


def test_join_on_a_paused_queue_says_so_and_goes_on_after_resume(
    client: Client, pool: QueuePool, impatient: None
) -> None:
    """Nothing is lost by giving up: the same consumers finish once the queue is resumed."""
    consumers = ConsumerPool(client, pool)
    consumers.start()
    pool.pause()
    pool.submit(len, "abc")
    with pytest.raises(RunStalled, match="paused"):
        consumers.join()

    pool.resume()
    consumers.join()

    assert list(consumers.results().values()) == [3]


def test_join_raises_when_results_have_no_room(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    """The queue pauses itself then; waiting for it would be for ever."""
    import dask.config

    with dask.config.set({"dqlab.results.maxsize": 20_000}):
        pool = QueuePool(client)
    pool.batch_submit([(os.urandom, 1_000)] * 100)
    consumers = ConsumerPool(client, pool, batch_size=5)
    consumers.start()

    with pytest.raises(ResultsFull, match="20,000"):
        consumers.join()
    assert pool.counts()["ready"] > 0
    pool.close()


def test_cancel_gives_back_what_has_not_begun(client: Client, pool: QueuePool) -> None:
    """Stopping consumers costs no message and no delivery; others, or a second start, go on."""

    def nap(i: int) -> int:
        time.sleep(0.02)
        return i

    put = pool.batch_submit([(nap, i) for i in range(60)])
    first = pool.submit(len, "abc")
    consumers = ConsumerPool(client, pool, n_consumers=2)
    consumers.start()
    consumers.cancel()
    consumers.cancel()
    left = pool.counts()
    assert left["leased"] == left["dead"] == 0
    assert left["ready"] + left["acked"] == 61
    assert consumers.nb_consumed() == left["acked"]

    consumers.start()
    consumers.join()

    assert put.results() == list(range(60))
    assert first.results() == [3]
    assert consumers.nb_consumed() == 61


def test_stopped_consumer_is_gone(client: Client, pool: QueuePool) -> None:
    """Asking one that was stopped says so rather than hang, which Dask's own actor handle would."""
    consumers = ConsumerPool(client, pool, n_consumers=2)
    consumers.start()
    one = consumers[1]
    assert (len(consumers), one.len_items(), one.len_pending_items()) == (2, 0, 0)

    consumers.cancel()

    with pytest.raises(ActorGone):
        one.stats()


def test_wrong_arguments_are_refused_before_anything_is_started(client: Client, pool: QueuePool) -> None:
    """A mistake is named at the line that made it."""

    class Abstract(ConsumerBaseClass):
        pass

    class Holds(ConsumerBaseClass):
        lock = threading.Lock()

        def process_item(self, item: Any) -> Any:
            return self.lock

    with pytest.raises(BadOption, match="process_item"):
        ConsumerPool(client, pool, Abstract)  # type: ignore[type-abstract]
    with pytest.raises(BadOption, match="not a subclass"):
        ConsumerPool(client, pool, int)  # type: ignore[arg-type]
    with pytest.raises(BadOption, match="QueuePool"):
        ConsumerPool(client, "pages")  # type: ignore[arg-type]
    with pytest.raises(BadOption, match="n_consumers"):
        ConsumerPool(client, pool, n_consumers=0)
    with pytest.raises(NotPicklable, match=r"attribute \.lock of class"):
        ConsumerPool(client, pool, Holds)


def test_large_message_warns_at_the_line_that_put_it(pool: QueuePool) -> None:
    """A warning that points into the package helps nobody to find the document they should not have sent."""
    with pytest.warns(UserWarning, match="70,") as of_value:
        pool.put(bytes(70_000))
    pool._puts._warned = False
    with pytest.warns(UserWarning, match="70,") as of_call:
        pool.submit(len, bytes(70_000))

    assert [warning.filename for warning in [*of_value, *of_call]] == [__file__] * 2
