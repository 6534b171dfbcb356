"""`Reader`: the fields a handler knows, and every fault at once."""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum

import pytest
from hypothesis import given
from hypothesis import strategies as st

from legation.http.bodies.json_text import JsonValue
from legation.http.bodies.reader import MAX_FAULTS, Reader, Upload
from legation.http.refusals import Fault

FILE = Upload("f", "text/plain", b"x")


def body(**fields: JsonValue) -> Reader:
    return Reader("body", {name: (value,) for name, value in fields.items()})


def messages(read: Reader) -> list[str]:
    return [f"{fault.path}: {fault.message}" for fault in read.faults()]


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
)


@given(st.lists(json_values, min_size=1, max_size=2))
def test_every_method_is_total_and_keeps_its_type(sent: list[JsonValue]) -> None:
    read = Reader("body", {"a": tuple(sent)})

    assert isinstance(read.text("a", required=True), str)
    assert isinstance(read.text("a"), str | None)
    assert isinstance(read.boolean("a"), bool | None)
    assert isinstance(read.integer("a"), int | None)
    assert read.choice("a", ("x", "y")) in ("x", "y", None)
    assert isinstance(read.json_object("a"), dict | None)
    assert isinstance(read.json_list("a"), list | None)
    assert isinstance(read.texts("a"), tuple)
    read.json("a")


def test_all_faults_come_at_once_in_the_order_of_reading() -> None:
    read = body(stream="maybe", limit="x", monitor="true", version="1", surplus="1")

    read.text("message", required=True)
    read.boolean("stream")
    read.integer("limit")
    read.ignore("monitor", "version")
    read.fault("limit", "is odd")

    assert read.faults() == (
        Fault("body.message", "is required"),
        Fault("body.stream", "must be true or false"),
        Fault("body.limit", "must be an integer"),
        Fault("body.limit", "is odd"),
        Fault("body.surplus", "unknown field"),
    )


def test_what_was_not_sent_is_none() -> None:
    read = body(null=None)

    assert read.text("a") is None
    assert read.text("null") is None
    assert read.line("a", max_length=1) is None
    assert read.boolean("a") is None
    assert read.boolean("null") is None
    assert read.integer("a") is None
    assert read.choice("a", ("x",)) is None
    assert read.json_object("null") is None
    assert read.json_list("a") is None
    assert read.json("a") is None
    assert read.texts("a") == ()
    assert read.uploads("a") == ()
    assert list(read.names) == ["null"]
    assert read.faults() == ()


@pytest.mark.parametrize("sent", [{}, {"a": None}])
def test_a_required_line_has_to_be_sent(sent: dict[str, JsonValue]) -> None:
    read = body(**sent)

    assert read.line("a", max_length=9, required=True) is None
    assert messages(read) == ["body.a: is required"]


def test_a_required_line_may_be_empty() -> None:
    read = body(a="", b=1)

    assert read.line("a", max_length=9, required=True) == ""
    assert read.line("b", max_length=9, required=True) is None
    assert messages(read) == ["body.b: must be a string"]


@pytest.mark.parametrize("sent", [{}, {"message": ""}, {"message": None}])
def test_a_required_text_that_is_empty_was_not_sent(sent: dict[str, JsonValue]) -> None:
    read = body(**sent)

    assert read.text("message", required=True) == ""
    assert messages(read) == ["body.message: is required"]


def test_texts_are_bounded() -> None:
    read = body(a="", b="abc", c=5)

    assert read.text("a") == ""
    assert read.text("a", or_none=True) is None
    assert read.text("b", max_length=3) == "abc"
    assert read.text("b", max_length=2) is None
    assert read.text("b", required=True, max_length=2) == ""
    assert read.text("c") is None
    assert messages(read) == [
        "body.b: must have at most 2 characters",
        "body.b: must have at most 2 characters",
        "body.c: must be a string",
    ]


TRUE = [True, 1, 1.0, "true", "TRUE", "1", "on", "y"]
FALSE = [False, 0, 0.0, "false", "False", "0", "off", "n"]


