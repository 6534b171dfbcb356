"""No parser of what others send costs more than in proportion to its length."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import product
from typing import Any, Final

import pytest

from legation.access.jose import Malformed, decode_header, decode_object
from legation.channels.deliveries import read_object, rest_of_new
from legation.channels.markup import compose_marks, compose_spans
from legation.channels.replies import split_text
from legation.http.authority import origin_form, well_formed_host
from legation.http.bodies.data_urls import encode_inline
from legation.http.bodies.forms import parse_form, parse_query
from legation.http.bodies.json_text import parse_json
from legation.http.sse import Decoder
from legation.models.conversation import Message, Prompt
from legation.models.echo import Echo
from legation.observability.tracing import read_trace
from legation.tools.docstrings import explain
from legation.tools.structured import check_output
from legation_server import parse_networks
from legation_testing import play

from ..patterns import Measured, growth, table

LENGTHS: Final = (64 << 10, 128 << 10)
MULTIPART: Final = b"multipart/form-data; boundary=b"
HEAD: Final = b'--b\r\nContent-Disposition: form-data; name="a"\r\n\r\n'
PROXIES: Final = parse_networks(["10.0.0.0/8"], "forwarded")


class Ear:
    def hear(self, piece: str) -> None:
        pass

    think = hear

    def settle(self) -> Any:
        yield from ()


def refused(parse: Callable[[bytes], object], text: str) -> None:
    try:
        parse(text.encode())
    except Malformed:
        pass


def fed(text: str) -> None:
    decoder, data = Decoder(), text.encode()
    for at in range(0, len(data), 1024):
        decoder.feed(data[at : at + 1024])


def forwarded(text: str) -> None:
    PROXIES.client("10.0.0.1", ((b"forwarded", text.encode()),))


def multipart(text: str) -> None:
    parse_form(MULTIPART, HEAD + text.encode() + b"\r\n--b--")
    parse_form(MULTIPART, text.encode())


def echoed(text: str) -> None:
    ear: Any = Ear()
    play(Echo().respond(Prompt((Message("user", text),)), ear), [])


PARSERS: Final[dict[str, Callable[[str], object]]] = {
    "JSON": lambda text: parse_json(text.encode()),
    "a form": lambda text: parse_form(b"application/x-www-form-urlencoded", text.encode()),
    "a multipart form": multipart,
    "a content type": lambda text: parse_form(text.encode(), b""),
    "a query": parse_query,
    "a data URL": lambda text: encode_inline(text, "image"),
    "the header of a token": partial(refused, decode_header),
    "the claims of a token": partial(refused, decode_object),
    "an authority": lambda text: well_formed_host(text.encode()),
    "a target": lambda text: origin_form(text.encode()),
    "a trace": lambda text: read_trace([text.encode()], [text.encode()]),
    "Forwarded": forwarded,
    "server-sent events": fed,
    "a delivery": lambda text: read_object(text.encode()),
    "a command": rest_of_new,
    "markdown with marks": lambda text: list(compose_marks(text, 4096)),
    "markdown with spans": lambda text: list(compose_spans(text, 4096)),
    "a reply in parts": lambda text: list(split_text(text, 4096)),
    "a docstring": explain,
    "an answer in JSON": lambda text: check_output({"type": "object"}, text),
    "an echo": echoed,
}
PUMPS: Final = (
    *(
        " ",
        "a",
        '"',
        "\\",
        "(",
        "[",
        "{",
        "%",
        "\n",
        "\r",
        "&",
        "=",
        ";",
        ",",
        ":",
        "*",
        "~",
        "`",
        "#",
    ),
    *(
        '"\\',
        '\\"',
        '{"a":',
        "[]",
        "[{",
        "a=b&",
        "%41",
        "for=a,",
        'for="',
        "a,",
        "a:1,",
        "# ",
        "```\n",
    ),
    *(
        "data: a\n",
        "data:\n\n",
        "--b\r\n",
        "\r\n--b",
        "<a|",
        "[a](http://b",
        "**a ",
        "~~a ",
        "\\ud800",
    ),
    *(":param a: b\n", "a.\n\n", "http://a", "/new ", "1", "-", "a;b=c"),
)
BEFORE: Final = ("", '{"a":' + "[" * 17, "data:image/png;base64,", '"')


@pytest.mark.parametrize("name", PARSERS)
def test_no_parser_grows(name: str) -> None:
    rows: list[tuple[str, str, Measured]] = []
    for before, pump in product(BEFORE, PUMPS):

        def call(length: int, before: str = before, pump: str = pump) -> Callable[[], object]:
            return partial(PARSERS[name], before + pump * (length // len(pump)))

        rows.append((name, repr(before + pump), growth(call, LENGTHS)))

    assert not [row for row in rows if row[2].grows], table(row for row in rows if row[2].grows)


def test_a_parser_that_grows_is_found() -> None:
    def planted(text: str) -> None:
        for at in range(len(text)):
            text[at:].strip()

    def call(length: int) -> Callable[[], object]:
        return partial(planted, " " * (length // 16))

    assert growth(call, LENGTHS).grows
