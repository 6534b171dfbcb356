from __future__ import annotations

from collections.abc import Generator

import pytest

from legation.api.handlers.pages import find_root
from legation_testing import Client

from ....callers import demo


@pytest.fixture(scope="module")
def client() -> Generator[Client]:
    platform = demo(None)
    platform.load_assets({"swagger-ui.css": b"css"})
    with Client(platform) as opened:
        yield opened


@pytest.mark.parametrize(
    ("target", "root"),
    [("/docs", "./"), ("/docs?a=/b", "./"), ("/docs/", "../"), ("/docs/a/b", "../../")],
)
def test_the_way_to_the_root_is_relative(target: str, root: str) -> None:
    assert find_root(target) == root


@pytest.mark.parametrize(
    "known", ["{etag}", "W/{etag}", '"other", {etag}', " {etag} ,", "*"], ids=repr
)
def test_what_a_client_has_is_not_sent_again(client: Client, known: str) -> None:
    target = "/docs/assets/swagger-ui.css"
    etag = client.get(target).header("etag") or ""

    answer = client.get(target, headers=[("if-none-match", known.format(etag=etag))])
    assert (answer.status, answer.body, answer.header("etag")) == (304, b"", etag)


def test_what_it_has_not_is_sent(client: Client) -> None:
    target = "/docs/assets/swagger-ui.css"

    assert client.get(target).body == b"css"
    assert client.get(target, headers=[("if-none-match", '"other"')]).body == b"css"
