"""What all handlers share: the services, and a log without a line for each request to a service that is silent.

`Services` logs the silence itself, once; views ask every few seconds, and dashboards reload themselves.
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

__all__ = ["Handler"]

READS = ("GET", "HEAD")


class _AtDebug(logging.LoggerAdapter[Any]):
    """Logs everything at level DEBUG."""

    def log(self, level: int, msg: object, *args: Any, **kwargs: Any) -> None:
        super().log(min(level, logging.DEBUG), msg, *args, **kwargs)


class Handler(JupyterHandler):
    """A handler that knows the services."""

    auth_resource = "dqlab"
    explained = False
    """The line about a silent service has the reason, so this request's own line is for debugging."""

    def initialize(self, services: Services) -> None:
        """Set the services to look among."""
        self.services = services

    @property
    def log(self) -> Any:
        """Jupyter's logger; its line for a request, written by this, keeps its wording and is counted as ever."""
        log = super().log
        return _AtDebug(log, {}) if self.explained else log

    @contextmanager
    def asking(self, service: Announcement) -> Iterator[None]:
        """Note whether a service answers what the block asks."""
        try:
            yield
        except ServiceSilent as error:
            self.services.note_answer(service, answered=False, why=error.reason)
            raise
        self.services.note_answer(service, answered=True)

    def explain(self) -> None:
        """Log the failed request at level DEBUG, unless it was an action: `Services` has logged the reason."""
        self.explained = self.request.method in READS

    def log_exception(self, typ: Any, value: Any, tb: Any) -> None:
        """Log exceptions that have no line yet."""
        if not self.explained:
            super().log_exception(typ, value, tb)
