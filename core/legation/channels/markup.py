"""Markdown as models write it (CommonMark 0.31, tables, `~~struck~~`), in the markup of a channel.

An answer is read as a whole into runs of text with their styles; only then it is cut into parts, so
that no cut falls into markup: a style that is cut ends in one part and begins again in the next.
No channel has tables or headings: a table is a block of code with columns, a heading is bold.  The
text of a link never hides where it leads.  Reading takes time in proportion to the length; what is
nested deeper than `_DEEPEST` levels or longer than `_LONGEST` stays as it was written.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import groupby
from typing import Final, TypeAlias
from unicodedata import east_asian_width

from attrs import field
from markdown_it import MarkdownIt
from markdown_it.token import Token

from ..values import define, frozen
from .replies import Part, TextSpan, begin_part, end_part, utf16_length

__all__ = ["compose_marks", "compose_spans", "mark_up", "spans"]

Style: TypeAlias = tuple[str, str]
"""Its name as Telegram has it, and for a block of code the language."""

_DEEPEST: Final = 12
_LONGEST: Final = 20_000
"""Characters of an answer that is read; brackets alone take 10 microseconds each."""
_WIDEST: Final = 60
"""Columns of a table that is set out; a wider one would be broken by any telephone."""
_MOST_SPANS: Final = 100  # Telegram passes over others
_ADDRESS: Final = re.compile(r"(?:https?://|mailto:|tel:)[^\s]", re.IGNORECASE)
_LANGUAGE: Final = re.compile(r"[\w#+.-]{1,32}(?!\S)", re.ASCII)
_STYLES: Final = {"strong": "bold", "em": "italic", "s": "strikethrough"}
_MARKS: Final = {"bold": "*", "italic": "_", "strikethrough": "~", "code": "`"}


class _Parser(MarkdownIt):
    """CommonMark and tables; addresses stay as they are written, and only known kinds are links."""

    def validateLink(self, url: str) -> bool:  # noqa: N802 (the base names it)
        return _ADDRESS.match(url) is not None

    def normalizeLink(self, url: str) -> str:  # noqa: N802
        return url

    def normalizeLinkText(self, link: str) -> str:  # noqa: N802
        return link


# Without: raw HTML, definitions of links (nobody would see them), and titles that a line of dashes
# makes of a paragraph, which models mean as a rule.  An image is a link behind "!".
_PARSER: Final = (
    _Parser("commonmark", {"html": False, "maxNesting": _DEEPEST})
    .enable(["table", "strikethrough"])
    .disable(["reference", "lheading", "html_block", "html_inline", "image"])
)


@frozen
class _Run:
    """Text of one look; its styles from the outermost to the innermost."""

    text: str
    styles: tuple[Style, ...] = ()


@define
class _Container:
    """An item of a list, or a quotation in another: the beginnings of its lines."""

    lead: str
    rest: str


@define
class _Writer:
    """Writes tokens as runs of text, each block on lines of its own."""

    runs: list[_Run] = field(factory=list[_Run])
    containers: list[_Container] = field(factory=list[_Container])
    styles: list[Style | None] = field(factory=list["Style | None"])
    links: list[tuple[int, str]] = field(factory=list[tuple[int, str]])
    quotes: int = 0
    quote: int = 0
    last_quote: int = 0
    last_line: int = -1

    # --- blocks ---

    def write_blocks(self, tokens: Sequence[Token]) -> None:
        at = 0
        while at < len(tokens):
            token = tokens[at]
            if token.type == "table_open":
                end = next(i for i in range(at, len(tokens)) if tokens[i].type == "table_close")
                self._write_table(tokens[at : end + 1])
                at = end
            elif token.type in ("fence", "code_block"):
                self._write_code(token, token.content.removesuffix("\n"), _language(token.info))
            elif token.type == "hr":
                self._begin_block(token)
                self._write(token.markup[:-1])  # it counts one too many
            elif token.type == "inline":
                self._begin_block(token)
                heading = tokens[at - 1].type == "heading_open"
                self.styles = [("bold", "")] if heading else []
                self.write_inline(token.children or [])
                self.styles = []
            else:
                self._turn(token)
            at += 1

    def write_lines(self, token: Token, lines: Sequence[str]) -> None:
        """Write the lines of a block as they are."""
        self._begin_block(token)
        self._write("\n".join(lines))

    def _turn(self, token: Token) -> None:
        """Enter or leave what has blocks in it."""
        if token.type == "list_item_open":
            marker = f"{token.info}{token.markup} " if token.info else "• "
            self.containers.append(_Container(marker, " " * len(marker)))
        elif token.type == "list_item_close":
            if self.containers[-1].lead:
                self._begin_block(token)
            self.containers.pop()
        elif token.type == "blockquote_open":
            self.quotes += 1
            if self.quotes == 1:
                self.quote += 1
            self.containers.append(_Container("", "> " if self.quotes > 1 else ""))
        elif token.type == "blockquote_close":
            self.quotes -= 1
            self.containers.pop()

    def _begin_block(self, token: Token) -> None:
        """Begin a line, behind an empty one if the source has it, with what stands before it."""
        first, end = token.map or (self.last_line, self.last_line)
        quote = self.quote if self.quotes else 0
        if self.runs:
            inside = quote and quote == self.last_quote
            breaks = "\n\n" if first > self.last_line else "\n"
            self.runs.append(_Run(breaks, (("blockquote", ""),) if inside else ()))
        self.last_line, self.last_quote = end, quote
        lead = "".join(each.lead or each.rest for each in self.containers)
        for each in self.containers:
            each.lead = ""
        self._write(lead)

    def _write_code(self, token: Token, text: str, language: str = "") -> None:
        if not text.strip():
            return
        pending = any(each.lead for each in self.containers)
        if pending:
            self._begin_block(token)
            self._write("\n")
        elif self.runs:
            containers, self.containers = self.containers, []
            self._begin_block(token)
            self.containers = containers
        self.last_line = token.map[1] if token.map else self.last_line
        self.last_quote = self.quote if self.quotes else 0
        self._write(text, ("pre", language))

    def _write_table(self, tokens: Sequence[Token]) -> None:
        rows: list[list[str]] = []
        for token in tokens:
            if token.type == "tr_open":
                rows.append([])
            elif token.type == "inline":
                cell = _Writer()
                cell.write_inline(token.children or [])
                rows[-1].append(" ".join("".join(run.text for run in cell.runs).split()))
        widths = [max(map(_width, column)) for column in zip(*rows, strict=True)]
        if sum(widths) + 3 * len(widths) <= _WIDEST:
            self._write_code(tokens[0], "\n".join(_set_out(rows, widths)))
        else:
            self._begin_block(tokens[0])
            self._write("\n".join(" | ".join(row) for row in rows))

    # --- words ---

    def write_inline(self, tokens: Sequence[Token]) -> None:
        for token in tokens:
            name = token.tag if token.tag in _STYLES else token.type
            if name in _STYLES and token.nesting == 1:
                style = (_STYLES[name], "")
                self.styles.append(None if style in self.styles else style)
            elif name in _STYLES:
                self.styles.pop()
            elif name == "code_inline":
                self._write(token.content, ("code", ""))
            elif name in ("softbreak", "hardbreak"):
                self._write("\n" + "".join(each.rest for each in self.containers))
            elif name == "link_open":
                self._drop_mark_of_image()
                self.links.append((len(self.runs), str(token.attrs["href"])))
            elif name == "link_close":
                self._write_address(*self.links.pop())
            else:
                self._write(token.content)

    def _drop_mark_of_image(self) -> None:
        if self.runs and self.runs[-1].text.endswith("!"):
            last = self.runs.pop()
            if len(last.text) > 1:
                self.runs.append(_Run(last.text[:-1], last.styles))

    def _write_address(self, begun: int, url: str) -> None:
        """Write where a link leads behind its label, or in place of one that says the same."""
        label = "".join(run.text for run in self.runs[begun:]).strip()
        if label.rstrip("/") in ("", url.rstrip("/"), url.partition("://")[2].rstrip("/")):
            del self.runs[begun:]
            self._write(url)
        else:
            self._write(f" ({url})")

    def _write(self, text: str, code: Style | None = None) -> None:
        """Write `text`; code has no other style but the quotation that it is in."""
        quote = (("blockquote", ""),) if self.quotes else ()
        words = (code,) if code else tuple(style for style in self.styles if style)
        if text:
            self.runs.append(_Run(text, (*quote, *words)))


def _language(info: str) -> str:
    found = _LANGUAGE.match(info)
    return found[0] if found else ""


def _width(text: str) -> int:
    return len(text) + sum(east_asian_width(character) in "WF" for character in text)


def _set_out(rows: Sequence[Sequence[str]], widths: Sequence[int]) -> Iterator[str]:
    """Yield the lines of a table in columns, with a line below the first."""
    for number, row in enumerate(rows):
        cells = (
            text + " " * (width - _width(text)) for text, width in zip(row, widths, strict=True)
        )
        yield " | ".join(cells).rstrip()
        if number == 0:
            yield "-+-".join("-" * width for width in widths)


def _read(text: str) -> list[_Run]:
    """Return the runs of `text`; of what would leave nothing to see, its own words."""
    if len(text) > _LONGEST:
        return [_Run(text)]
    writer = _Writer()
    lines = re.split(r"\r\n?|\n", text)
    for block in _split_blocks(_PARSER.parse(text)):
        deep = any(token.level >= _DEEPEST - 1 for token in block)
        if deep and (place := block[0].map):
            writer.write_lines(block[0], lines[slice(*place)])
        else:
            writer.write_blocks(block)
    return writer.runs if any(run.text.strip() for run in writer.runs) else [_Run(text)]


def _split_blocks(tokens: Sequence[Token]) -> Iterator[Sequence[Token]]:
    """Yield the tokens of each block that is in no other."""
    begun = 0
    for at, token in enumerate(tokens):
        if token.level == 0 and token.nesting != 1:
            yield tokens[begun : at + 1]
            begun = at + 1


# --- parts -------------------------------------------------------------------------------------

Write: TypeAlias = Callable[[Sequence[_Run]], Part]


def _compose(text: str, limit: int, write: Write) -> Iterator[Part]:
    """Yield what `write` makes of `text` in parts of 1 to `limit` UTF-16 units.

    A part in which markup would take more than half of the room is written without.
    """
    runs = _read(text)
    starts = [0]
    for run in runs:
        starts.append(starts[-1] + len(run.text))
    whole = "".join(run.text for run in runs)
    start, size = 0, len(whole.rstrip())
    while start < size:
        start = begin_part(whole, start, limit)
        part, room, least = None, limit, limit // 2 + 2
        end = size
        while part is None:
            end = _end(whole, start, size, room, runs, starts)
            last = start + len(whole[start:end].rstrip())
            part = write(_slice(runs, starts, start, last))
            over = utf16_length(part.text) - limit
            if over > 0 and room <= least:
                part = Part(whole[start:last], ())
            elif over > 0:
                part, room = None, max(room - max(over, limit // 16), least)
        yield part
        start = end


def _whole(text: str, limit: int, write: Write) -> Part:
    """Return `text` in one part; one that markup makes too long stays as it is."""
    part = write(_read(text))
    return part if utf16_length(part.text) <= limit else Part(text, ())


def _end(
    whole: str, start: int, size: int, room: int, runs: Sequence[_Run], starts: Sequence[int]
) -> int:
    """Return where a part ends: rather before a block of code that begins in its second half."""
    end = end_part(whole, start, size, room)
    at = bisect_right(starts, end - 1) - 1
    if end == size or not any(kind == "pre" for kind, _ in runs[at].styles):
        return end
    return starts[at] if starts[at] > start + (end - start) // 2 else end


def _slice(runs: Sequence[_Run], starts: Sequence[int], start: int, end: int) -> list[_Run]:
    found: list[_Run] = []
    at = bisect_right(starts, start) - 1
    while at < len(runs) and starts[at] < end:
        text = runs[at].text[max(start - starts[at], 0) : end - starts[at]]
        found.append(_Run(text, runs[at].styles))
        at += 1
    return found


# --- spans, for Telegram -----------------------------------------------------------------------


def compose_spans(text: str, limit: int) -> Iterator[Part]:
    """Yield the parts of `text` without its markup, and the spans that it stands for."""
    return _compose(text, limit, _with_spans)


def spans(text: str, limit: int) -> Part:
    """Return all of `text`, of at most `limit` units, without its markup but with spans."""
    return _whole(text, limit, _with_spans)


def _with_spans(runs: Sequence[_Run]) -> Part:
    found: list[TextSpan] = []
    opened: list[tuple[Style, int]] = []
    units = 0
    for run in (*runs, _Run("")):
        same = 0
        while same < min(len(opened), len(run.styles)) and opened[same][0] == run.styles[same]:
            same += 1
        for (kind, language), begun in opened[same:]:
            found.append(TextSpan(kind, begun, units - begun, language))
        opened[same:] = [(style, units) for style in run.styles[same:]]
        units += utf16_length(run.text)
    found.sort(key=lambda span: (span.offset, -span.length))
    return Part("".join(run.text for run in runs), tuple(found[:_MOST_SPANS]))


# --- marks, for WhatsApp and Slack -------------------------------------------------------------


def compose_marks(text: str, limit: int) -> Iterator[Part]:
    """Yield the parts of `text` with `*bold*`, `_italic_` and `~struck~` words."""
    return _compose(text, limit, _with_marks)


def mark_up(text: str, limit: int) -> str:
    """Return all of `text`, of at most `limit` units, as WhatsApp and Slack write it."""
    return _whole(text, limit, _with_marks).text


def _with_marks(runs: Sequence[_Run]) -> Part:
    text = ""
    for block, group in groupby(runs, key=_block_of):
        if block == "pre":
            text += "```\n" + "".join(run.text for run in group) + "\n```"
        else:
            text += _mark_lines(group, "> " if block else "", begins=text[-1:] in ("", "\n"))
    return Part(text, ())


def _block_of(run: _Run) -> str:
    return next((kind for kind, _ in reversed(run.styles) if kind in ("pre", "blockquote")), "")


def _mark_lines(runs: Iterable[_Run], lead: str, *, begins: bool) -> str:
    """Return `runs` with marks, which no line may leave open, and `lead` where a line begins."""
    lines: list[list[_Run]] = [[]]
    for run in runs:
        first, *others = run.text.split("\n")
        styles = tuple(style for style in run.styles if style[0] in _MARKS)
        lines[-1].append(_Run(first, styles))
        lines += ([_Run(line, styles)] for line in others)
    texts = [_mark(line, 0) for line in lines]
    leads = [lead if text and (number or begins) else "" for number, text in enumerate(texts)]
    return "\n".join(lead + text for lead, text in zip(leads, texts, strict=True))


def _mark(runs: Sequence[_Run], depth: int) -> str:
    """Return a line, or a piece of one that has `depth` styles already.

    A mark inside of a word would be shown as it is, so that such a style is left out.
    """
    groups = [
        (style, list(group))
        for style, group in groupby(runs, key=lambda run: _style_at(run, depth))
    ]
    texts = [
        _mark(group, depth + 1) if style else "".join(run.text for run in group)
        for style, group in groups
    ]
    result: list[str] = []
    for number, (style, _) in enumerate(groups):
        text, before = texts[number], result[-1][-1:] if result else ""
        after = texts[number + 1][:1] if number + 1 < len(texts) else ""
        core = text.strip()
        inside = style != "code" and (
            (before.isalnum() and text[:1] == core[:1])
            or (after.isalnum() and text[-1:] == core[-1:])
        )
        if style and core and not inside:
            mark = _MARKS[style]
            at = text.index(core)
            text = text[:at] + mark + core + mark + text[at + len(core) :]
        if text:
            result.append(text)
    return "".join(result)


def _style_at(run: _Run, depth: int) -> str:
    return run.styles[depth][0] if depth < len(run.styles) else ""
