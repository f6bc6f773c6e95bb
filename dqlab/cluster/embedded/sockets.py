"""Addresses ``unix://DIRECTORY:NUMBER``: Dask's connections over sockets in a directory of one user.

Dask's TCP has no authentication, so every user of the machine can reach a port on 127.0.0.1 and run code there. Only
its owner can reach a socket in a directory of mode 0700, without keys, and faster. Dask reads an address as host and
port: DIRECTORY stands for the host, and NUMBER names a socket in it.
"""

from __future__ import annotations

import functools
import logging
import os
import secrets
import shutil
import socket
import tempfile
import weakref
from contextlib import suppress
from pathlib import Path
from typing import Any

import dask
from distributed.comm.addressing import parse_host_port
from distributed.comm.core import BaseListener, Comm, CommClosedError, Connector, FatalCommClosedError
from distributed.comm.registry import Backend, backends
from distributed.comm.tcp import MAX_BUFFER_SIZE, TCP
from distributed.comm.tcp import _close_comm as note_closed
from tornado.iostream import IOStream, StreamClosedError
from tornado.tcpserver import TCPServer

from dqlab.platforms import problem_with

logger = logging.getLogger("dqlab.sockets")

SCHEME = "unix"
PREFIX = f"{SCHEME}://"
UNDER_WAY = 4 << 20
"""Bytes of a connection's send buffer. The system's 200 kB wake both ends forty times for a settlement of some
megabytes, and each time they wait for a thread that computes."""
LONGEST = 100
"""Most bytes of a socket's path; systems allow 104 to 108."""
NUMBERS = 1 << 30


def register() -> None:
    """Register these addresses with Dask in this process."""
    # Plain Dask clients find them by dqlab's entry point.
    backends.setdefault(SCHEME, Sockets())


def make_directory() -> Path:
    """Make a directory for the sockets of a cluster that only this user can enter."""
    place = tempfile.gettempdir()
    if len(os.fsencode(place)) > LONGEST - 30 or ":" in place:  # too long, or with the colon before a number
        place = "/tmp"
    return Path(tempfile.mkdtemp(prefix="dqlab-", dir=place))


def remove_directory(directory: Path) -> None:
    """Remove a directory of `make_directory` with its contents."""
    shutil.rmtree(directory, ignore_errors=True)


def missing(address: str) -> str:
    """Return why an address of this scheme has no socket, "" if it has one or for other addresses."""
    if not address.startswith(PREFIX):
        return ""
    try:
        directory, number = parse_host_port(address.removeprefix(PREFIX))
    except ValueError:
        return "it has no socket number (unix://DIRECTORY:NUMBER)"
    if Path(_path(directory, number)).exists():
        return ""
    return problem_with(directory) or f"{directory} has no socket {number}: its scheduler has ended"


def _path(directory: str, number: int) -> str:
    return f"{directory}/{number}"


class _SocketComm(TCP):
    """A connection over such a socket."""

    # Repeats the constructor of `TCP`, which sets options that these sockets do not have.
    def __init__(self, stream: IOStream, local: str, peer: str, deserialize: bool = True) -> None:
        self._closed = False
        Comm.__init__(self, deserialize=deserialize)
        self._local_addr, self._peer_addr, self.stream = local, peer, stream
        self._finalizer = weakref.finalize(self, self._get_finalizer())  # type: ignore[no-untyped-call]
        self._finalizer.atexit = False
        self._extra: dict[str, Any] = {}
        stream.set_close_callback(functools.partial(note_closed, weakref.ref(self)))
        with suppress(OSError, AttributeError):  # it may be closed by now; the system lowers a size above its limit
            stream.socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, UNDER_WAY)


def _is_connected(stream: IOStream) -> bool:
    """Return whether a stream is connected."""
    # Tornado takes EAGAIN, which such a socket returns when its backlog is full, for a connection in progress.
    try:
        stream.socket.getpeername()
    except (OSError, AttributeError):  # not connected, or closed by now
        return False
    return True


class _Connector(Connector):
    async def connect(self, address: str, deserialize: bool = True, **_: Any) -> Comm:
        directory, number = parse_host_port(address)
        stream = IOStream(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM), max_buffer_size=MAX_BUFFER_SIZE)
        try:
            await stream.connect(_path(directory, number))
        except StreamClosedError as error:
            raise CommClosedError(f"in {self}: {error.real_error or error}") from error
        except BaseException:
            stream.close()
            raise
        if not _is_connected(stream):
            stream.close()
            raise CommClosedError(f"in {self}: too many connections to {PREFIX}{address} wait to be accepted")
        problem = problem_with(directory)  # after connecting: nobody can replace the socket any more
        if problem:
            stream.close()
            raise FatalCommClosedError(f"not connected to {PREFIX}{address}: {problem}")
        return _SocketComm(stream, PREFIX + directory, PREFIX + address, deserialize)


class _Listener(BaseListener):
    prefix = PREFIX

    def __init__(
        self, location: str, handler: Any, *, deserialize: bool = True, allow_offload: bool = True, **_: Any
    ) -> None:
        super().__init__()
        self.directory, self.number = parse_host_port(location, 0)
        self.comm_handler, self.deserialize, self.allow_offload = handler, deserialize, allow_offload
        self._server: TCPServer | None = None

    async def start(self) -> None:
        problem = problem_with(self.directory)
        if problem:
            raise OSError(f"cannot listen there: {problem}")
        listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            listening.settimeout(0)
            if not self.number:
                self.number = 1 + secrets.randbelow(NUMBERS)
                listening.bind(_path(self.directory, self.number))
            listening.listen(int(dask.config.get("distributed.comm.socket-backlog")))
        except BaseException:
            listening.close()
            raise
        self._server = TCPServer(max_buffer_size=int(MAX_BUFFER_SIZE))
        self._server.handle_stream = self._handle  # type: ignore[assignment, method-assign]
        self._server.add_socket(listening)

    def stop(self) -> None:
        server, self._server = self._server, None
        if server is not None:
            server.stop()
            with suppress(OSError):
                Path(_path(self.directory, self.number)).unlink()

    async def _handle(self, stream: IOStream, _: object) -> None:
        if self._server is None:  # it was stopped
            stream.close()
            return
        comm = _SocketComm(stream, self.listen_address, PREFIX + self.directory, self.deserialize)
        comm.allow_offload = self.allow_offload
        try:
            await self.on_connection(comm)
        except CommClosedError:
            logger.info("event=closed_before_handshake address=%s", self.listen_address)
            return
        await self.comm_handler(comm)

    @property
    def listen_address(self) -> str:
        return f"{PREFIX}{self.directory}:{self.number}"

    @property
    def contact_address(self) -> str:
        return self.listen_address


class Sockets(Backend):
    """Dask's backend for these addresses."""

    def get_connector(self) -> Connector:
        """Return a connector."""
        return _Connector()

    def get_listener(self, loc: str, handle_comm: Any, deserialize: bool, **given: Any) -> BaseListener:
        """Return a listener, on any free number for 0."""
        return _Listener(loc, handle_comm, deserialize=deserialize, **given)

    def get_address_host(self, loc: str) -> str:
        """Return the host on which Dask's HTTP servers listen."""
        return "127.0.0.1"

    def get_address_host_port(self, loc: str) -> tuple[str, int]:
        """Return directory and number."""
        return parse_host_port(loc)

    def resolve_address(self, loc: str) -> str:
        """Return the address unchanged."""
        return loc

    def get_local_address_for(self, loc: str) -> str:
        """Return the directory in which a listener can be reached from an address."""
        return parse_host_port(loc)[0]
