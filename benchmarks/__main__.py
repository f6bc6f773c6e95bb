"""`python -m benchmarks [--quick] [--peers] [room...]`: measure, print, write JSON; status 1 when a floor is missed."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from benchmarks.harness import LoadWatch
from benchmarks.report import Measured, missed, table, write_json
from benchmarks.rooms import ALONE, ROOMS
from benchmarks.sizes import FULL, QUICK, Sizes
from benchmarks.stage import Stage

__all__ = ["main"]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the rooms that are named, or all of them; return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description="Measure dqlab beside its peers.")
    parser.add_argument("--quick", action="store_true", help="smaller sizes, 90 s; misses no floor")
    parser.add_argument(
        "rooms", nargs="*", metavar="room", help=f"default: all but {', '.join(sorted(ALONE))} of {', '.join(ROOMS)}"
    )
    parser.add_argument("--peers", action="store_true", help="beside Ray and Daft, too, which are installed apart")
    chosen = parser.parse_args(arguments)
    unknown = [room for room in chosen.rooms if room not in ROOMS]
    if unknown:
        parser.error(f"no room {', '.join(unknown)}; there are {', '.join(ROOMS)}")
    sizes = replace(QUICK if chosen.quick else FULL, peers=chosen.peers)
    return _report(chosen.rooms or [room for room in ROOMS if room not in ALONE], sizes)


def _report(rooms: Sequence[str], sizes: Sizes) -> int:
    when = datetime.now(UTC)
    measured = []
    with Stage(_say) as stage:
        for name in rooms:
            _say(f"... {name}")
            watch = LoadWatch()
            figures = ROOMS[name](stage, sizes)
            measured.append(Measured(name, figures, watch.stop()))
            print(table(measured[-1]), end="\n\n", flush=True)
    print(f"every value: {write_json(measured, sizes, when, Path.cwd())}")
    if not sizes.full:
        print("A quick run: its sizes are smaller than those the targets are for, so its verdicts are hints.")
        return 0
    for figure in missed(measured):
        print(f"MISSED: {figure.name}", file=sys.stderr)
    return 1 if missed(measured) else 0


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
