from __future__ import annotations

from typing import Any

import pytest

from legation.access.scopes import AnyToken, Public, Scoped, Signed
from legation.api.handlers import system
from legation.api.route import Route


def made(**more: Any) -> Route:
    told: dict[str, Any] = {
        "method": "GET",
        "template": "/x",
        "need": AnyToken(),
        "handler": system.me,
        "operation": "get_x",
        "tag": "X",
    }
    return Route(**{**told, **more})


def test_there_is_no_route_without_a_need() -> None:
    with pytest.raises(TypeError):
        Route("GET", "/x", handler=system.me, operation="get_x", tag="X")  # type: ignore[call-arg]
    for need in (None, "agents:read", (), Scoped):
        with pytest.raises(TypeError):
            made(need=need)


def test_nor_one_without_a_handler_or_a_name() -> None:
    with pytest.raises(TypeError):
        made(handler=None)
    with pytest.raises(ValueError, match="operation"):
        made(operation="")


@pytest.mark.parametrize("need", [Public(), Signed(), AnyToken(), Scoped("x", ("read",))])
def test_only_a_scope_on_an_id_has_a_parameter(need: Any) -> None:
    assert made(need=need).parameter is None
    assert made(need=Scoped("x", ("read",), parameter="x_id")).parameter == "x_id"


@pytest.mark.parametrize(
    ("more", "takes_key"),
    [
        ({"method": "GET"}, False),
        ({"method": "POST"}, True),
        ({"method": "POST", "need": Signed()}, False),
        ({"method": "POST", "repeatable": True}, False),
        ({"method": "PATCH"}, False),
    ],
    ids=["reads", "changes", "is signed", "repeatable", "is idempotent"],
)
def test_what_is_posted_takes_a_key(more: dict[str, Any], *, takes_key: bool) -> None:
    assert made(**more).takes_key is takes_key
