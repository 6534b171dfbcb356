"""Markdown as models write it, in the markup that a channel shows.

Only what stands in most answers: headings, bold and struck out words, code, links.  The rest is
left as it is, for it can be read as it is.  No text becomes longer.
"""

from __future__ import annotations

import re
from typing import Final

from ..values import frozen
from .replies import utf16_length

__all__ = ["TextSpan", "mark_up", "spans"]

_MARKDOWN: Final = re.compile(
    r"""^[ \t]*```(?P<info>[^`\n]*)\n(?!\s*```)(?P<block>.*?\S.*?)(?:\n[ \t]*```[ \t]*$|\Z)
    | (?P<code>`(?!\s+`)[^`\n]+`)
    | ^\#{1,6}[ \t]+(?P<heading>\S[^\n]*)$
    | (?<![\w*])\*{2,3}(?=[^\s*])(?P<bold>(?:(?!\*\*)[^\n])+)(?<=\S)\*{2,3}(?![\w*])
    | ~~(?=[^\s~])(?P<struck>(?:(?!~~)[^\n])+)(?<=\S)~~
    | \[(?P<label>[^\[\]\n]+)\]\((?P<url>https?://[^\s()]+)\)""",
    re.VERBOSE | re.MULTILINE | re.DOTALL,
)
_LINK: Final = re.compile(r"\[(?P<label>[^\[\]\n]+)\]\((?P<url>https?://[^\s()]+)\)")


@frozen
class TextSpan:
    """A span of text with a style: its offset and its length, in UTF-16 units.

    `kind` is `bold`, `strikethrough`, `code` or `pre`, the last with a `language` or "".
    """

    kind: str
    offset: int
    length: int
    language: str = ""


def mark_up(text: str) -> str:
    """Return `text` with `*bold*` and `~struck~` words, as WhatsApp and Slack write them."""
    return _MARKDOWN.sub(_mark, text)


def _mark(found: re.Match[str]) -> str:
    whole, kind, words = found[0], *_read(found)
    if kind == "pre":  # its first line would be shown
        start, end = (at - found.start() for at in found.span("info"))
        return whole[:start] + whole[end:]
    if kind == "bold":
        return f"*{words}*"
    return f"~{words}~" if kind == "strikethrough" else whole if kind else words


def spans(text: str) -> tuple[str, tuple[TextSpan, ...]]:
    """Return `text` without its markup, and what that said, in order."""
    pieces: list[str] = []
    result: list[TextSpan] = []
    done = units = 0
    for found in _MARKDOWN.finditer(text):
        kind, words = _read(found)
        before = text[done : found.start()]
        units += utf16_length(before)
        length = utf16_length(words)
        if kind:
            result.append(TextSpan(kind, units, length, (found["info"] or "").strip()))
        pieces += [before, words]
        units += length
        done = found.end()
    return "".join([*pieces, text[done:]]), tuple(result)


def _read(found: re.Match[str]) -> tuple[str, str]:
    """Return how something is to be shown, "" for as it is, and its words."""
    if found["block"] is not None:
        return "pre", found["block"]
    if found["code"] is not None:
        return "code", found["code"][1:-1]
    if found["struck"] is not None:
        return "strikethrough", found["struck"]
    if found["url"] is not None:
        return "", _link_text(found)
    words = _without_tail(found["heading"]) if found["heading"] else found["bold"]
    words = _LINK.sub(_link_text, words.replace("**", "")).strip()
    return ("bold", words) if words else ("", found[0])


def _without_tail(heading: str) -> str:
    """Return `heading` without the signs that may end it (CommonMark 0.31 section 4.2)."""
    bare = heading.rstrip(" \t").rstrip("#")
    return bare if bare.endswith((" ", "\t")) else heading


def _link_text(found: re.Match[str]) -> str:
    """Return a link in words; its label never hides where it leads."""
    label, url = found["label"], found["url"]
    known = url.rstrip("/"), url.partition("://")[2].rstrip("/")
    return url if label.rstrip("/") in known else f"{label} ({url})"
