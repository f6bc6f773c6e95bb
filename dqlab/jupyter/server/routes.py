"""Routes of all handlers, below Jupyter's base URL."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

from jupyter_server.utils import url_path_join

from dqlab.jupyter.server.api import Act, Ask, Panels, Service, ServiceList
from dqlab.jupyter.server.proxy import Dashboard
from dqlab.jupyter.server.services import Services

__all__ = ["routes"]

_ID = r"([A-Za-z0-9_-]+)"


def routes(
    base_url: str, runtime_dir: str, log: logging.Logger | None = None
) -> list[tuple[str, type, dict[str, Any]]]:
    """Return the handlers of a server, which share one `Services` for its runtime directory and its log."""
    services = Services(Path(runtime_dir), log)

    def at(path: str, handler: type, **given: Any) -> tuple[str, type, dict[str, Any]]:
        return url_path_join(base_url, "dq", path), handler, {"services": services, **given}

    return [
        at(r"api/services", ServiceList),
        at(rf"api/services/{_ID}", Service),
        at(rf"api/services/{_ID}/snapshot", Ask, call="snapshot", takes=("queue", "run")),
        at(rf"api/services/{_ID}/history", Ask, call="history", takes=("span", "queue", "run")),
        at(
            rf"api/services/{_ID}/failures",
            Ask,
            call="failures",
            takes=("queue", "run", "fingerprint", "after", "limit"),
        ),
        at(rf"api/services/{_ID}/panels", Panels),
        at(rf"api/services/{_ID}/actions", Act),
        at(rf"dashboard/{_ID}(?:/(.*))?", Dashboard),
    ]
