"""A JupyterLab of its own, in a folder of its own, for browser tests and screenshots."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from tests.chromium import chromium

TOKEN = "test-token"
BASE = "/user/ana/"
"""A prefix as on a hub, so that no absolute URL goes unnoticed."""

_CONFIG = f"""
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
    environ = dict(os.environ)
    for name in ("RUNTIME", "CONFIG", "DATA"):
        environ[f"JUPYTER_{name}_DIR"] = str(folder / name.lower())
    environ["JUPYTERLAB_SETTINGS_DIR"] = str(folder / "settings")
    environ["JUPYTERLAB_WORKSPACES_DIR"] = str(folder / "workspaces")
    environ["IPYTHONDIR"] = str(folder / "ipython")
    news = folder / "settings" / "@jupyterlab" / "apputils-extension"
    news.mkdir(parents=True)
    (news / "notification.jupyterlab-settings").write_text(json.dumps({"fetchNews": "false", "checkForUpdates": False}))
    config = folder / "jupyter_lab_config.py"
    config.write_text(_CONFIG)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [sys.executable, "-m", "jupyterlab", f"--config={config}", f"--port={port}", "--ip=127.0.0.1"]
    with (folder / "server.log").open("wb") as log:
        server = subprocess.Popen(
            [*command, f"--ServerApp.root_dir={root}"], stdout=log, stderr=subprocess.STDOUT, env=environ
        )
    url = f"http://127.0.0.1:{port}{BASE}"
    try:
        _wait_until_it_answers(server, f"{url}api/status?token={TOKEN}", folder / "server.log")
        yield url
    finally:
        server.terminate()
        try:
            server.wait(10)
        except subprocess.TimeoutExpired:
            server.kill()
            server.wait(10)


def _wait_until_it_answers(server: subprocess.Popen[bytes], url: str, log: Path) -> None:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        try:
            with urllib.request.urlopen(url, timeout=2):
                return
        except OSError:
            with suppress(subprocess.TimeoutExpired):
                server.wait(0.2)  # until it ends, or is asked again: there is nothing that says it is ready
                raise RuntimeError(f"JupyterLab ended at start:\n{log.read_text()[-3000:]}") from None
    raise TimeoutError(f"JupyterLab did not answer within 60 s:\n{log.read_text()[-3000:]}")


@contextmanager
def lab_page(
    url: str, notebook: str, *, width: int = 1280, height: int = 1000, dark: bool = False, classic: bool = False
) -> Iterator[Any]:
    """Open a notebook in headless Chromium, in JupyterLab or Notebook 7; yield the page once its kernel is idle."""
    with chromium() as browser:
        page = browser.new_page(viewport={"width": width, "height": height})
        complaints: list[str] = []
        # JupyterLab reports what a view of ours raises to the console alone, and the view stands still from then on.
        page.on("console", lambda said: complaints.append(said.text) if _is_ours(said) else None)
        page.on("pageerror", lambda error: complaints.append(error.stack) if "dqlab" in (error.stack or "") else None)
        place = f"notebooks/{notebook}?" if classic else f"lab/workspaces/w{time.monotonic_ns()}/tree/{notebook}?reset&"
        page.goto(f"{url}{place}token={TOKEN}")
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
