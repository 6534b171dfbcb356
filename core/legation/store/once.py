r"""The long texts of a run that are stored once: the message that it was asked, and its answer.

The message stands in the input of the run, and the answer in its output, as the content of that.
Wherever else they would stand, in that output and in the data of events, there are marks.  Whoever
reads these columns takes `whole_output` or `whole_data` for them, and is given what was shortened.

A text with marks begins with a space; with two where some are of the answer.  A mark is the whole
value of a member, so that the text is JSON as before.  It is an escape that no encoder of ours
writes, `\u001A` or `\u001B`; a text that has one in it beforehand is stored as it is.  The message
and the answer are found by what stands around them, which has quotes in it that a text in JSON
cannot have.

A node of a release that does not know of marks would show them.  As long as one lives, the whole
texts are stored; what was shortened before is whole again on the way down to its schema.
"""

from __future__ import annotations

from typing import Final

__all__ = [
    "BEFORE_MARKS",
    "LEAST",
    "WORTH",
    "message_of",
    "shorten",
    "shorten_output",
    "whole_data",
    "whole_output",
]

LEAST: Final = 256
"""How long a message or an answer must be to be stored once, in characters of JSON."""

WORTH: Final = 2048
"""How long an output must be to be shortened, in characters: there is little in a short one."""

BEFORE_MARKS: Final = ("2.5.6", "2.6.0", "2.7.0", "2.8.0")
"""The versions of the schema whose code does not know of marks."""

_MESSAGE: Final = r"\u001A"
_ANSWER: Final = r"\u001B"

# The input of a run begins with its message, behind which is whether its pieces are stored.
_INPUT: Final = '{"message":"'
_BEHIND_MESSAGE: Final = '","stream"'

# The first member of this name in an output is its content: all before it are ids and names.
_CONTENT: Final = ',"content"'
_TEXT: Final = ':"'
_BEHIND_CONTENT: Final = '","content_type"'

_PROBE: Final = 64  # characters by which members are found that may be the text


def message_of(asked: str) -> str:
    """Return the message in an input, without its quotes; nothing where that is not worth a mark.

    It is JSON as it stands in the input.
    """
    end = asked.find(_BEHIND_MESSAGE)
    long = asked.startswith(_INPUT) and end - len(_INPUT) >= LEAST
    return asked[len(_INPUT) : end] if long else ""


def shorten(text: str, message: str, answer: str = "") -> str:
    """Return `text`, which is JSON, with marks for `message`, and then for `answer`, if it can be.

    Both are as `message_of` and `shorten_output` return them.
    """
    if _MESSAGE in text or _ANSWER in text:
        return text
    short = _mark(text, message, _MESSAGE) if message else text
    answered = _mark(short, answer, _ANSWER) if answer else short
    if answered is not short:
        return f"  {answered}"
    return text if short is text else f" {short}"


def shorten_output(output: str, message: str) -> tuple[str, str]:
    """Return `output` with marks, and its answer; nothing for one that is not worth a mark.

    The answer has a mark itself, where that is the message.
    """
    if _MESSAGE in output or _ANSWER in output:
        return output, ""
    short = _mark(output, message, _MESSAGE) if message else output
    stored = output if short is output else f" {short}"
    begin = short.find(_CONTENT) + len(_CONTENT)
    end = short.find(_BEHIND_CONTENT, begin)
    if not short.startswith(_TEXT, begin) or end - begin - len(_TEXT) < LEAST:
        return stored, ""
    answer = short[begin + len(_TEXT) : end]
    answered = _mark(short, answer, _ANSWER, end)
    return (stored if answered is short else f"  {answered}"), answer


def _mark(text: str, body: str, mark: str, start: int = 0) -> str:
    """Return `text` with `mark` for each member behind `start` that is `body`; itself without any.

    Members that begin alike are compared, none for longer than it is: what that costs grows with
    the length of the text, whatever stands in it.
    """
    parts, done = list[str](), 0
    probe = f'"{_TEXT}{body[:_PROBE]}'
    found = text.find(probe, start)
    while found >= 0:
        begin = found + len(_TEXT) + 1
        end = begin + len(body)
        if text.startswith(body, begin) and text.startswith('"', end):
            parts += (text[done:begin], mark)
            done = begin = end
        found = text.find(probe, begin)
    return "".join((*parts, text[done:])) if parts else text


# --- Reading -----------------------------------------------------------------------------------
# SQLite's `instr` is `strpos` on PostgreSQL (`Sql`).


def _message(runs: str) -> str:
    begin = len(_INPUT) + 1
    end = f"instr({runs}.input, '{_BEHIND_MESSAGE}')"
    return f"substr({runs}.input, {begin}, {end} - {begin})"


def _answer(runs: str) -> str:
    begin = f"instr({runs}.output, '{_CONTENT}') + {len(_CONTENT) + len(_TEXT)}"
    rest = f"substr({runs}.output, {begin})"
    return f"substr({rest}, 1, instr({rest}, '{_BEHIND_CONTENT}') - 1)"


def _whole(text: str, runs: str) -> str:
    """Return `text`, a column, with what it has marks of."""
    answered = f"replace({text}, '{_ANSWER}', {_answer(runs)})"
    return f"""case
        when substr({text}, 1, 2) = '  '
            then replace(substr({answered}, 3), '{_MESSAGE}', {_message(runs)})
        when substr({text}, 1, 1) = ' '
            then replace(substr({text}, 2), '{_MESSAGE}', {_message(runs)})
        else {text} end"""


def whole_output(runs: str = "runs") -> str:
    """Return the output of a row as it was before it was shortened; `runs` is the table's name."""
    return _whole(f"{runs}.output", runs)


def whole_data(events: str, runs: str) -> str:
    """Return the data of an event as it was; `runs` is the run that it is stored under."""
    return _whole(f"{events}.data", runs)
