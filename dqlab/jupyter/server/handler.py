"""What all handlers share: the services, and a log without a line for each request to a silent service.

Views ask every few seconds, dashboards reload themselves, and both say that a service is silent.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from jupyter_server.base.handlers import JupyterHandler

from dqlab.clusters_here import Announcement
from dqlab.jupyter.server.services import Services
from dqlab.jupyter.server.upstream import ServiceSilent

READS = ("GET", "HEAD")


class _AtDebug(logging.LoggerAdapter[Any]):
    """Logs everything at level DEBUG."""

    def log(self, level: int, msg: object, *args: Any, **kwargs: Any) -> None:
        super().log(min(level, logging.DEBUG), msg, *args, **kwargs)


class Handler(JupyterHandler):
    """A handler that knows the services."""

    auth_resource = "dqlab"
    explained = False
    """Whether what the user sees says why, so that this request's own line is logged at level DEBUG."""

    def initialize(self, services: Services) -> None:
        """Set the services."""
        self.services = services

    @property
    def log(self) -> Any:
        """Jupyter's logger, at level DEBUG for a request that is explained."""
        log = super().log  # Jupyter writes a request's line with it, which metrics count: it is moved, not dropped
        return _AtDebug(log, {}) if self.explained else log

    @contextmanager
    def asking(self, service: Announcement) -> Iterator[None]:
        """Note whether a service answers the calls of the block."""
        try:
            yield
        except ServiceSilent:
            self.services.note_answer(service, answered=False)
            raise
        self.services.note_answer(service, answered=True)

    def explain(self) -> None:
        """Log the failed request at level DEBUG if it only reads, since the response has the reason."""
        self.explained = self.request.method in READS

    def log_exception(self, typ: Any, value: Any, tb: Any) -> None:
        """Log exceptions that have no line yet."""
        if not self.explained:
            super().log_exception(typ, value, tb)
