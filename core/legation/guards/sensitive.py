"""The search for what is to be redacted: named patterns, and words as they stand.

A pattern is one of a table: no expression of an author's is executed, since the time that one takes
may grow without bound.  Each search costs in proportion to the length of the text.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import accumulate
from typing import Any, Final, TypeAlias

from ..tools.accepted import is_array, is_object

__all__ = ["MAX_WORD", "MAX_WORDS", "PATTERNS", "redact", "redact_value"]

MAX_WORDS: Final = 100
"""How many words may be looked for at once."""

MAX_WORD: Final = 200
"""How long a word may be, in characters."""

_Span: TypeAlias = tuple[int, int, str]

_EMAIL: Final = re.compile(r"(?<![\w.%+-])[\w.%+-]++@[\w-]++(?:\.[\w-]++)++")
_KEY: Final = re.compile(
    r"(?<![\w-])(?:sk-|pk_|sk_|rk_|gh[opsu]_|github_pat_|xox[abprs]-|AKIA|ASIA|AIza|glpat-|eyJ)"
    r"[\w.=-]{12,}+"
)
_PHONE: Final = re.compile(
    r"(?<![\w+])(?:(?:\+|00)[1-9](?:[ ()./-]{0,2}[0-9]){6,13}"
    r"|\(?[0-9]{3}\)?[ .-][0-9]{3}[ .-][0-9]{4})(?![0-9])"
)
_IBAN: Final = re.compile(r"(?<![A-Za-z0-9])[A-Za-z]{2}[0-9]{2}(?: ?[A-Za-z0-9]){11,30}")
_DIGITS: Final = re.compile(r"[0-9]++(?:[ -][0-9]++)*+")
_GROUP: Final = re.compile(r"[0-9]++")

_CARD_DIGITS: Final = range(13, 20)
_IBAN_LEAST: Final = 15
# ISO/IEC 7812-1, Annex B: what a digit counts, and the sum of the digits of twice it.
_PLAIN: Final = bytes.maketrans(b"0123456789", bytes(range(10)))
_DOUBLED: Final = bytes.maketrans(b"0123456789", bytes((0, 2, 4, 6, 8, 1, 3, 5, 7, 9)))
_SEPARATORS: Final = str.maketrans("", "", " -")


def _find_all(pattern: re.Pattern[str]) -> Callable[[str], Iterator[tuple[int, int]]]:
    def find(text: str) -> Iterator[tuple[int, int]]:
        return (match.span() for match in pattern.finditer(text))

    return find


def _find_cards(text: str) -> Iterator[tuple[int, int]]:
    """Yield numbers of 13 to 19 digits, in groups or not, whose check digit is right."""
    for run in _DIGITS.finditer(text):
        if run.end() - run.start() >= _CARD_DIGITS.start:
            offset = run.start()
            yield from ((offset + begin, offset + end) for begin, end in _find_in_run(run[0]))


def _find_in_run(run: str) -> Iterator[tuple[int, int]]:
    """Yield the numbers of cards within digits that single spaces and hyphens divide in groups."""
    groups = [match.span() for match in _GROUP.finditer(run)]
    counts = [0, *accumulate(end - begin for begin, end in groups)]
    ends = dict(zip(counts[1:], (end for _, end in groups), strict=True))
    sums, last = _sum_digits(run.translate(_SEPARATORS).encode()), 0
    for (begin, _), first in zip(groups, counts, strict=False):
        if first >= last and (found := _find_card(sums, ends, first)):
            last = found
            yield begin, ends[last]


def _sum_digits(digits: bytes) -> tuple[list[int], list[int]]:
    """Return the sums of the digits before each place: every second doubled, from 0 or from 1."""
    sums: list[list[int]] = []
    for first in (0, 1):
        mixed = bytearray(digits.translate(_PLAIN))
        mixed[first::2] = digits.translate(_DOUBLED)[first::2]
        sums.append([0, *accumulate(mixed)])
    return sums[0], sums[1]


def _find_card(
    sums: tuple[list[int], list[int]], ends: Mapping[int, int], first: int
) -> int | None:
    """Return where the longest card number ends that begins with the digit `first`."""
    for last in range(first + _CARD_DIGITS.stop - 1, first + _CARD_DIGITS.start - 1, -1):
        if last in ends:
            doubled = sums[last % 2]  # all but the last digit and every second before it
            if (doubled[last] - doubled[first]) % 10 == 0:
                return last
    return None


def _find_ibans(text: str) -> Iterator[tuple[int, int]]:
    """Yield account numbers whose check digits are right (ISO 13616-1)."""
    for match in _IBAN.finditer(text):
        begin, end = match.span()
        ends = [n for n in range(end, begin, -1) if n == len(text) or not text[n].isalnum()]
        for last in ends:
            plain = text[begin:last].replace(" ", "").upper()
            if len(plain) >= _IBAN_LEAST and text[last - 1] != " " and _is_iban(plain):
                yield begin, last
                break


def _is_iban(plain: str) -> bool:
    moved = plain[4:] + plain[:4]
    return int("".join(str(int(one, 36)) for one in moved)) % 97 == 1


PATTERNS: Final[Mapping[str, Callable[[str], Iterator[tuple[int, int]]]]] = {
    "key": _find_all(_KEY),
    "email": _find_all(_EMAIL),
    "iban": _find_ibans,
    "card": _find_cards,
    "phone": _find_all(_PHONE),
}
"""The patterns by their names; two that overlap have the label of the first."""


def _find_words(text: str, words: Sequence[str]) -> Iterator[_Span]:
    """Yield where words stand, in capitals or not."""
    lowered = _lower(text)
    for word in map(_lower, words):
        begin = lowered.find(word)
        while begin >= 0:
            end = begin + len(word)
            yield begin, end, "redacted"
            begin = lowered.find(word, end)


def _lower(text: str) -> str:
    """Return `text` in small letters, of the same length."""
    if text.isascii():
        return text.lower()
    return "".join(low if len(low := one.lower()) == 1 else one for one in text)


def redact(text: str, patterns: Sequence[str], words: Sequence[str]) -> str:
    """Return `text` with a label, such as `[email]`, in place of what is found in it."""
    spans: list[_Span] = list(_find_words(text, words))
    for name in patterns:
        spans += ((begin, end, name) for begin, end in PATTERNS[name](text))
    parts, last = list[str](), 0
    for begin, end, label in sorted(spans, key=lambda span: (span[0], -span[1])):
        if begin >= last:
            parts += (text[last:begin], f"[{label}]")
        last = max(last, end)
    return "".join((*parts, text[last:]))


def redact_value(value: Any, patterns: Sequence[str], words: Sequence[str]) -> Any:
    """Return JSON with its texts, and its whole numbers, as `redact` leaves them."""
    if isinstance(value, str):
        return redact(value, patterns, words)
    if isinstance(value, int) and not isinstance(value, bool):
        shown = str(value)
        left = redact(shown, patterns, words)
        return value if left == shown else left
    if is_object(value):
        return {key: redact_value(one, patterns, words) for key, one in value.items()}
    if is_array(value):
        return [redact_value(one, patterns, words) for one in value]
    return value
