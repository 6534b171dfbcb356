"""HTTP servers for tests: each connection has a thread, on a free port of this machine."""

from __future__ import annotations

import threading
from collections.abc import Generator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

__all__ = ["Quiet", "ThreadedServer", "serve"]


class Quiet:
    """A base for handlers of connections that keep no log."""

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 (named there)
        """Say nothing."""


class ThreadedServer(ThreadingHTTPServer):
    """A server whose threads end with the process; clients may be killed or go away."""

    daemon_threads = True
    request_queue_size = 256

    def __init__(self, handler: type[BaseHTTPRequestHandler]) -> None:
        super().__init__(("127.0.0.1", 0), handler)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing."""


@contextmanager
def serve(server: ThreadingHTTPServer) -> Generator[str]:
    """Serve until the block ends; yield the address, without a slash at its end."""
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join(5)
