"""How large one result may be: no more than what a queue on disk can keep, checked before anything is opened."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import dask.config
import pytest
from distributed import Client

import dqlab as dq
from dqlab.cli.here import up
from dqlab.errors import BadOption
from dqlab.frame import NO_ID, Frame, Kind, Outcome, Piece, Settlement
from dqlab.log.writer import LogOptions
from dqlab.rules.retry import QueueOptions
from dqlab.runs.session import Durability
from dqlab.store.durable_shard import DurableShard
from dqlab.store.values import MAX_RESULT


@pytest.fixture
def too_large() -> Iterator[None]:
    """A configuration that queues in memory can live with."""
    with dask.config.set({"dqlab.results.max-bytes": "61 MiB"}):
        yield


DOORS: dict[str, Callable[[Client, Path], object]] = {
    "connect": lambda client, store: dq.connect(store=store),
    "connect to a cluster": lambda client, store: dq.connect(client, store=store),
    "dqlab up": lambda client, store: up(1, store=store, name="nobody", say=print),
    "a queue": lambda client, store: dq.QueuePool(client, durability=Durability.DURABLE, dirpath=store),
    "a queue of a name": lambda client, store: dq.QueuePool(
        client, name="large", durability=Durability.DURABLE, dirpath=store
    ),
}


@pytest.mark.parametrize("door", DOORS)
@pytest.mark.usefixtures("too_large")
def test_limit_above_what_a_log_takes_is_refused(door: str, client: Client, tmp_path: Path) -> None:
    """A result that was computed and could not be recorded ran again, and again."""
    store = tmp_path / "store"

    with pytest.raises(BadOption, match=r"dqlab\.results\.max-bytes='61 MiB': is more than 60 MiB"):
        DOORS[door](client, store)

    assert not store.exists()


def test_consumers_of_a_queue_on_disk_refuse_it_too(client: Client, tmp_path: Path) -> None:
    """The configuration may have changed since the queue was opened."""
    with closing(dq.QueuePool(client, durability=Durability.DURABLE, dirpath=tmp_path)) as pool:
        with dask.config.set({"dqlab.results.max-bytes": "61 MiB"}), pytest.raises(BadOption, match="60 MiB"):
            dq.ConsumerPool(client, pool)
        dq.ConsumerPool(client, pool)


def test_largest_result_fits_the_log(in_memory: Path) -> None:
    """With a key as long as a message may be."""
    shard = DurableShard.open(
        in_memory / "0", "q", 0, QueueOptions(), log_options=LogOptions(sync="os", reserve_bytes=0)
    )
    rules, payload = shard.ledger.shard, bytes(MAX_RESULT)
    rules.put(Frame.decode(Frame.encode([b"x"], kind=Kind.VALUE, producer=b"p" * 16)))
    lease = rules.lease("c", 1)
    assert lease is not None
    blob = Settlement.encode(
        [Piece(lease.pieces[0].frame, 0, 1)],
        bytes([Outcome.ACK]),
        [payload],
        run=NO_ID,
        epoch=rules.epoch,
        lease=lease.id,
        keys=["k" * (1 << 20)],
    )

    assert shard.ledger.settle(Settlement.decode(blob)).results
    shard.journal.log.commit()
    shard.journal.log.close(clean=True)
