"""A fresh process that fills a shard and says what a queued message takes in memory."""

from __future__ import annotations

import gc
import json
import os
import sys
from pathlib import Path

from benchmarks.log_shard import frames, open_shard, put
from benchmarks.processes import resident_bytes


def fill(directory: Path, batch: int, n: int, first: int) -> dict[str, float]:
    """Return bytes of memory for each message but the `first` ones, and bytes in the segments beside the payloads.

    The first ones fill what is limited: the newest records are kept in memory, up to some megabytes.
    """
    those = frames(100, batch)
    shard = open_shard(directory, "always")  # what is not synced stays in memory as well
    log = shard.journal.log
    put(shard, those, first // batch)
    gc.collect()
    resident = resident_bytes(os.getpid())
    put(shard, those, (n - first) // batch)
    gc.collect()
    grown = resident_bytes(os.getpid()) - resident
    segments = log.usage().segments
    log.close()
    return {"memory": grown / (n - first), "beside": (segments - 100 * n) / n}


def main() -> None:
    print(json.dumps("ready"), flush=True)
    for line in sys.stdin:
        asked = json.loads(line)
        print(json.dumps(fill(Path(asked["directory"]), asked["batch"], asked["n"], asked["first"])), flush=True)


if __name__ == "__main__":
    main()
