"""The part of dqlab in Jupyter's server, which lists, asks and shows services for its user.

It runs beside every notebook, so it loads neither Dask nor anything that draws; and it works while kernels are busy.

::

    services     the announced services, their states, and calls of them with their tokens
    api          JSON for the sidebar, and all routes
    proxy        a dashboard below Jupyter's own address
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from jupyter_server.serverapp import ServerApp

__all__ = ["_jupyter_server_extension_points", "_load_jupyter_server_extension"]


def _jupyter_server_extension_points() -> list[dict[str, Any]]:
    return [{"module": "dqlab.jupyter.server"}]


def _load_jupyter_server_extension(server: ServerApp) -> None:
    from dqlab.jupyter.server.api import routes

    application = server.web_app
    application.add_handlers(".*$", routes(application.settings["base_url"], server.runtime_dir))
