"""`parse_form` and `parse_query`: whatever is sent becomes a form or one refusal."""

from __future__ import annotations

import json
import re
from urllib.parse import quote_plus, unquote_to_bytes, urlencode

import httpx2
import pytest
from hypothesis import given
from hypothesis import strategies as st

from legation.http.bodies.forms import Form, FormLimits, is_json, parse_form, parse_query
from legation.http.bodies.reader import Upload
from legation.http.refusals import (
    BadRequest,
    Fault,
    Invalid,
    Refusal,
    TooLarge,
    UnsupportedMediaType,
)

URLENCODED = b"application/x-www-form-urlencoded"
TYPE = b"multipart/form-data; boundary=b"

texts = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=30)
# Browsers write CR and LF in a name as %0D and %0A; a backslash is read in two ways.
part_names = st.text(
    st.characters(categories=["L", "N", "Zs"], include_characters="_-.[];="),
    min_size=1,
    max_size=20,
)


def part(disposition: str, content: bytes = b"x", *more: str) -> bytes:
    head = "\r\n".join([f"Content-Disposition: {disposition}", *more])
    return b"--b\r\n" + head.encode() + b"\r\n\r\n" + content + b"\r\n"


def multipart(*parts: bytes) -> bytes:
    return b"".join(parts) + b"--b--\r\n"


# --- totality ----------------------------------------------------------------------------------

content_types = st.sampled_from(
    [
        None,
        URLENCODED,
        b"application/json",
        TYPE,
        b'multipart/form-data; boundary="b"',
        b"multipart/form-data",
        b"text/plain; charset=latin-1",
    ]
)
scraps = st.lists(
    st.sampled_from(
        [
            b"--b",
            b"--b--",
            b"\r\n",
            b"\n",
            b"Content-Disposition: form-data; name=",
            b'"a"',
            b'; filename="\\"',
            b"Content-Type: text/plain; charset=x",
            b"Content-Length: 1",
            b": ",
            b"%",
            b"%41",
            b"&",
            b"=",
            b"+",
            b'{"a":[1]}',
            b"\0",
            b"\xff",
            b"x",
        ]
    ),
    max_size=24,
).map(b"".join)


@given(content_types | st.binary(max_size=40), st.binary() | scraps)
def test_any_bytes_of_any_type_are_a_form_or_a_refusal(
    content_type: bytes | None, body: bytes
) -> None:
    parsed = parse_form(content_type, body)

    assert isinstance(parsed, Form | BadRequest | Invalid | TooLarge | UnsupportedMediaType)


@given(st.text() | scraps.map(lambda scrap: scrap.decode("latin-1")))
def test_any_query_is_fields_or_a_fault(query: str) -> None:
    parsed = parse_query(query)

    assert isinstance(parsed, dict | Fault)


# --- round trips with encoders of others -------------------------------------------------------


@given(st.lists(st.tuples(texts.filter(bool), texts), max_size=12))
def test_urlencoded_fields_come_back_in_order(pairs: list[tuple[str, str]]) -> None:
    expected: dict[str, tuple[str, ...]] = {}
    for name, value in pairs:
        expected[name] = (*expected.get(name, ()), value)

    assert parse_form(URLENCODED, urlencode(pairs).encode()) == Form(expected)
    assert parse_query(urlencode(pairs, quote_via=quote_plus)) == expected


@given(
    st.dictionaries(part_names, st.lists(texts, min_size=1, max_size=3), max_size=5),
    st.lists(st.tuples(part_names, part_names, st.binary(max_size=200)), min_size=1, max_size=4),
)
def test_multipart_of_an_http_client_comes_back(
    fields: dict[str, list[str]], files: list[tuple[str, str, bytes]]
) -> None:
    request = httpx2.Request(
        "POST",
        "http://legation/",
        data=dict(fields),
        files=[(name, (filename, data, "image/png")) for name, filename, data in files],
    )
    uploads: dict[str, tuple[Upload, ...]] = {}
    for name, filename, data in files:
        uploads[name] = (*uploads.get(name, ()), Upload(filename, "image/png", data))

    parsed = parse_form(request.headers["content-type"].encode(), request.read())

    assert parsed == Form({name: tuple(sent) for name, sent in fields.items()}, uploads)


# --- which body is read how --------------------------------------------------------------------


