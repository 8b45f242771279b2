"""A limit for a whole exchange over HTTP, where the standard library has one for each read alone.

A server that sends a byte now and then, or "100 Continue" without end, would hold a program for as long as it likes.
"""

from __future__ import annotations

import http.client
import socket
import threading
import urllib.request
from contextlib import suppress
from typing import Any


class Deadline:
    """Breaks the connections made under it when its time is over.

    Args:
        seconds: from ``__enter__`` on.
    """

    def __init__(self, seconds: float) -> None:
        self.is_over = False
        self._sockets: list[socket.socket] = []
        self._timer = threading.Timer(seconds, self._end)
        self._timer.daemon = True

    def __enter__(self) -> Deadline:
        self._timer.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._timer.cancel()

    def watch(self, connection: socket.socket) -> None:
        """Break this one too; at once if the time is over."""
        self._sockets.append(connection)
        if self.is_over:
            self._break()

    def handler(self) -> urllib.request.BaseHandler:
        """Of urllib, for connections that are watched."""
        return _WatchedHandler(self)

    def _end(self) -> None:
        self.is_over = True
        self._break()

    def _break(self) -> None:
        for connection in self._sockets:
            with suppress(OSError):  # closed already
                # On a socket of TLS too: whoever reads is woken, and closes it. The other side is not waited for.
                socket.socket.shutdown(connection, socket.SHUT_RDWR)


class _WatchedHandler(urllib.request.HTTPHandler, urllib.request.HTTPSHandler):
    """urllib's own two, of connections that a deadline knows."""

    def __init__(self, deadline: Deadline) -> None:
        super().__init__()
        self._deadline = deadline

    def http_open(self, req: urllib.request.Request) -> http.client.HTTPResponse:
        return self.do_open(_watched(http.client.HTTPConnection, self._deadline), req)

    def https_open(self, req: urllib.request.Request) -> http.client.HTTPResponse:
        return self.do_open(_watched(http.client.HTTPSConnection, self._deadline), req)


def _watched(kind: Any, deadline: Deadline) -> Any:
    """A class of connections whose sockets the deadline knows."""

    class Watched(kind):  # type: ignore[misc]
        def connect(self) -> None:
            super().connect()
            deadline.watch(self.sock)

    return Watched
