"""Room `messages`: `add(a, b)` with all results back, 2 consumers, transient and durable."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from operator import add as add_two

import dqlab as dq
from benchmarks import peers
from benchmarks.ancestor import Ancestor
from benchmarks.figures import Better, Figure, Peer, Series, Target, ratios
from benchmarks.harness import Contestant, WrongAnswer, alternate, fitting_size, rate
from benchmarks.processes import Child, ChildFailed
from benchmarks.sizes import Sizes
from benchmarks.stage import Stage
from benchmarks.work import add, pairs, sum_of_sums

__all__ = ["messages"]

SLOW = 1_000
"""Messages per second below which a peer gets fewer rounds."""
ANCESTOR = "daskqueue, the ancestor"
ANCESTOR_LEAST = 2_000
"""Fewer messages than these would measure how it starts and stops."""
MAP, DURABLE, SUBMIT, CLIENT_MAP = "pool.map", "pool.map, durable", "pool.batch_submit", "client.map"
RATE = Target(floor=100_000, aim=500_000)
OVER_CLIENT_MAP = Target(floor=150)
OF_TRANSIENT = Target(floor=0.6, aim=0.8)

RateOf = Callable[[int], float]


def messages(stage: Stage, sizes: Sizes) -> list[Figure]:
    """Measure both ways into a queue beside the peers; the target is `pool.map`'s."""
    n = sizes.messages
    queue = stage.lab.queue("messages", maxsize=n)
    kept = dq.QueuePool(
        stage.lab.client,
        name="messages-kept",
        durability=dq.Durability.DURABLE,
        dirpath=stage.directory,
        maxsize=n,
        served=True,
    )

    def mapped(n: int, queue: dq.QueuePool = queue) -> Sequence[int]:
        run = queue.map(add, pairs(n))
        results = list(run.results())
        run.drop()
        return results

    def submitted(n: int) -> Sequence[int]:
        return queue.batch_submit((add_two, i, i) for i in range(n)).results()

    ours = {
        MAP: partial(_checked, mapped),
        DURABLE: partial(_checked, partial(mapped, queue=kept)),
        SUBMIT: partial(_checked, submitted),
    }
    others: dict[str, RateOf] = {
        f"Pool.map, chunks of {peers.CHUNK:,}": partial(_checked, peers.process_pool(stage.processes)),
        f"client.submit, chunks of {peers.CHUNK:,}": partial(_checked, peers.chunked_submit(stage.dask)),
        "distributed.Queue": partial(_checked, peers.dask_queue(stage.dask)),
        CLIENT_MAP: partial(_checked, peers.client_map(stage.dask)),
    }
    ancestor = _ancestor(stage, sizes)
    if ancestor is not None:
        others[ANCESTOR] = ancestor.rate
    ray = peers.installed("ray", stage.say) if sizes.peers else None
    if ray is not None:
        others[f"Ray, chunks of {peers.CHUNK:,}"] = partial(_rate_of_ray, ray)
    try:
        for rate_of in ours.values():
            rate_of(n // 10)
        contestants = [Contestant(name, partial(rate_of, n)) for name, rate_of in ours.items()]
        contestants += [_sized(name, rate_of, sizes) for name, rate_of in others.items()]
        found = alternate(contestants, rounds=sizes.rounds)
    finally:
        queue.close()
        kept.close()
        for child in filter(None, (ancestor, ray)):
            child.close()
    series = {name: Series.of(values) for name, values in found.items()}
    return [
        Figure(
            f"{n:,} add(a, b), {MAP}",
            "msg/s",
            Better.HIGHER,
            series[MAP],
            RATE,
            tuple(Peer(name, series[name]) for name in others),
        ),
        Figure(
            f"{MAP} over {CLIENT_MAP}", "x", Better.HIGHER, ratios(series[MAP], series[CLIENT_MAP]), OVER_CLIENT_MAP
        ),
        Figure(f"{n:,} add(a, b), {DURABLE}", "msg/s", Better.HIGHER, series[DURABLE]),
        Figure("durable over transient", "x", Better.HIGHER, ratios(series[DURABLE], series[MAP]), OF_TRANSIENT),
        Figure(f"{n:,} add(a, b), {SUBMIT}", "msg/s", Better.HIGHER, series[SUBMIT]),
    ]


def _rate_of_ray(ray: Child, n: int) -> float:
    found = ray.ask({"do": "adds", "n": n, "chunk": peers.CHUNK})
    if found["sum"] != sum_of_sums(n):
        raise WrongAnswer(f"Ray's sums of {n:,} pairs come to {found['sum']:,}")
    return float(found["results"] / found["seconds"])


def _checked(work: Callable[[int], Sequence[int]], n: int) -> float:
    return rate(work, n, sum_of_sums(n))


def _sized(name: str, rate_of: RateOf, sizes: Sizes) -> Contestant[float]:
    """Return a peer at a size that takes it `sizes.peer_s` seconds."""
    n = fitting_size(rate_of, seconds=sizes.peer_s, start=ANCESTOR_LEAST if name == ANCESTOR else 100)
    is_slow = n / sizes.peer_s < SLOW
    return Contestant(name, partial(rate_of, n), sizes.slow_rounds if is_slow else None)


def _ancestor(stage: Stage, sizes: Sizes) -> Ancestor | None:
    try:
        return Ancestor(stage.say, install=sizes.full)
    except ChildFailed as reason:
        stage.say(f"SKIPPED the ancestor, daskqueue: {reason}")
        return None
