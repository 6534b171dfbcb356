from __future__ import annotations

import functools
import inspect
import json
import math
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Annotated, Any, Final, cast

import pydantic
import pytest
from attrs import evolve
from attrs.exceptions import FrozenInstanceError

from legation import FromModel, Run
from legation.models.conversation import ToolSpec
from legation.tools import Tool, ToolFault, as_tool, read_arguments, tool

Field: Any = pydantic.Field


def add(a: int, b: int = 0) -> int:
    """Add numbers.

    Args:
        a: The first.
    """
    return a + b


class Desk:
    def book(self, name: str) -> str:
        """Book a table."""
        return name

    def __call__(self, name: str) -> str:
        return name


def test_a_function_becomes_a_tool_by_what_it_says() -> None:
    made = tool(add)

    assert made.name == "add"
    assert made.function is add
    assert isinstance(made.spec, ToolSpec)
    assert made.spec.description == "Add numbers."
    assert made.spec.parameters["properties"]["a"]["description"] == "The first."
    assert not made.requires_confirmation
    assert not made.external_execution
    assert made.timeout_seconds is None
    assert as_tool(made) is made
    assert as_tool(add) == made
    with pytest.raises(FrozenInstanceError):
        made.name = "b"  # type: ignore[misc]  # that is the case


def test_what_the_decorator_says_counts_more() -> None:
    @tool(name="plus", description="Sums.", requires_confirmation=True, timeout_seconds=2)
    def named(a: int) -> int:
        """Not told."""
        return a

    assert isinstance(named, Tool)
    assert named.name == named.spec.name == "plus"
    assert named.spec.description == "Sums."
    assert named.requires_confirmation
    assert named.timeout_seconds == 2

    @tool(external_execution=True)
    async def elsewhere() -> None: ...

    assert elsewhere.external_execution
    assert elsewhere.spec.description == ""


def test_a_method_is_a_tool_without_its_self() -> None:
    desk = Desk()
    made = tool(desk.book)

    assert read_arguments(made, '{"name": "Ada"}') == {"name": "Ada"}
    assert made.function(name="Ada") == "Ada"


def test_a_wrapped_function_is_what_it_wraps() -> None:
    @functools.wraps(add)
    def wrapper(*args: Any, **kwargs: Any) -> int:
        return add(*args, **kwargs)

    assert tool(wrapper).spec == tool(add).spec


def missing(a, b: int, c): ...  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN201


def no_json(a: complex, b: set[Any]) -> None: ...


def unknown(a: Nowhere) -> None: ...  # type: ignore[name-defined]  # noqa: F821


def variadic(*a: int, **b: int) -> None: ...


def positional(a: int, /) -> None: ...


def accented(ä: int) -> None: ...  # noqa: PLC2401


def generator() -> Iterator[int]:
    yield 1


async def async_generator() -> AsyncIterator[int]:
    yield 1


def object_key(a: dict[int, str]) -> None: ...


def described(a: int = Field(3, ge=1)) -> None: ...


def bounded(a: Annotated[str, Field(pattern="a+")]) -> None: ...


FAULTS: list[tuple[Callable[..., Any], str]] = [
    (missing, "tool 'missing': parameter 'a' is not annotated; parameter 'c' is not annotated"),
    (
        no_json,
        (
            "tool 'no_json': parameter 'a' contains complex, which has no form in JSON; "
            "parameter 'b' contains set[typing.Any]; the items of a set must be hashable"
        ),
    ),
    (described, "tool 'described': parameter 'a' has FieldInfo as its default: write Annotated["),
    (bounded, "tool 'bounded': parameter 'a' has pattern='a+' in its annotation, which is not"),
    (unknown, "tool 'unknown': its annotations have no meaning: name 'Nowhere' is not defined"),
    (
        variadic,
        (
            "tool 'variadic': parameter 'a' takes any number of arguments, which no schema can "
            "tell; parameter 'b' takes any number of arguments, which no schema can tell"
        ),
    ),
    (
        positional,
        "tool 'positional': parameter 'a' is positional-only; tools are called by keyword",
    ),
    (accented, "tool 'accented': parameter 'ä' has a name that no provider takes: "),
    (generator, "tool 'generator': it is a generator; a tool returns its result"),
    (async_generator, "tool 'async_generator': it is a generator; a tool returns its result"),
    (lambda: None, "tool '<lambda>': its name must be [A-Za-z0-9_-]{1,64}"),
    (Desk(), "tool 'Desk': it is no function"),
    (Desk, "tool 'Desk': it is no function"),
    (len, "tool 'len': it is no function"),
    (functools.partial(add, 1), "tool 'partial': it is no function"),
    (
        object_key,
        (
            "tool 'object_key': parameter 'a' contains dict[int, str]; "
            "the keys of an object are strings"
        ),
    ),
]