@pytest.mark.parametrize(
    ("sent", "expected"),
    [(word, True) for word in TRUE] + [(word, False) for word in FALSE],
    ids=[repr(word) for word in TRUE + FALSE],
)
def test_booleans_as_clients_write_them(sent: JsonValue, expected: bool) -> None:
    read = body(stream=sent)

    assert read.boolean("stream") is expected
    assert read.faults() == ()


@pytest.mark.parametrize("sent", ["", "maybe", 2, 2.0, 0.5, [], {}, " true"])
def test_what_is_no_boolean(sent: JsonValue) -> None:
    read = body(stream=sent)

    assert read.boolean("stream") is None
    assert messages(read) == ["body.stream: must be true or false"]


@pytest.mark.parametrize(
    ("sent", "expected"), [(5, 5), ("6", 6), ("-0", 0), ("9" * 18, 10**18 - 1)]
)
def test_integers_as_clients_write_them(sent: JsonValue, expected: int) -> None:
    assert body(limit=sent).integer("limit") == expected


def test_a_number_of_json_without_a_fraction_is_an_integer() -> None:
    assert body(limit=3.0).integer("limit") == 3
    read = body(limit=3.5)
    assert read.integer("limit") is None
    assert read.faults()


@pytest.mark.parametrize(
    "sent", ["", "5.0", 6.5, True, "+5", " 5", "٥", "1_0", "9" * 19, 10**18, []]
)
def test_what_is_no_integer(sent: JsonValue) -> None:
    read = body(limit=sent)

    assert read.integer("limit") is None
    assert messages(read) == ["body.limit: must be an integer"]


def test_integers_are_bounded_on_both_sides() -> None:
    read = Reader("query", {"limit": ("0",), "page": ("9",), "ok": ("1",)})

    assert read.integer("limit", minimum=1) is None
    assert read.integer("page", minimum=1, maximum=8) is None
    assert read.integer("ok", minimum=1, maximum=1) == 1
    assert messages(read) == ["query.limit: must be at least 1", "query.page: must be at most 8"]


class Order(StrEnum):
    ASC = "asc"
    DESC = "desc"


def test_a_choice_is_the_member_itself() -> None:
    read = body(order="asc", other="up", kind="b")

    assert read.choice("order", tuple(Order)) is Order.ASC
    assert read.choice("other", tuple(Order)) is None
    assert read.choice("kind", ("a", "b")) == "b"
    assert messages(read) == ["body.other: must be one of asc, desc"]


def test_json_comes_as_it_is_or_as_the_text_of_it() -> None:
    read = body(a={"x": 1}, b='{"x": 1}', c=[1], d="[1]", e="3", f=3)

    assert read.json_object("a") == read.json_object("b") == {"x": 1}
    assert read.json_list("c") == read.json_list("d") == [1]
    assert read.json("e") == read.json("f") == 3
    assert read.faults() == ()


def test_json_of_another_shape_is_a_fault() -> None:
    read = body(a="[]", b="{}", c="{", d="", e="null")

    assert read.json_object("a") is None
    assert read.json_list("b") is None
    assert read.json_object("c") is None
    assert read.json("d") is None
    assert read.json_object("e") is None
    assert messages(read) == [
        "body.a: must be a JSON object",
        "body.b: must be a JSON array",
        "body.c: must be JSON; it is not JSON at line 1, column 2",
        "body.d: must be JSON; it is not JSON at line 1, column 1",
    ]


def test_each_wrong_item_of_a_list_of_texts_is_named() -> None:
    read = body(session_ids=["a", 1, "b", None])

    assert read.texts("session_ids") == ("a", "b")
    assert messages(read) == [
        "body.session_ids[1]: must be a string",
        "body.session_ids[3]: must be a string",
    ]


