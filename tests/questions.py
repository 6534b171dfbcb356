"""Questions of a newcomer, and the way to each answer: within two clicks, and by one search.

    python -m tests.questions HTML

types each into the search page of the documentation that is built in the folder HTML, in a real
browser, and fails where an answer is not among the first five pages.
"""

from __future__ import annotations

import re
import sys
import tomllib
from pathlib import Path, PurePosixPath
from posixpath import normpath
from typing import Final
from urllib.parse import quote, urlsplit

from attrs import frozen

from .browser import Browser, NoBrowser, browser
from .transcripts import DOCS

__all__ = ["Question", "answer", "find", "links", "main", "questions", "section"]

PLACES: Final = 5

_HEADING: Final = re.compile(r"^(#+) (.+)$", re.MULTILINE)
_LINK: Final = re.compile(r"\]\(([\w/.-]+)\.md(?:#[\w-]+)?\)")
_TREE: Final = re.compile(r"^```\{toctree\}\n(?::[^\n]*\n)*\n?(.*?)^```$", re.MULTILINE | re.DOTALL)

# The search page shows one result after the other, and says at the end how many there are.
_FOUND: Final = "/matching the search query|did not match/.test(document.body?.innerText)"
_RESULTS: Final = """
[...document.querySelectorAll("#search-results li > a")].map((link) => link.getAttribute("href"))
"""


@frozen
class Question:
    """A question, the clicks that lead to its answer, and the answer itself.

    Attributes:
        clicks: The pages, in order; the last one has the answer.
        search: Words that find this page.
        anchor: Where the answer begins.
        phrase: What the answer says, among other things.
    """

    question: str
    clicks: tuple[str, ...]
    search: str
    anchor: str
    phrase: str

    @property
    def page(self) -> str:
        """The page with the answer."""
        return self.clicks[-1]


def questions() -> tuple[Question, ...]:
    """Return the questions, in order."""
    read = tomllib.loads(Path(__file__).with_suffix(".toml").read_text("utf-8"))
    return tuple(
        Question(one["question"], tuple(one["clicks"]), one["search"], one["anchor"], one["phrase"])
        for one in read["question"]
    )


# --- Clicks --------------------------------------------------------------------------------------


def links(page: str) -> frozenset[str]:
    """Return the pages that a page links to, its table of contents included."""
    text = (DOCS / f"{page}.md").read_text("utf-8")
    trees = "\n".join(_TREE.findall(text))
    found = [*_LINK.findall(text), *(line.strip() for line in trees.splitlines() if line.strip())]
    folder = PurePosixPath(page).parent
    return frozenset(normpath(str(folder / one)) for one in found)


def section(page: str, anchor: str) -> str | None:
    """Return the text below an anchor, down to the next heading of its level; None without it."""
    text = (DOCS / f"{page}.md").read_text("utf-8")
    headings = list(_HEADING.finditer(text))
    for at, heading in enumerate(headings):
        if anchor not in (_slug(heading[2]), *_targets(text, heading.start())):
            continue
        level = len(heading[1])
        ends = (next_.start() for next_ in headings[at + 1 :] if len(next_[1]) <= level)
        return text[heading.end() : next(ends, len(text))]
    return None


def answer(question: Question) -> str | None:
    """Return the text that has the answer, on one line; None where its anchor is gone."""
    text = section(question.page, question.anchor)
    return None if text is None else " ".join(text.split())


def _slug(heading: str) -> str:
    """Return the anchor that MyST gives to a heading: the one of GitHub."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


def _targets(text: str, place: int) -> list[str]:
    """Return the explicit targets right before a place."""
    lines = text[:place].rstrip("\n").split("\n")
    return re.findall(r"^\(([\w-]+)\)=$", lines[-1])


# --- Search --------------------------------------------------------------------------------------


def find(page: Browser, html: Path, words: str) -> list[str]:
    """Return the pages that the search page finds, the best first, each of them once."""
    page.open()
    page.go(f"{(html / 'search.html').as_uri()}?q={quote(words)}")
    page.wait(_FOUND)
    found: list[str] = page.run(_RESULTS)
    names = [urlsplit(link).path.removesuffix(".html") for link in found]
    return list(dict.fromkeys(names))


def main(html: str) -> int:
    """Search for each answer; print those that are not among the first results."""
    missed = 0
    try:
        with browser() as page:
            for one in questions():
                found = find(page, Path(html).resolve(), one.search)[:PLACES]
                if one.page not in found:
                    missed += 1
                    sys.stdout.write(f"{one.question}\n  {one.search!r} finds {found}\n")
    except NoBrowser as reason:
        sys.stdout.write(f"nothing was searched: {reason}\n")
    return int(missed > 0)


if __name__ == "__main__":
    raise SystemExit(main(*sys.argv[1:]))
