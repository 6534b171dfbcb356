"""The fields of a form or a query, taken one by one, and every fault at once.

    read = form.reader()
    message = read.text("message", required=True)
    stream = read.boolean("stream")
    session_state = read.json_object("session_state")
    if faults := read.faults():
        return Invalid(faults)

A method returns a value of the promised type also after a fault, mostly None; the value means
nothing then, and `faults` tells.  A field that nobody took is a fault as well: what a caller sends
has an effect or is refused.  Handlers declare their fields (`api.fields`); each is read here.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from typing import Final, TypeVar

from attrs import field

from ...values import define, frozen
from ..refusals import Fault
from .json_meter import MAX_VALUES, JsonMeter
from .json_text import BadJson, JsonObject, JsonValue, parse_json

__all__ = ["MAX_FAULTS", "Reader", "Upload"]

C = TypeVar("C", bound=str)

MAX_FAULTS: Final = 64
"""The most faults in one answer: a body of a thousand unknown members gets a short one."""

MAX_TEXT: Final = 1 << 20
"""Bytes of the JSON text in a field: a form has the same bound for all of its fields."""

_UNMEASURED: Final = 4 << 10  # bytes of a JSON text whose values need no counting
_NAME_SHOWN: Final = 80  # characters of an unknown name
_INTEGER: Final = re.compile(r"-?[0-9]{1,18}", re.ASCII)  # within a signed 64 bit column

# What pydantic reads as a boolean, and so what clients of AgentOS send.
_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f]")
_BOOLEANS: Final = {
    **dict.fromkeys(("true", "1", "on", "yes", "t", "y"), True),
    **dict.fromkeys(("false", "0", "off", "no", "f", "n"), False),
}


@frozen
class Upload:
    """A file as it was sent.  `filename` is the caller's word and never a path to write to."""

    filename: str
    content_type: str
    data: bytes = field(repr=False)


