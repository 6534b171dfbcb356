"""The bodies and the queries of requests: pure codecs, and one reader for all."""

from __future__ import annotations

from .forms import DEFAULT_LIMITS, Form, FormLimits, FormRefusal, parse_form, parse_query
from .json_text import MAX_DEPTH, MAX_DIGITS, BadJson, JsonObject, JsonValue, parse_json
from .reader import MAX_FAULTS, Reader, Upload

__all__ = [
    "DEFAULT_LIMITS",
    "MAX_DEPTH",
    "MAX_DIGITS",
    "MAX_FAULTS",
    "BadJson",
    "Form",
    "FormLimits",
    "FormRefusal",
    "JsonObject",
    "JsonValue",
    "Reader",
    "Upload",
    "parse_form",
    "parse_json",
    "parse_query",
]