@pytest.mark.parametrize(("function", "sentence"), FAULTS, ids=range(len(FAULTS)))
def test_what_cannot_be_a_tool_is_refused_by_name(
    function: Callable[..., Any], sentence: str
) -> None:
    with pytest.raises(ToolFault) as caught:
        tool(function)

    assert str(caught.value).startswith(sentence)


@pytest.mark.parametrize("seconds", [0, -1, math.inf, math.nan])
def test_a_time_that_cannot_be_is_refused(seconds: float) -> None:
    with pytest.raises(ToolFault, match="tool 'add': timeout_seconds must be more than 0"):
        tool(timeout_seconds=seconds)(add)


def test_who_executes_it_elsewhere_is_who_confirms_it() -> None:
    with pytest.raises(ToolFault, match="tool 'add': what the client executes, the client conf"):
        tool(requires_confirmation=True, external_execution=True)(add)


# --- A second time -------------------------------------------------------------------------------


def charge(cents: int, idempotency_key: str = "") -> str:
    """Take money.

    Args:
        cents: How much.
        idempotency_key: Never told to a model.
    """
    return f"{cents} {idempotency_key}"


def annotated(idempotency_key: Annotated[str, "as the bank wants it"]) -> None: ...


def numbered(idempotency_key: int) -> None: ...


def optional(idempotency_key: str | None = None) -> None: ...


def bare(idempotency_key): ...  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN201


GIVEN = "parameter 'idempotency_key' is given by the platform"


def test_tool_is_never_called_again_unless_it_says_so() -> None:
    assert tool(add).again == "never"
    assert tool(again="safe")(add).again == "safe"
    assert tool(again="safe", requires_confirmation=True)(add).again == "safe"


@pytest.mark.parametrize("function", [charge, annotated])
def test_key_is_given_by_the_platform_and_no_model_sees_it(function: Callable[..., Any]) -> None:
    made = tool(again="key", requires_confirmation=True)(function)

    assert made.again == "key"
    assert "idempotency_key" not in str(made.spec)
    assert made.spec.parameters["additionalProperties"] is False


@pytest.mark.parametrize("key", ["", "r:1.1", None, "k" * (1 << 17)])
def test_key_that_a_model_gives_is_an_argument_that_nothing_has(key: str | None) -> None:
    made = tool(again="key")(charge)
    given = read_arguments(made, json.dumps({"cents": 5, "idempotency_key": key}))
    unknown = read_arguments(made, '{"cents": 5, "idempotent": "x"}')

    assert given == "The arguments do not fit: idempotency_key is an unknown field."
    assert unknown == "The arguments do not fit: idempotent is an unknown field."
    assert read_arguments(made, '{"cents": 5}') == {"cents": 5}


def test_key_of_a_megabyte_is_not_read_at_all() -> None:
    text = json.dumps({"cents": 5, "idempotency_key": "k" * (1 << 20)})

    assert read_arguments(tool(again="key")(charge), text) == (
        "The arguments are too long: at most 262144 characters are read."
    )