@define
class Reader:
    """The fields of one request.  `where` is `body` or `query`: the paths of faults begin so.

    A JSON null is a field that was not sent.
    """

    where: str
    _fields: Mapping[str, tuple[JsonValue, ...]]
    _uploads: Mapping[str, tuple[Upload, ...]] = field(factory=dict[str, tuple[Upload, ...]])
    _taken: set[str] = field(factory=set[str], init=False)
    _faults: list[Fault] = field(factory=list[Fault], init=False)
    _values_left: int = field(default=MAX_VALUES, init=False)

    def text(
        self,
        name: str,
        *,
        required: bool = False,
        or_none: bool = False,
        max_length: int | None = None,
    ) -> str | None:
        """Return a string of at most `max_length` characters; `or_none`: None for an empty one.

        A required one that is empty was not sent, as in AgentOS.  In a form beside
        uploads the name may also be one of theirs; each kind is taken by its own method.
        """
        value = self._single(name)
        if value is None or (required and value == ""):
            if required and len(self._fields.get(name, ())) < 2:  # twice is a fault already
                self.fault(name, "is required")
            return "" if required else None
        if not isinstance(value, str):
            self.fault(name, "must be a string")
        elif max_length is not None and len(value) > max_length:
            self.fault(name, f"must have at most {max_length} characters")
        else:
            return None if or_none and value == "" else value
        return "" if required else None

    def line(self, name: str, *, max_length: int, required: bool = False) -> str | None:
        """Return a string without control characters, line ends among them; it may be empty."""
        if required and all(value is None for value in self._fields.get(name, ())):
            self.fault(name, "is required")
        text = self.text(name, max_length=max_length)
        if text is not None and _CONTROL.search(text):
            self.fault(name, "must not have control characters")
            return None
        return text

    def boolean(self, name: str) -> bool | None:
        """Return a truth value: JSON's, 0 or 1, or one of the usual words in any case."""
        value = self._single(name)
        if value is None or isinstance(value, bool):
            return value
        if isinstance(value, float):
            value = _as_whole(value)
        found = _BOOLEANS.get(str(value).lower()) if isinstance(value, str | int) else None
        if found is None:
            self.fault(name, "must be true or false")
        return found

    def integer(
        self, name: str, *, minimum: int | None = None, maximum: int | None = None
    ) -> int | None:
        """Return an integer of at most 18 digits between the bounds, both included."""
        value = self._single(name)
        if value is None:
            return None
        number = _as_integer(value)
        if number is None:
            self.fault(name, "must be an integer")
        elif minimum is not None and number < minimum:
            self.fault(name, f"must be at least {minimum}")
        elif maximum is not None and number > maximum:
            self.fault(name, f"must be at most {maximum}")
        else:
            return number
        return None

    def choice(self, name: str, choices: Sequence[C]) -> C | None:
        """Return the one of `choices` that was sent; an enumeration of strings will do."""
        value = self._single(name)
        if value is None:
            return None
        for candidate in choices:
            if value == candidate:
                return candidate
        self.fault(name, f"must be one of {', '.join(str(choice) for choice in choices)}")
        return None

    def json_object(self, name: str) -> JsonObject | None:
        """Return an object: a member of a JSON body, or the JSON text of one in a form."""
        value = self._json(name)
        if value is None or isinstance(value, dict):
            return value
        self.fault(name, "must be a JSON object")
        return None

    def json_list(self, name: str) -> list[JsonValue] | None:
        """Return an array: a member of a JSON body, or the JSON text of one in a form."""
        value = self._json(name)
        if value is None or isinstance(value, list):
            return value
        self.fault(name, "must be a JSON array")
        return None

    def json(self, name: str) -> JsonValue:
        """Return any JSON value; None also for a field that was not sent."""
        return self._json(name)

    def value(self, name: str) -> JsonValue:
        """Return any value as it was sent: that of a member of a JSON body, or a form's text."""
        return self._single(name)

    def texts(self, name: str) -> tuple[str, ...]:
        """Return an array of strings; empty when it was not sent."""
        texts: list[str] = []
        for index, item in enumerate(self.json_list(name) or ()):
            if isinstance(item, str):
                texts.append(item)
            elif len(self._faults) == MAX_FAULTS:
                break
            else:
                self.fault(f"{name}[{index}]", "must be a string")
        return tuple(texts)

    def several_texts(self, name: str, *, most: int, max_length: int) -> tuple[str, ...]:
        """Return the strings of a field that may be sent `most` times; empty when it was not."""
        self._taken.add(name)
        sent = self._fields.get(name, ())
        if len(sent) > most:
            self.fault(name, f"must be sent at most {most} times")
            return ()
        texts = tuple(value for value in sent if isinstance(value, str) and value)
        if len(texts) < len(sent):
            self.fault(name, "must not be empty")
        if any(len(value) > max_length for value in texts):
            self.fault(name, f"must have at most {max_length} characters")
        return texts

    def uploads(self, name: str) -> tuple[Upload, ...]:
        """Return the files under `name`, in order."""
        self._taken.add(name)
        return self._uploads.get(name, ())

    def ignore(self, *names: str) -> None:
        """Accept fields of these names without looking at them."""
        self._taken.update(names)

    def refuse(self, name: str, reason: str, harmless: Sequence[str] = ()) -> None:
        """Refuse a field, unless its value is one of `harmless`, compared in lower case."""
        value = self._single(name)
        text = str(value).lower() if isinstance(value, str | bool) else None
        if value is not None and text not in harmless:
            self.fault(name, f"is not supported: {reason}")

    @property
    def names(self) -> Collection[str]:
        """The names of the fields that were sent, uploads left out."""
        return self._fields.keys()

    def fault(self, name: str, message: str) -> None:
        """Add a fault of the handler's own finding, under the path of `name`.

        Those beyond `MAX_FAULTS` are dropped.
        """
        if len(self._faults) < MAX_FAULTS:
            self._faults.append(Fault(f"{self.where}.{name}", message))

    def faults(self) -> tuple[Fault, ...]:
        """Return what was wrong: first what was taken, in that order, then what nobody took."""
        taken, sent = self._taken, {**self._fields, **self._uploads}
        unknown = [name for name in sent if name not in taken]
        return (
            *self._faults,
            *[
                Fault(f"{self.where}.{name[:_NAME_SHOWN]}", "unknown field")
                for name in unknown[: MAX_FAULTS - len(self._faults)]
            ],
        )

    def _single(self, name: str) -> JsonValue:
        """Take the field: None when it was not sent, or sent twice, which is a fault."""
        self._taken.add(name)
        value, *repetitions = self._fields.get(name, (None,))
        if repetitions:
            self.fault(name, "must be sent once")
            return None
        return value

    def _json(self, name: str) -> JsonValue:
        """Take the field, and parse it when it is a string: forms have nothing else."""
        value = self._single(name)
        if not isinstance(value, str):
            return value
        parsed = self._parse(value.encode("utf-8", "surrogatepass"))
        if isinstance(parsed, BadJson):
            self.fault(name, f"must be JSON; it is {parsed.reason}")
            return None
        return parsed

    def _parse(self, text: bytes) -> JsonValue | BadJson:
        """Parse the JSON text of a field, unless that and those before it have too many values."""
        if len(text) > MAX_TEXT:
            return BadJson(f"longer than {MAX_TEXT} bytes")
        if len(text) > _UNMEASURED:
            meter = JsonMeter(self._values_left)
            for _ in meter.feed_whole(text):
                pass
            if meter.reason is not None:
                return BadJson(meter.reason)
            self._values_left -= meter.values
        return parse_json(text)


def _as_whole(value: JsonValue) -> JsonValue:
    """Return 3 for 3.0: JSON has one kind of number, and that is an integer (JSON Schema)."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _as_integer(value: JsonValue) -> int | None:
    value = _as_whole(value)
    if isinstance(value, bool) or not isinstance(value, int | str):
        return None
    text = str(value)
    return int(text) if _INTEGER.fullmatch(text) else None
