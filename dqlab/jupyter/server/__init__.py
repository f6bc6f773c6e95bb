"""The part of dqlab that runs in Jupyter's server: what it lists, requests and shows for its user.

Runs beside every notebook, so it loads neither Dask nor anything that draws; and it works while kernels are busy.

::

    services     what is announced, and whether it answers     upstream     calls a scheduler, with its token
    api          JSON for the sidebar, and all routes          proxy        its dashboard below Jupyter's own address
    handler      what api and proxy share
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
    application.add_handlers(".*$", routes(application.settings["base_url"], server.runtime_dir, server.log))