def test_no_body_and_no_type_is_a_form_without_fields() -> None:
    assert parse_form(None, b"") == Form()


OTHER_TYPE = (
    "The body has to be multipart/form-data, application/x-www-form-urlencoded or application/json"
)


@pytest.mark.parametrize(
    ("content_type", "detail"),
    [
        (None, "The body has no Content-Type"),
        (b"text/plain", OTHER_TYPE),
        (b"\xff", OTHER_TYPE),
        (b"application/json; charset=utf-16", "The charset of the body has to be utf-8"),
    ],
)
def test_another_type_is_415(content_type: bytes | None, detail: str) -> None:
    assert parse_form(content_type, b"{}") == UnsupportedMediaType(detail)


@pytest.mark.parametrize("content_type", [b"application/json", b"Application/JSON; charset=UTF-8"])
def test_members_of_a_json_object_are_taken_as_they_are(content_type: bytes) -> None:
    body = b'{"message":"hi","stream":false,"limit":3,"state":{"a":[1]},"none":null}'

    assert parse_form(content_type, body) == Form(
        {
            "message": ("hi",),
            "stream": (False,),
            "limit": (3,),
            "state": ({"a": [1]},),
            "none": (None,),
        }
    )


def test_json_that_does_not_parse_is_400() -> None:
    assert parse_form(b"application/json", b"{") == BadRequest(
        "The body has to be JSON; it is not JSON at line 1, column 2"
    )


def test_json_that_is_no_object_is_422() -> None:
    assert parse_form(b"application/json", b"[]") == Invalid(
        (Fault("body", "must be a JSON object"),)
    )


# --- urlencoded --------------------------------------------------------------------------------


def test_urlencoded_as_a_command_line_sends_it() -> None:
    body = "message=hé+llo%21&&session_id=&flag&message=2".encode()

    assert parse_form(URLENCODED, body) == Form(
        {"message": ("hé llo!", "2"), "session_id": ("",), "flag": ("",)}
    )


@pytest.mark.parametrize(
    ("body", "detail"),
    [
        (b"a=%4", "A % is not followed by two hexadecimal digits"),
        (b"a%zz=1", "A % is not followed by two hexadecimal digits"),
        (b"a=%ff", "A field is not UTF-8"),
        (b"%ff=a", "A field is not UTF-8"),
        (b"a=%00", "A field has U+0000 in it"),
        (b"=a", "A field's name has 1 to 256 characters"),
        (b"n" * 257, "A field's name has 1 to 256 characters"),
        (b"a&" * 256, "There are more than 256 fields"),
        (b"&" * 257 + b"a=1", "There are more than 256 fields"),
    ],
)
def test_urlencoded_is_not_repaired(body: bytes, detail: str) -> None:
    assert parse_form(URLENCODED, body) == BadRequest(detail)
    assert parse_query(body.decode()) == Fault("query", detail)


def test_half_a_surrogate_pair_in_a_query_is_a_fault() -> None:
    assert parse_query("a=\ud800") == Fault("query", "A field is not UTF-8")


# --- multipart ---------------------------------------------------------------------------------


def test_multipart_as_a_browser_sends_it() -> None:
    body = multipart(
        part('form-data; name="message"', b"hi\r\n--there"),
        part('form-data; name="files"; filename="a %22b%22.txt"', b"", "Content-Type: text/plain"),
        part('form-data; name="files"; filename="c"', b"\0\xff"),
        part('form-data; name="images"; filename=""', b"", "Content-Type: image/png"),
        part('form-data; name="message"', b""),
    )

    assert parse_form(TYPE, body) == Form(
        {"message": ("hi\r\n--there", "")},
        {
            "files": (
                Upload('a "b".txt', "text/plain", b""),
                Upload("c", "application/octet-stream", b"\0\xff"),
            )
        },
    )


def test_a_file_without_a_name_but_with_content_is_an_upload() -> None:
    body = multipart(part('form-data; name="files"; filename=""', b"x"))

    assert parse_form(TYPE, body) == Form(
        {}, {"files": (Upload("", "application/octet-stream", b"x"),)}
    )


NO_PARSE = "The multipart body does not parse: "
TRUNCATED = NO_PARSE + "Unexpected end of multipart stream (parser closed)"
OVER = "The multipart body is over a limit: "
BAD_NAME = "A field's name has 1 to 256 characters"
NAMELESS = "Invalid Content-Disposition segment header: Missing name option"


