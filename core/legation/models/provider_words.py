"""A provider's own words about an error, for the operator's log.

They say what nobody else can: which schema was refused, which model is unknown, which limit was
reached.  They come from outside, and may quote the conversation or the key.  So they are short, on
one line, without characters that cannot be seen, and without anything that may be a key: the words
that were sent as one, a part of one from eight characters on, and what looks like one.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from typing import Any, Final, cast

from ..values import frozen

__all__ = ["ProviderWords", "find_words", "hide_secrets"]

_READ: Final = 4_096  # characters
_SHOWN: Final = 500
_CODE: Final = 100
_LEAST_SECRET: Final = 4
_PART: Final = 8
_HIDDEN: Final = "[redacted]"
_MARK: Final = "\0"

# Prefixes of the keys of well-known services, JSON web tokens among them, and what was masked by
# the provider itself, which shows both ends of the key.
_KEY: Final = re.compile(
    r"\b(?:sk|pk|rk|gsk|ghp|gho|xai|xox[a-z])[-_][-\w*.]{6,}|\b(?:AKIA|AIza|eyJ)[-\w.]{8,}"
    r"|[-\w.]{1,64}\*{3}[-\w.*]*|(?i:bearer)\s+\S+"
)
_MARKUP: Final = re.compile(r"<[^<>]{0,200}>")
_SENTENCES: Final = ("message", "detail", "msg", "error_description", "error")
_CODES: Final = ("type", "code", "status")


@frozen
class ProviderWords:
    """The `code` and the `message` of a provider; empty where there is none."""

    code: str = ""
    message: str = ""


def find_words(sent: object, secrets: Sequence[str]) -> ProviderWords:
    """Return the words in `sent`: the body of a response, or an error that came in a stream.

    Args:
        sent: Bytes, or a value of JSON; None where there is nothing.
        secrets: Words that were sent with the request and must not be shown.
    """
    value = _parse(sent) if isinstance(sent, bytes) else sent
    error = _find_error(value)
    if isinstance(error, dict):
        table = cast("dict[str, Any]", error)
        code = ", ".join(dict.fromkeys(_codes(table)))
        message = next((table[name] for name in _SENTENCES if table.get(name)), "")
    else:
        code, message = "", error
    return ProviderWords(_clean(code, secrets, _CODE), _clean(message, secrets, _SHOWN))


def _parse(body: bytes) -> Any:
    text = body.decode(errors="replace")
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return _MARKUP.sub(" ", text[: 2 * _READ])


def _find_error(value: object) -> object:
    """Return the object or the text that says what is wrong; some send it in a list."""
    if isinstance(value, list):
        value = cast("list[object]", value)[0] if value else None
    if not isinstance(value, dict):
        return value
    table = cast("dict[str, object]", value)
    return table["error"] if isinstance(table.get("error"), dict) else table


def _codes(error: dict[str, Any]) -> Iterator[str]:
    for name in _CODES:
        if isinstance(error.get(name), str | int) and error[name] not in ("", "error"):
            yield str(error[name])[:_CODE]


def _clean(said: object, secrets: Sequence[str], length: int) -> str:
    """Return `said` on one line, without keys, and no longer than `length`."""
    if said is None:
        return ""
    text = said if isinstance(said, str) else _dump(said)
    # What cannot be seen goes first: between the letters of a key it would hide that from us.
    seen = "".join(c if c.isprintable() else " " * c.isspace() for c in text[:_READ])
    line = " ".join(hide_secrets(seen, secrets).split())
    return line if len(line) <= length else f"{line[: length - 1]}…"


def _dump(value: object) -> str:
    try:
        return json.dumps(value, ensure_ascii=False)
    except RecursionError:
        return ""


def hide_secrets(text: str, secrets: Sequence[str]) -> str:
    """Return `text` without `secrets`, parts of them, and what looks like one."""
    return _KEY.sub(_HIDDEN, _hide(text.replace(_MARK, " "), secrets))


def _hide(text: str, secrets: Sequence[str]) -> str:
    """Return `text` with each secret, and each part of one, replaced."""
    for secret in secrets:
        if len(secret) < _LEAST_SECRET or secret.lower() == "bearer":
            continue
        marks = bytearray(len(text))
        size = min(len(secret), _PART)
        for start in range(len(secret) - size + 1):
            part, at = secret[start : start + size], -1
            while (at := text.find(part, at + 1)) >= 0:
                marks[at : at + size] = b"\1" * size
        if any(marks):
            hidden = "".join(_MARK if mark else c for c, mark in zip(text, marks, strict=True))
            text = re.sub(f"{_MARK}+", _HIDDEN, hidden)
    return text
