"""Lists of runs as answers: the page that a query asks for, and the link to the next."""

from __future__ import annotations

from typing import Protocol

from attrs import evolve

from ..effects import Program, Transact
from ..http.messages import Answer, Headers
from ..store.run_pages import ReadRuns
from .call import Call
from .listing import Cursor, answer_list, encode_cursor, link_next

__all__ = ["RunsQuery", "answer_runs"]


class RunsQuery(Protocol):
    """The fields of a query of a list of runs."""

    @property
    def page(self) -> int:
        """The number of the page, from 1."""
        ...

    @property
    def limit(self) -> int:
        """The number of runs of a page."""
        ...

    @property
    def cursor(self) -> Cursor | None:
        """The number of the run behind which the page begins; it counts before `page`."""
        ...


def answer_runs(
    call: Call, database: str, listed: ReadRuns[bytes], query: RunsQuery
) -> Program[Answer]:
    """Return the page of `listed` that `query` asks for."""
    if query.cursor is None:
        listed = evolve(listed, size=query.limit, start=(query.page - 1) * query.limit)
    else:
        listed = evolve(listed, size=query.limit, after=query.cursor[0])
    page = yield from Transact(database, listed)
    more: Headers = ()
    if page.more:
        more = link_next(call.query, "cursor", encode_cursor((page.last,)))
    return answer_list(database, page, more=more)