@pytest.mark.parametrize(
    ("body", "detail"),
    [
        (b"", TRUNCATED),
        (part('form-data; name="a"'), TRUNCATED),
        (multipart(part('form-data; name="a"'))[:-6], TRUNCATED),
        (multipart(part("form-data")), NO_PARSE + NAMELESS),
        (multipart(part('form-data; name=""')), BAD_NAME),
        (multipart(part(f'form-data; name="{"n" * 257}"')), BAD_NAME),
        (
            multipart(part(f'form-data; name="{"n" * 5000}"')),
            OVER + "Maximum segment header length exceeded",
        ),
        (
            multipart(part('form-data; name="a"') * 257),
            OVER + "Maximum segment count exceeded",
        ),
        (multipart(part('form-data; name="a"', b"\xff")), "A field is not UTF-8"),
        (multipart(part('form-data; name="a"', b"\0")), "A field has U+0000 in it"),
        (multipart(part('form-data; name="a"; filename="\0"')), "A file's name has U+0000 in it"),
    ],
)
def test_what_multipart_is_refused_for(body: bytes, detail: str) -> None:
    assert parse_form(TYPE, body) == BadRequest(detail)


@pytest.mark.parametrize(
    "content_type",
    [
        b"multipart/form-data",
        b"multipart/form-data; boundary=",
        b'multipart/form-data; boundary="b "',
        b'multipart/form-data; boundary="%b"' % (b"b" * 71),
        b'multipart/form-data; boundary="b\n"',
    ],
)
def test_a_boundary_outside_the_grammar_is_400(content_type: bytes) -> None:
    body = multipart(part('form-data; name="a"'))

    assert parse_form(content_type, body) == BadRequest(
        "The Content-Type has no boundary (RFC 2046 section 5.1.1)"
    )


# --- limits ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("content_type", "body"),
    [(URLENCODED, b"a=12345"), (TYPE, multipart(part('form-data; name="a"', b"12345")))],
)
def test_a_field_has_a_size_of_its_own(content_type: bytes, body: bytes) -> None:
    assert parse_form(content_type, body, FormLimits(field_size=5)) == Form({"a": ("12345",)})
    refused = parse_form(content_type, body, FormLimits(field_size=4))

    assert isinstance(refused, Refusal)
    assert (refused.status, refused.detail) == (413, "A field is longer than 4 bytes")


def test_an_upload_may_be_longer_than_a_field() -> None:
    body = multipart(part('form-data; name="a"; filename="f"', b"12345"))

    assert isinstance(parse_form(TYPE, body, FormLimits(field_size=4)), Form)


def test_a_form_gives_its_reader() -> None:
    read = Form({"a": ("1",)}).reader()

    assert read.integer("a") == 1
    assert read.integer("b", minimum=0) is None
    assert read.faults() == ()


# --- what is counted before it is parsed --------------------------------------------------------

HALF_ESCAPE = re.compile(rb"%(?![0-9A-Fa-f]{2})")


@given(st.binary() | st.text("%4=aG\r\n+_ ~").map(str.encode))
def test_escapes_are_read_as_the_standard_library_reads_them(value: bytes) -> None:
    sent = b"a=" + value.replace(b"&", b"")
    parsed = parse_form(b"application/x-www-form-urlencoded", sent)

    read = unquote_to_bytes(sent[2:].replace(b"+", b" "))
    broken = HALF_ESCAPE.search(sent) is not None
    if isinstance(parsed, Form):
        assert not broken
        assert parsed.fields["a"] == (read.decode(),)
    else:
        assert broken or b"\0" in read or read.decode("utf-8", "replace").encode() != read


def test_an_object_has_no_more_members_than_a_form_has_fields() -> None:
    members = {f"m{number}": 1 for number in range(257)}
    parsed = parse_form(b"application/json", json.dumps(members).encode())

    assert parsed == BadRequest("There are more than 256 fields")


@pytest.mark.parametrize(
    ("content_type", "answer"),
    [
        (None, False),
        (b"application/json", True),
        (b"Application/JSON ; charset=utf-8", True),
        (b"multipart/form-data; boundary=application/json", False),
        (b"application/json-seq", False),
    ],
)
def test_json_is_known_by_its_media_type(content_type: bytes | None, *, answer: bool) -> None:
    assert is_json(content_type) is answer
