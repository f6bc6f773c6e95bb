"""Which output of messages is kept, and where: in the records of failures, and beside results.

A message's output is gathered in `Chunk.output` by position, from `streams` in threads and from the slot's process. A
message that prints nothing has no entry there, and costs nothing.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from dqlab.failures.failure import Failure
from dqlab.frame import Outcome
from dqlab.printed import Ring

if TYPE_CHECKING:
    from dqlab.cluster.consumer.running.chunk import Chunk
    from dqlab.cluster.consumer.running.outcomes import Columns

LOGS = "logs"
"""The name of the rider."""
SLOW_S, SLOW_TIMES = 1.0, 10
"""A document is slow if it takes more seconds than this, and as many times more than the others of its run here."""
_RUNS = 64
_paces: OrderedDict[bytes, tuple[int, float]] = OrderedDict()
"""Results of the latest runs on this worker, and the seconds that they took."""


def ring_of(chunk: Chunk, position: int) -> Ring | None:
    """Return where to write what a message prints, or None where nothing is kept."""
    if chunk.logs == "none":
        return None
    ring = chunk.output.get(position)
    return chunk.output.setdefault(position, Ring()) if ring is None else ring


def kept_in_failures(chunk: Chunk, start: int, stop: int) -> None:
    """Move the output of failed messages, among the outcomes of a chunk, into the records of their failures."""
    done = chunk.done
    for place, position in enumerate(done.positions[start:stop], start):
        if done.outcome(place) in (Outcome.FAIL, Outcome.REJECT) and (ring := chunk.output.pop(position, None)):
            said = ring.logs()
            done.payloads[place] = replace(
                Failure.from_bytes(done.payloads[place]), printed=str(said), cut=said.cut
            ).to_bytes()


def kept_beside(chunk: Chunk, done: Columns) -> Mapping[int, bytes]:
    """Return the output to keep of messages that are settled, by their places among them, and let go of the rest."""
    if Outcome.ACK not in done.outcomes:  # what was given back, or has failed and keeps it in its record
        return {}
    results, seconds = _pace(chunk, done.positions)
    if not chunk.output:
        return {}
    kept = dict[int, bytes]()
    for place, position in enumerate(done.positions):
        ring = chunk.output.pop(position, None)
        if ring is not None and done.outcomes[place] is Outcome.ACK and _is_kept(chunk, position, results, seconds):
            kept[place] = ring.logs().to_bytes()
    return kept


def _is_kept(chunk: Chunk, position: int, results: int, seconds: float) -> bool:
    """Return whether the output of a result is kept, where so many results of its run took so many seconds."""
    if chunk.logs == "all":
        return True
    took = chunk.seconds_at([position])[0]
    others = (seconds - took) / (results - 1) if results > 1 else took
    return took > max(SLOW_S, SLOW_TIMES * others)


def _pace(chunk: Chunk, positions: Sequence[int]) -> tuple[int, float]:
    """Count results, and return how many there were of their run and how many seconds they took."""
    if chunk.took:
        seconds = sum(chunk.took.get(position, 0.0) for position in positions)
    else:  # one after another
        before = chunk.ended[positions[0] - 1] if positions[0] else 0.0
        seconds = max(0.0, chunk.ended[positions[-1]] - (before or chunk.began))
    results, so_far = _paces.pop(chunk.run, (0, 0.0))
    _paces[chunk.run] = pace = results + len(positions), so_far + seconds
    while len(_paces) > _RUNS:
        _paces.popitem(last=False)
    return pace
