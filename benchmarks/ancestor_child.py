"""Runs in the ancestor's own environment: reads a number of messages, answers seconds and results.

Only the standard library, Dask and the ancestor can be imported here.
"""

import json
import logging
import os
import sys
import time
from operator import add  # importable: a function of this file would be pickled by value with every message

from daskqueue import ConsumerPool, QueuePool  # type: ignore[import-not-found]
from daskqueue.utils import logger  # type: ignore[import-not-found]
from distributed import Client, LocalCluster


def run(client: Client, n: int) -> dict[str, float]:
    """Use it as its own benchmark does: put everything, start the consumers, join, collect; actors exist before."""
    calls = [(add, i, i) for i in range(n)]
    queues = QueuePool(client, n_queues=1)
    consumers = ConsumerPool(client, queues, n_consumers=2, batch_size=1000)
    start = time.perf_counter()
    queues.batch_submit(calls)
    consumers.start()
    consumers.join(timestep=0.01)
    results = sum(len(found) for found in consumers.results().values())
    return {"seconds": time.perf_counter() - start, "results": results}


def main() -> None:
    # Whatever is printed goes to stderr; answers have the pipe for themselves.
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    logger.setLevel(logging.ERROR)
    cluster = LocalCluster(n_workers=3, threads_per_worker=1, dashboard_address="127.0.0.1:0")
    with cluster, Client(cluster) as client:
        print(json.dumps("ready"), file=answers)
        for line in sys.stdin:
            print(json.dumps(run(client, json.loads(line))), file=answers)


if __name__ == "__main__":
    main()
