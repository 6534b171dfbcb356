"""The search of the built documentation leads to the page that a reader wants.

`python built_search.py FOLDER` reads the index of a build by the rule of its search: a page
is found when each word of the query is in it, stop words aside.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any, Final

from sphinx.search.en import SearchEnglish

__all__ = ["QUERIES", "search"]

QUERIES: Final = {
    "human in the loop": "howto/approvals",
    "streaming": "howto/streaming",
    "rate limit": "howto/limits",
    "timeout": "howto/retries",
    "retention": "howto/retention",
    "idempotency": "howto/retries",
    "webhook retry": "howto/channels",
    "structured output": "howto/structured-output",
    "state": "howto/sessions",
    "upload": "howto/files",
    "backup": "howto/production",
    "OpenAI key": "howto/models",
}
"""Queries, each with a page that has to be among those that are found."""


def search(index: dict[str, Any], query: str) -> set[str]:
    """Return the pages in which each word of `query` stands."""
    language: Any = SearchEnglish({})
    words: list[str] = [word for word in query.lower().split() if word not in language.stopwords]
    found = [_pages(index, language.stem(word)) | _pages(index, word) for word in words]
    return {index["docnames"][page] for page in set.intersection(*found)}


def _pages(index: dict[str, Any], word: str) -> set[int]:
    pages: set[int] = set()
    for kind in ("terms", "titleterms"):
        numbers = index[kind].get(word, [])
        pages |= {numbers} if isinstance(numbers, int) else set(numbers)
    return pages


def _find_missing(folder: Path) -> str:
    text = (folder / "searchindex.js").read_text("utf-8")
    index = json.loads(text.removeprefix("Search.setIndex(").rstrip().removesuffix(")"))
    missing = [query for query, page in QUERIES.items() if page not in search(index, query)]
    return "\n".join(f"the search for {one!r} does not find {QUERIES[one]}" for one in missing)


if __name__ == "__main__":
    sys.exit(_find_missing(Path(sys.argv[1])) or 0)
