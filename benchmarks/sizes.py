"""How much is measured in a full run and in a quick one."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["FULL", "QUICK", "Sizes"]


@dataclass(frozen=True)
class Sizes:
    """Sizes of all rooms.

    Attributes
    ----------
    full : bool
        Whether a missed floor fails the run: the targets hold for these sizes only.
    rounds : int
        Runs of each contestant; the reported value is their median.
    slow_rounds : int
        Runs of a peer that does less than 1,000 messages a second.
    messages : int
        Of the throughput row, for dqlab.
    peer_s : float
        Seconds that one run of a peer should take; its number of messages is chosen accordingly.
    calls : int
        Single calls in one round of the latency row.
    documents : int
        Of the heavy-tailed row.
    idle_s : float
        Seconds of one idle window.
    queued : int
        Messages in the queue whose memory is measured.
    growth : tuple of int
        Two sizes whose cost per message is compared.
    passes : int
        Repetitions of the in-process loops within one round.
    peers : bool
        Whether peers take part that need packages.
    """

    full: bool
    rounds: int
    slow_rounds: int
    messages: int
    peer_s: float
    calls: int
    documents: int
    idle_s: float
    queued: int
    growth: tuple[int, int]
    passes: int
    peers: bool = False


FULL = Sizes(
    full=True,
    rounds=5,
    slow_rounds=3,
    messages=100_000,
    peer_s=2.0,
    calls=200,
    documents=5_000,
    idle_s=6.0,
    queued=1_000_000,
    growth=(100_000, 1_000_000),
    passes=100,
)

QUICK = Sizes(
    full=False,
    rounds=3,
    slow_rounds=3,
    messages=20_000,
    peer_s=0.4,
    calls=50,
    documents=1_000,
    idle_s=5.0,
    queued=200_000,
    growth=(10_000, 100_000),
    passes=30,
)
