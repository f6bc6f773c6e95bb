"""Room `growth`: ten times the messages may take ten times as long, and hardly more."""

from __future__ import annotations

from functools import partial

from benchmarks.figures import Better, Figure, Series, Target, ratios
from benchmarks.harness import Contestant, alternate, rate
from benchmarks.sizes import Sizes
from benchmarks.stage import Stage
from benchmarks.work import add, pairs, sum_of_sums

__all__ = ["growth"]

SAME_COST = Target(floor=1.3)


def growth(stage: Stage, sizes: Sizes) -> list[Figure]:
    """Compare the cost per message of a small and a large run, put without a limit, all results read."""
    queue = stage.lab.queue("growth", maxsize=None)
    small, large = sizes.growth

    def mapped(n: int) -> list[int]:
        run = queue.map(add, pairs(n))
        results = list(run.results())
        run.drop()
        return results

    def cost(n: int) -> float:
        return 1e6 / rate(mapped, n, sum_of_sums(n))

    cost(small)
    contestants = [Contestant(f"{n:,}", partial(cost, n)) for n in (small, large)]
    costs = [Series.of(values) for values in alternate(contestants, rounds=sizes.rounds).values()]
    queue.close()
    return [
        Figure(f"cost at {large:,} over cost at {small:,}", "x", Better.LOWER, ratios(costs[1], costs[0]), SAME_COST),
        *(
            Figure(f"one of {n:,} messages", "µs", Better.LOWER, series)
            for n, series in zip((small, large), costs, strict=True)
        ),
    ]