READS: dict[str, Callable[[Reader], object]] = {
    "text": lambda read: read.text("a"),
    "boolean": lambda read: read.boolean("a"),
    "integer": lambda read: read.integer("a"),
    "choice": lambda read: read.choice("a", ("1",)),
    "json": lambda read: read.json_object("a"),
    "required": lambda read: read.text("a", required=True),
}


@pytest.mark.parametrize("read_one", READS.values(), ids=READS)
def test_a_repeated_field_is_a_fault(read_one: Callable[[Reader], object]) -> None:
    read = Reader("query", {"a": ("1", "1")})

    read_one(read)

    assert messages(read) == ["query.a: must be sent once"]


def test_uploads_are_taken_apart_from_fields_of_the_same_name() -> None:
    read = Reader("body", {"files": ("[]",)}, {"files": (FILE,), "photo": (FILE,)})

    assert read.uploads("files") == (FILE,)
    assert read.json_list("files") == []
    assert messages(read) == ["body.photo: unknown field"]


def test_the_answer_to_many_unknown_fields_is_short() -> None:
    read = body(**{f"{n:03}" + "x" * 200: n for n in range(1000)})

    faults = read.faults()

    assert len(faults) == MAX_FAULTS
    assert max(len(fault.path) for fault in faults) == len("body.") + 80


def test_no_more_faults_are_kept_than_are_told() -> None:
    read = body(numbers=list(range(1000)), more=1)

    assert read.texts("numbers") == ()
    faults = read.faults()

    assert [fault.path for fault in faults] == [f"body.numbers[{n}]" for n in range(MAX_FAULTS)]
    assert len(read._faults) == MAX_FAULTS


@pytest.mark.parametrize("sent", ["a\n", "\0", "\x1f", "a\x7fb"])
def test_a_line_has_no_control_characters(sent: str) -> None:
    read = body(a=sent, b="one line")

    assert (read.line("a", max_length=9), read.line("b", max_length=9)) == (None, "one line")
    assert messages(read) == ["body.a: must not have control characters"]


# --- JSON texts in fields -----------------------------------------------------------------------


def test_the_json_texts_of_a_form_share_one_budget_of_values() -> None:
    text = "[" + "1," * 29_999 + "1]"
    read = body(first=text, second=text, third="[1, 2]")

    assert len(read.json_list("first") or ()) == 30_000
    assert read.json_list("second") is None
    assert read.json_list("third") == [1, 2]
    assert messages(read) == ["body.second: must be JSON; it is of more than 20000 values"]


def test_a_json_text_in_a_field_is_as_long_as_a_field_may_be() -> None:
    read = body(first='"' + "x" * (1 << 20) + '"', second='"' + "x" * 1_000_000 + '"')

    assert read.json("first") is None
    assert read.json("second") == "x" * 1_000_000
    assert messages(read) == ["body.first: must be JSON; it is longer than 1048576 bytes"]


def test_a_json_text_in_a_field_is_not_parsed_where_it_is_too_deep() -> None:
    read = body(first="[" * 500_000)

    assert read.json("first") is None
    assert messages(read) == ["body.first: must be JSON; it is nested deeper than 64 levels"]


def test_faults_of_a_long_list_end_where_nobody_sees_more() -> None:
    numbers: list[JsonValue] = [1] * 50_000
    read = body(names=numbers)

    assert read.texts("names") == ()
    assert len(read.faults()) == MAX_FAULTS


def test_a_field_of_a_query_may_be_repeated() -> None:
    read = Reader("query", {"a": ("one", "two"), "b": ("x", ""), "c": ("1", "2", "3", "4")})

    assert read.several_texts("a", most=3, max_length=3) == ("one", "two")
    assert read.several_texts("none", most=3, max_length=3) == ()
    assert messages(Reader("query", {})) == []
    read.several_texts("b", most=3, max_length=3)
    assert read.several_texts("c", most=3, max_length=3) == ()
    read.several_texts("a", most=3, max_length=2)
    assert messages(read) == [
        "query.b: must not be empty",
        "query.c: must be sent at most 3 times",
        "query.a: must have at most 2 characters",
    ]
