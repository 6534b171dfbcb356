"""Listening sockets, opened before anything else so that an error shows at once.

They belong to whoever opened them: a process that starts workers opens them, keeps them and hands
them on.  A worker that closes its copy takes nothing from the others.
"""

from __future__ import annotations

import errno
import os
import socket
import stat
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from .settings import DEFAULT

__all__ = [
    "ListenError",
    "UnixListener",
    "address_of",
    "close_listeners",
    "open_listeners",
    "open_slots",
    "open_unix_listener",
]

_REASONS: Final = {
    errno.EADDRINUSE: "it is already in use",
    errno.EACCES: "permission denied",
    errno.EPERM: "permission denied",
    errno.EADDRNOTAVAIL: "this machine has no such address",
    errno.ENOENT: "its folder does not exist",
    errno.EAFNOSUPPORT: "this machine does not support such addresses",
}


class ListenError(Exception):
    """An address at which nobody can listen; the message is one sentence for the operator."""


class UnixListener(socket.socket):
    """A socket at a path.  Closed by the process that made the path, it takes the path with it."""

    path: str | None = None
    owner: int = 0
    file: tuple[int, int] | None = None

    def own(self, path: str) -> None:
        """Take note of what this process has put at `path`."""
        self.path, self.owner, self.file = path, os.getpid(), _file_at(path)

    def close(self) -> None:
        """Close the socket, and remove its path if it is this process's, and no other's by now."""
        super().close()
        path, self.path = self.path, None
        if path is not None and self.owner == os.getpid() and _file_at(path) == self.file:
            Path(path).unlink(missing_ok=True)


def open_listeners(
    host: str, port: int, *, backlog: int = DEFAULT.backlog
) -> tuple[socket.socket, ...]:
    """Return sockets that listen on every address of `host`, on one port.

    Args:
        host: A name or an address of IPv4 or IPv6; empty for every address of the machine.
        port: 0 for a free one.
        backlog: How many connections the kernel queues.

    Raises:
        ListenError: The host is unknown, or an address cannot be had.
    """
    opened: list[socket.socket] = []
    try:
        for family, address in _resolve(host, port):
            # A free port found for the first address is taken for the others too.
            wanted = (address[0], port or (opened[0].getsockname()[1] if opened else 0))
            opened.append(_listen(family, (*wanted, *address[2:]), backlog))
    except BaseException:
        close_listeners(opened)
        raise
    return tuple(opened)


def open_slots(
    host: str, port: int, slots: int, *, backlog: int = DEFAULT.backlog
) -> tuple[tuple[socket.socket, ...], ...]:
    """Return what `open_listeners` does, once for each of several workers, on the same port.

    The kernel spreads connections evenly over sockets with SO_REUSEPORT, where one socket that
    all workers accept from favours whoever is quickest.  Closing such a socket resets what is
    queued on it: so the parent keeps each for as long as it lives, and hands it to the worker
    that takes the slot.  Only Linux spreads; elsewhere the workers share one socket.

    Raises:
        ListenError: As `open_listeners`; sharing the port is for these sockets only.
    """
    probes = open_listeners(host, port, backlog=backlog)
    if not hasattr(socket, "SO_REUSEPORT") or sys.platform != "linux":
        return (probes,) * slots
    # With SO_REUSEPORT two servers could have one port and each half of its clients.
    addresses = [(probe.family, probe.getsockname()) for probe in probes]
    close_listeners(probes)
    opened: list[tuple[socket.socket, ...]] = []
    try:
        for _ in range(slots):
            shared: list[socket.socket] = []
            opened.append(())
            for family, address in addresses:
                shared.append(_listen(family, address, backlog, share=True))
                opened[-1] = tuple(shared)
    except BaseException:
        for listeners in opened:
            close_listeners(listeners)
        raise
    return tuple(opened)


