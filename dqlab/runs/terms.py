"""The terms on which a run's messages are delivered, besides its function and its documents."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from dqlab.cluster.transport.isolation import Isolation
from dqlab.datasets.sinks import Sink
from dqlab.rules.flow import FlowTerms
from dqlab.rules.retry import Retry
from dqlab.rules.stopping import Stop


@dataclass(frozen=True, slots=True)
class RunTerms:
    """What the keywords of `map` say."""

    retry: Retry | None
    """None: the queue's."""
    process: Isolation | None
    """None: it runs in threads."""
    needs: Mapping[str, float]
    """Amounts of resources that a slot must have."""
    flow: FlowTerms | None
    """None: nothing holds it back."""
    stop: Stop | None
    """None: it never pauses itself because documents fail."""
    sink: Sink | None
    """None: the queue keeps its results."""

    def record(self) -> dict[str, Any]:
        """Return what a run's record says of them, without what is as usual."""
        record: dict[str, Any] = {"needs": dict(self.needs)} if self.needs else {}
        record |= {} if self.stop is None else {"stop_if": self.stop.limit, "stop_despite": self.stop.despite}
        record |= {} if self.process is None else {"process": self.process.record()}
        record |= {} if self.flow is None else {"flow": self.flow.record()}
        return record | ({} if self.sink is None else {"sink": self.sink.record()})