@pytest.mark.parametrize(
    ("function", "settings", "sentence"),
    [
        (add, {"again": "always"}, "again='always' is none of: never, safe, key"),
        (add, {"again": None}, "again=None is none of: never, safe, key"),
        (add, {"again": ["key"]}, "again=['key'] is none of: never, safe, key"),
        (add, {"again": True}, "again=True is none of: never, safe, key"),
        (
            add,
            {"again": "key"},
            'again="key" needs a parameter `idempotency_key: str`: add it to the function',
        ),
        (
            charge,
            {},
            f'{GIVEN}: write @tool(again="key")',
        ),
        (
            charge,
            {"again": "safe"},
            f'{GIVEN}: write @tool(again="key")',
        ),
        (
            add,
            {"again": "safe", "external_execution": True},
            "again='safe' is not allowed together with external_execution",
        ),
        (
            charge,
            {"again": "key", "external_execution": True},
            "again='key' is not allowed together with external_execution",
        ),
        (
            charge,
            {"external_execution": True},
            "the client executes it, and 'idempotency_key' is given to functions: rename it",
        ),
        (
            numbered,
            {"again": "key"},
            f"{GIVEN} as a text: annotate it with `str`",
        ),
        (
            optional,
            {"again": "key"},
            f"{GIVEN} as a text: annotate it with `str`",
        ),
        (cast(Any, bare), {"again": "key"}, "parameter 'idempotency_key' is not annotated"),
    ],
)
def test_what_does_not_go_together_is_refused_with_what_to_write(
    function: Callable[..., Any], settings: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(ToolFault) as caught:
        tool(**settings)(function)

    assert str(caught.value) == f"tool {function.__name__!r}: {sentence}"


# --- Called by the author ------------------------------------------------------------------------


def test_a_tool_is_called_as_its_function_is() -> None:
    made = tool(add)
    plus: Tool[[int, int], int] = tool(name="plus")(add)

    assert made(1, b=2) == plus(1, 2) == 3
    assert inspect.signature(made) == inspect.signature(add)
    assert (made.__name__, made.__doc__, made.__module__) == ("add", add.__doc__, __name__)
    assert inspect.unwrap(made) is add
    assert repr(made).startswith("Tool(name='add', function=")
    assert evolve(made, timeout_seconds=1.0)(1) == 1


# --- The run -------------------------------------------------------------------------------------


def orders(run: Run, page: int = 1) -> str:
    """Return orders.

    Args:
        run: Not told.
        page: Which.
    """
    return f"{run.user_id} {page}"


def support(user_id: Annotated[str, FromModel, "Whose orders."], ctx: Run[Any, Any]) -> str:
    """Return orders of somebody."""
    return f"{user_id} for {ctx.user_id}"


def test_the_run_is_no_argument_of_the_models() -> None:
    made = tool(orders)

    assert made.context is not None
    assert made.context.name == "run"
    assert list(made.spec.parameters["properties"]) == ["page"]
    assert read_arguments(made, '{"page": 2}') == {"page": 2}
    for text in ('{"run": {}}', '{"run": null}', '{"page": 1, "run": {"user_id": "eve"}}'):
        assert read_arguments(made, text) == ("The arguments do not fit: run is an unknown field.")
    assert made(Run(user_id="ada")) == "ada 1"


def test_a_reserved_name_may_be_the_models_on_purpose() -> None:
    made = tool(support)

    assert made.spec.parameters["properties"] == {
        "user_id": {"type": "string", "description": "Whose orders."}
    }
    assert read_arguments(made, '{"user_id": "bob"}') == {"user_id": "bob"}


def reserved(userId: str) -> None: ...  # noqa: N803 (as a stranger would write it)


def unannotated(session_id) -> None: ...  # type: ignore[no-untyped-def]  # noqa: ANN001


def among(run: Run | None) -> None: ...


def two_runs(run: Run, other: Run) -> None: ...


def many_runs(*runs: Run) -> None: ...


def first_run(run: Run, /) -> None: ...


CALLERS: Final[list[Any]] = [
    (reserved, "parameter 'userId' is the caller's, not the model's"),
    (unannotated, "parameter 'session_id' is the caller's, not the model's"),
    (among, "parameter 'run' is a `Run` among others"),
    (two_runs, "parameter 'other' is a second `Run`: one is enough"),
    (many_runs, "parameter 'runs' takes any number of arguments"),
    (first_run, "parameter 'run' is positional-only"),
]


@pytest.mark.parametrize(
    ("function", "sentence"),
    CALLERS,
)
def test_a_caller_is_no_argument(function: Any, sentence: str) -> None:
    with pytest.raises(ToolFault) as caught:
        tool(function)

    assert sentence in str(caught.value)


def test_what_the_client_executes_is_not_given_the_run() -> None:
    with pytest.raises(ToolFault, match="the `Run` 'run' is given to functions: remove it"):
        tool(external_execution=True)(orders)
