from __future__ import annotations

import os
import socket
import stat
from pathlib import Path

import pytest

from legation_server import (
    ListenError,
    address_of,
    close_listeners,
    open_listeners,
    open_unix_listener,
)


def test_a_free_port_is_found_and_named() -> None:
    (listener,) = open_listeners("127.0.0.1", 0)
    with listener:
        port = listener.getsockname()[1]

        assert address_of(listener) == f"127.0.0.1:{port}"
        assert not listener.getblocking()
        with socket.create_connection(("127.0.0.1", port), timeout=1):
            pass


def test_every_address_of_a_name_has_the_same_port() -> None:
    listeners = open_listeners("localhost", 0)
    try:
        assert len({listener.getsockname()[1] for listener in listeners}) == 1
        assert len({address_of(listener) for listener in listeners}) == len(listeners)
    finally:
        close_listeners(listeners)


@pytest.mark.skipif(not socket.has_ipv6, reason="no IPv6")
def test_an_ipv6_address_stands_in_brackets() -> None:
    try:
        (listener,) = open_listeners("::1", 0)
    except ListenError:
        pytest.skip("this machine has no IPv6 loopback")
    with listener:
        assert address_of(listener) == f"[::1]:{listener.getsockname()[1]}"


def test_a_busy_port_is_said_in_one_sentence() -> None:
    (first,) = open_listeners("127.0.0.1", 0)
    with first:
        port = first.getsockname()[1]
        with pytest.raises(ListenError) as raised:
            open_listeners("127.0.0.1", port)

    assert str(raised.value) == f"Cannot listen on 127.0.0.1:{port}: it is already in use"


@pytest.mark.parametrize(
    ("host", "port", "sentence"),
    [
        ("no.host.invalid", 80, "Cannot listen on no.host.invalid:80: the host is unknown"),
        ("a" * 70, 80, f"Cannot listen on {'a' * 70}:80: the host is unknown"),
        ("192.0.2.1", 0, "Cannot listen on 192.0.2.1:0: this machine has no such address"),
        ("127.0.0.1", 70000, "Cannot listen on 127.0.0.1:70000: bind(): port must be 0-65535."),
    ],
)
def test_what_is_wrong_with_an_address_is_said_in_one_sentence(
    host: str, port: int, sentence: str
) -> None:
    with pytest.raises(ListenError) as raised:
        open_listeners(host, port)

    assert str(raised.value) == sentence


@pytest.mark.skipif(os.geteuid() == 0, reason="root may listen anywhere")
def test_a_port_of_the_system_needs_permission() -> None:
    with pytest.raises(ListenError, match="permission denied"):
        open_listeners("127.0.0.1", 1)


def test_a_unix_socket_is_for_its_user_and_goes_with_its_listener(tmp_path: Path) -> None:
    path = tmp_path / "s"
    listener = open_unix_listener(str(path))

    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert address_of(listener) == f"unix:{path}"
    close_listeners([listener])
    assert not path.exists()


def test_a_unix_socket_that_nobody_listens_at_is_replaced(tmp_path: Path) -> None:
    path = str(tmp_path / "s")
    open_unix_listener(path).close()

    with open_unix_listener(path), socket.socket(socket.AF_UNIX) as client:
        client.connect(path)


def test_a_unix_socket_that_took_the_path_stays_when_the_former_one_goes(tmp_path: Path) -> None:
    path = tmp_path / "s"
    former = open_unix_listener(str(path))
    path.unlink()

    with open_unix_listener(str(path)), socket.socket(socket.AF_UNIX) as client:
        former.close()
        client.connect(str(path))
    assert not path.exists()


def test_a_unix_socket_in_use_is_left_alone(tmp_path: Path) -> None:
    path = str(tmp_path / "s")
    with open_unix_listener(path), socket.socket(socket.AF_UNIX) as client:
        with pytest.raises(ListenError) as raised:
            open_unix_listener(path)
        client.connect(path)

    assert str(raised.value) == f"Cannot listen on {path}: it is already in use"


def test_a_file_is_not_taken_for_a_socket(tmp_path: Path) -> None:
    path = tmp_path / "s"
    path.write_text("precious")

    with pytest.raises(ListenError, match="not a socket"):
        open_unix_listener(str(path))
    assert path.read_text() == "precious"


def test_a_folder_that_is_not_there_is_named(tmp_path: Path) -> None:
    path = str(tmp_path / "no" / "s")

    with pytest.raises(ListenError) as raised:
        open_unix_listener(path)
    assert str(raised.value) == f"Cannot listen on {path}: its folder does not exist"
