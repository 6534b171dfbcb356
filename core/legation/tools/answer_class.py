"""A class as the shape of an agent's answers.

The model is given the schema of the class; its answer is read by the shape that the schema was made
of, as the arguments of a tool are.  The answer stays JSON: `read_answer` makes an instance of it
for whoever has the class, such as the author's tests.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any, Generic, TypeVar, cast

from attrs import field

from ..http.bodies.json_text import JsonValue
from ..values import frozen
from .docstrings import explain
from .schema import schema_of
from .shape_reader import Problems, read
from .shapes import Shape, Unfit, shape_of

__all__ = ["AnswerClass", "AnswerMismatch", "as_answer_class", "read_answer"]

T = TypeVar("T")


class AnswerMismatch(ValueError):
    """An answer is no instance of the class; `problems` are all places with what is wrong there."""

    def __init__(self, problems: Problems) -> None:
        parts = [f"{where} {what}" for where, what in problems]
        super().__init__("; ".join(parts))
        self.problems = tuple(problems)


@frozen(eq=False)
class AnswerClass(Generic[T]):
    """A class that answers are read as: its shape, and the schema that the model is given."""

    cls: type[T]
    shape: Shape = field(repr=False)
    schema: Mapping[str, Any] = field(repr=False)

    def read(self, content: JsonValue) -> T:
        """Return `content`, the value of an answer, as an instance.

        Raises:
            AnswerMismatch: It does not fit.
        """
        problems: Problems = []
        found = read(self.shape, content, "", problems)
        if problems:
            raise AnswerMismatch([(where or "the answer", what) for where, what in problems])
        return cast(T, found)


def as_answer_class(cls: type[T]) -> AnswerClass[T]:
    """Return `cls` as the shape of answers; the schema has its name as title.

    Raises:
        Unfit: It has no shape, or its values are no objects of JSON.
    """
    shape = shape_of(cls)
    schema = schema_of(shape)
    if schema.get("type") != "object":
        raise Unfit(f"is {cls.__name__}, whose values are no objects of JSON")
    named: dict[str, Any] = {"title": cls.__name__}
    if text := _description(cls):
        named["description"] = text
    return AnswerClass(cls, shape, {**named, **schema})


def read_answer(cls: type[T], content: Any) -> T:
    """Return `content`, the answer of an agent with `output_schema=cls`, as an instance of `cls`.

    A `TypedDict` gives a dictionary whose values are of the hinted types.

    Raises:
        AnswerMismatch: It does not fit, as the answer to a request with a schema of its own.
        Unfit: The class cannot be read.
    """
    return as_answer_class(cls).read(content)


def _description(cls: type[Any]) -> str:
    """Return the first paragraphs of the docstring that an author wrote for `cls`."""
    text = vars(cls).get("__doc__") or ""
    # A dataclass and a named tuple without a docstring get their signature for one.
    return (
        "" if text.startswith(f"{cls.__name__}(") else explain(inspect.cleandoc(text)).description
    )
