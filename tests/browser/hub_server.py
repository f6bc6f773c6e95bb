"""A JupyterHub of its own, in a folder of its own, with one user, whose server is a JupyterLab with the extension."""

from __future__ import annotations

import importlib.util
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from distributed.security import Security

from tests.browser.lab_server import CONFIG, environ, free_ports, serving

USER = "ana"
_PROXY = shutil.which("configurable-http-proxy")

needs_hub = pytest.mark.skipif(
    _PROXY is None or importlib.util.find_spec("jupyterhub") is None,
    reason="no JupyterHub here: pip install jupyterhub, npm install --global configurable-http-proxy",
)

_HUB = """
import os
c = get_config()
c.JupyterHub.bind_url = "{url}"
c.JupyterHub.hub_port = {hub}
c.JupyterHub.db_url = "sqlite://"
c.JupyterHub.cookie_secret = os.urandom(32)
c.JupyterHub.ssl_cert, c.JupyterHub.ssl_key = {certificate!r}
c.JupyterHub.authenticator_class = "dummy"
c.JupyterHub.spawner_class = "simple"
c.Authenticator.allow_all = True
c.ConfigurableHTTPProxy.command = [{proxy!r}]
c.ConfigurableHTTPProxy.api_url = "http://127.0.0.1:{api}"
c.SimpleLocalProcessSpawner.home_dir_template = {root!r}
c.Spawner.cmd = [{python!r}, "-m", "jupyterhub.singleuser"]
c.Spawner.args = ["--allow-root"]
c.Spawner.environment = dict(os.environ)
"""


@contextmanager
def jupyterhub(folder: Path, root: Path, base: str, *, runtime: Path, https: bool) -> Iterator[str]:
    """Serve `root` to the user of a hub below a prefix, with the clusters announced in `runtime`; yield its URL."""
    own = environ(folder) | {"JUPYTER_RUNTIME_DIR": str(runtime)}
    (folder / "config").mkdir()
    (folder / "config" / "jupyter_server_config.py").write_text(CONFIG)
    port, hub, api = free_ports(3)
    url = f"{'https' if https else 'http'}://127.0.0.1:{port}{base}"
    config = folder / "jupyterhub_config.py"
    config.write_text(
        _HUB.format(
            url=url,
            hub=hub,
            api=api,
            certificate=_certificate(folder) if https else ("", ""),
            proxy=_PROXY,
            root=str(root),
            python=sys.executable,
        )
    )
    command = [sys.executable, "-m", "jupyterhub", f"--config={config}"]
    with serving(command, folder, own, f"{url}hub/login"):
        yield url


def log_in(hub: str) -> Any:
    """Return what logs the user in on a browser's page, and waits for the server that the hub starts."""

    def log_in(page: Any) -> None:
        page.goto(f"{hub}hub/login")
        page.locator("#username_input").fill(USER)
        page.locator("#password_input").fill("any")
        page.locator("#login_submit").click()
        page.wait_for_url(f"{hub}user/{USER}/lab*", timeout=60_000)

    return log_in


def _certificate(folder: Path) -> tuple[str, str]:
    """Write a certificate that nobody has signed, and its key."""
    made = Security.temporary()
    paths = str(folder / "certificate.pem"), str(folder / "key.pem")
    for path, text in zip(paths, (made.tls_scheduler_cert, made.tls_scheduler_key), strict=True):
        Path(path).write_text(text)
    return paths
