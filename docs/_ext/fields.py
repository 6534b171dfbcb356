"""The fields of public classes, with the meanings that the page of the configuration has."""

from __future__ import annotations

import inspect
import re
from pathlib import Path
from typing import Any, Final

import attrs
from drawn import meanings

from legation import config

__all__ = ["describe_fields", "list_fields"]

_PAGE: Final = Path(__file__).parents[1] / "reference/configuration.md"
_TABLE: Final = re.compile(r"^```\{configuration\} (\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_TABLES: Final = {
    name: meanings(body.splitlines()) for name, body in _TABLE.findall(_PAGE.read_text("utf-8"))
}
_MODELS: Final = ("EchoModel", "OpenAIModel", "AnthropicModel")
_CHANNELS: Final = (
    *("WhatsAppChannel", "TelegramChannel", "SlackChannel", "StandardChannel"),
    "CustomChannel",
)
_SAME: Final = {
    **dict.fromkeys(_MODELS, "Model"),
    **dict.fromkeys(_CHANNELS, "Channel"),
    "LimitOverrides": "PlatformLimits",
    "Platform": "PlatformConfig",
}
"""Classes whose fields are keys of the table of another class."""


def describe_fields(cls: type[Any]) -> dict[str, str]:
    """Return the fields that a caller gives, each with its meaning; empty where none is known."""
    table = _TABLES.get(_SAME.get(cls.__name__, cls.__name__), {})
    doc = inspect.getdoc(cls) or ""
    found: dict[str, str] = {}
    for name in _names(cls):
        said = re.search(rf"^    {name}: (.+)$", doc, re.MULTILINE)
        found[name] = table.get(name, said[1] if said else "")
    return found


def list_fields(cls: type[Any]) -> list[str]:
    """Return a list of the fields for a docstring, in reStructuredText."""
    if _SAME.get(cls.__name__, cls.__name__) not in _TABLES:
        return []
    rows = [(name, said) for name, said in describe_fields(cls).items() if said]
    lines = [f":param {name}: {_plain(said)}" for name, said in rows]
    return ["", *lines, ""] if lines else []


def _names(cls: type[Any]) -> list[str]:
    if attrs.has(cls):
        return [field.alias or field.name for field in attrs.fields(cls) if field.init]
    if cls.__name__ == "Platform":
        return [field.name for field in attrs.fields(config.PlatformConfig) if field.init]
    return []


def _plain(markdown: str) -> str:
    """Return Markdown without its links."""
    return re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", markdown)
