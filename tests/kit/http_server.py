"""A web server of a test's own, on this machine."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

__all__ = ["serving"]


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 64


@contextmanager
def serving(handler: type[BaseHTTPRequestHandler], *, quiet: bool = False) -> Iterator[str]:
    """Serve until the block ends, and yield the address; with `quiet`, clients that hang up print no traceback."""
    handler.log_message = lambda *_: None  # type: ignore[method-assign] # nothing on stderr for each request
    server = _Server(("127.0.0.1", 0), handler)
    if quiet:
        server.handle_error = lambda *_: None  # type: ignore[method-assign]
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
