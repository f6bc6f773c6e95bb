"""A JupyterLab of its own, in a folder of its own, for browser tests and screenshots."""

from __future__ import annotations

import json
import os
import socket
import ssl
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

from tests.kit.chromium import chromium

TOKEN = "test-token"
BASE = "/user/ana/"
"""A prefix as on a hub, so that no absolute URL goes unnoticed."""

CONFIG = f"""
c = get_config()
c.LabApp.expose_app_in_browser = c.JupyterNotebookApp.expose_app_in_browser = True
c.LabApp.news_url = None
c.LabApp.check_for_updates_class = "jupyterlab.NeverCheckForUpdate"
c.ServerApp.port_retries = 0
c.ServerApp.base_url = "{BASE}"
c.ServerApp.open_browser = False
c.ServerApp.allow_root = True
c.IdentityProvider.token = "{TOKEN}"
"""


@contextmanager
def jupyterlab(folder: Path, root: Path) -> Iterator[str]:
    """Serve `root` with a JupyterLab that keeps all its state below `folder`; yield its URL."""
    own = environ(folder)
    config = folder / "jupyter_lab_config.py"
    config.write_text(CONFIG)
    (port,) = free_ports(1)
    command = [sys.executable, "-m", "jupyterlab", f"--config={config}", f"--port={port}", "--ip=127.0.0.1"]
    url = f"http://127.0.0.1:{port}{BASE}"
    with serving([*command, f"--ServerApp.root_dir={root}"], folder, own, f"{url}api/status?token={TOKEN}"):
        yield url


def environ(folder: Path) -> dict[str, str]:
    """Return an environment in which a JupyterLab keeps all its state below `folder`, and asks for no news."""
    own = dict(os.environ)
    for name in ("RUNTIME", "CONFIG", "DATA"):
        own[f"JUPYTER_{name}_DIR"] = str(folder / name.lower())
    own["JUPYTERLAB_SETTINGS_DIR"] = str(folder / "settings")
    own["JUPYTERLAB_WORKSPACES_DIR"] = str(folder / "workspaces")
    own["IPYTHONDIR"] = str(folder / "ipython")
    news = folder / "settings" / "@jupyterlab" / "apputils-extension"
    news.mkdir(parents=True)
    (news / "notification.jupyterlab-settings").write_text(json.dumps({"fetchNews": "false", "checkForUpdates": False}))
    return own


def free_ports(count: int) -> list[int]:
    """Return ports that nothing listens at."""
    with ExitStack() as held:
        probes = [held.enter_context(socket.socket()) for _ in range(count)]
        for probe in probes:
            probe.bind(("127.0.0.1", 0))
        return [probe.getsockname()[1] for probe in probes]


@contextmanager
def serving(command: list[str], folder: Path, own: dict[str, str], url: str) -> Iterator[None]:
    """Run a server until the block ends, which begins once `url` answers."""
    with (folder / "server.log").open("wb") as log:
        server = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT, env=own, cwd=folder)
    try:
        _wait_until_it_answers(server, url, folder / "server.log")
        yield
    finally:
        server.terminate()
        try:
            server.wait(10)
        except subprocess.TimeoutExpired:
            server.kill()
            server.wait(10)


def _wait_until_it_answers(server: subprocess.Popen[bytes], url: str, log: Path) -> None:
    deadline = time.monotonic() + 60
    unchecked = ssl._create_unverified_context()
    while time.monotonic() < deadline:
        try:
            with urllib.request.urlopen(url, timeout=2, context=unchecked if url.startswith("https") else None):
                return
        except OSError:
            with suppress(subprocess.TimeoutExpired):
                server.wait(0.2)  # until it ends, or is asked again: there is nothing that says it is ready
                raise RuntimeError(f"the server ended at start:\n{log.read_text()[-3000:]}") from None
    raise TimeoutError(f"the server did not answer within 60 s:\n{log.read_text()[-3000:]}")


@contextmanager
def lab_page(
    url: str,
    notebook: str,
    *,
    width: int = 1280,
    height: int = 1000,
    dark: bool = False,
    classic: bool = False,
    log_in: Callable[[Any], None] | None = None,
) -> Iterator[Any]:
    """Open a notebook in headless Chromium, in JupyterLab or Notebook 7; yield the page once its kernel is idle."""
    with chromium() as browser:
        page = browser.new_page(viewport={"width": width, "height": height}, ignore_https_errors=True)
        complaints: list[str] = []
        # JupyterLab reports what a view of ours raises to the console alone, and the view stands still from then on.
        page.on("console", lambda said: complaints.append(said.text) if _is_ours(said) else None)
        page.on("pageerror", lambda error: complaints.append(error.stack) if "dqlab" in (error.stack or "") else None)
        place = f"notebooks/{notebook}?" if classic else f"lab/workspaces/w{time.monotonic_ns()}/tree/{notebook}?reset&"
        if log_in is not None:
            log_in(page)
        page.goto(f"{url}{place}" + (f"token={TOKEN}" if log_in is None else ""))
        page.wait_for_selector(".jp-Notebook", state="attached", timeout=60_000)
        if dark:
            execute(page, "apputils:change-theme", {"theme": "JupyterLab Dark"})
        # The indicator in the toolbar says idle before there is a kernel at all.
        page.wait_for_function(
            "() => window.jupyterapp.shell.currentWidget?.context?.sessionContext?.session?.kernel?.status === 'idle'",
            timeout=60_000,
        )
        yield page
        assert complaints == [], "\n".join(complaints)


def _is_ours(said: Any) -> bool:
    return said.type == "error" and "extensions/dqlab" in said.text


def execute(page: Any, command: str, args: dict[str, Any] | None = None) -> None:
    """Run one of JupyterLab's commands, without waiting for its end."""
    page.evaluate(
        "([command, args]) => { window.jupyterapp.commands.execute(command, args); return 1; }", [command, args or {}]
    )