def open_unix_listener(
    path: str, *, mode: int = 0o600, backlog: int = DEFAULT.backlog
) -> socket.socket:
    """Return a socket that listens at `path`, taking the place of one nobody listens at.

    Args:
        path: In the file system.
        mode: Who may connect; by default the same user alone.
        backlog: How many connections the kernel queues.

    Raises:
        ListenError: Another server listens there, or it is not a socket, or may not be made.
    """
    _remove_stale(path)
    listener = UnixListener(socket.AF_UNIX, socket.SOCK_STREAM)
    _begin(listener, path, backlog, mode)
    listener.own(path)
    return listener


def close_listeners(listeners: Iterable[socket.socket]) -> None:
    """Close `listeners`; the path of a Unix socket goes with the one who made it."""
    for listener in listeners:
        listener.close()


def address_of(listener: socket.socket) -> str:
    """Return where `listener` listens, as it stands in a URL: `127.0.0.1:8000`, `unix:/run/x`."""
    name = listener.getsockname()
    if listener.family == socket.AF_UNIX:
        return f"unix:{name}"
    host = f"[{name[0]}]" if listener.family == socket.AF_INET6 else name[0]
    return f"{host}:{name[1]}"


def _resolve(host: str, port: int) -> list[tuple[socket.AddressFamily, tuple[str | int, ...]]]:
    try:
        found = socket.getaddrinfo(
            host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
    except (socket.gaierror, UnicodeError, OverflowError) as error:
        raise ListenError(f"Cannot listen on {host}:{port}: the host is unknown") from error
    # One host may be listed twice; IPv4 first, so that the address shown first is the plain one.
    unique: dict[tuple[socket.AddressFamily, tuple[str | int, ...]], None] = {}
    for family, _, _, _, address in found:
        parts = tuple(part for part in address if isinstance(part, (str, int)))
        unique[family, parts] = None
    return sorted(unique, key=lambda pair: pair[0] != socket.AF_INET)


def _listen(
    family: socket.AddressFamily,
    address: tuple[str | int, ...],
    backlog: int,
    *,
    share: bool = False,
) -> socket.socket:
    try:
        listener = socket.socket(family, socket.SOCK_STREAM)
    except OSError as error:
        raise _listen_error(address, error) from error
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    if share:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    if family == socket.AF_INET6:
        listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
    _begin(listener, address, backlog)
    return listener


def _begin(
    listener: socket.socket,
    address: tuple[str | int, ...] | str,
    backlog: int,
    mode: int | None = None,
) -> None:
    """Bind `listener` and listen, or close it.  Nobody connects to a path without its `mode`."""
    try:
        listener.bind(address)
        if isinstance(address, str) and mode is not None:
            Path(address).chmod(mode)
        listener.listen(backlog)
        listener.setblocking(False)
    except (OSError, OverflowError) as error:
        listener.close()
        raise _listen_error(address, error) from error


def _listen_error(address: tuple[str | int, ...] | str, error: Exception) -> ListenError:
    where = address if isinstance(address, str) else f"{address[0]}:{address[1]}"
    number = error.errno if isinstance(error, OSError) else None
    reason = _REASONS.get(number or 0, str(error))
    return ListenError(f"Cannot listen on {where}: {reason}")


def _file_at(path: str) -> tuple[int, int] | None:
    """Return what tells the file at `path` from another one there."""
    try:
        found = Path(path).stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino


def _remove_stale(path: str) -> None:
    try:
        is_socket = stat.S_ISSOCK(Path(path).stat().st_mode)
    except OSError:
        return  # nothing is there, or bind will say what is wrong
    if not is_socket:
        raise ListenError(f"Cannot listen on {path}: a file that is not a socket is there")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        try:
            probe.connect(path)
        except ConnectionRefusedError:
            Path(path).unlink(missing_ok=True)
        except OSError as error:
            raise _listen_error(path, error) from error
        else:
            raise ListenError(f"Cannot listen on {path}: it is already in use")
