"""The collections of AgentOS of which nothing is kept here yet.

Clients ask for each of them: a console when it opens a page, a gateway when it starts.  The answer
is that of AgentOS where there is nothing, under the scope that AgentOS asks for it.  A collection
that comes to be kept leaves this table for a handler of its own.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import attrs

from ...http.messages import Response, json_response
from ...values import frozen
from ..call import Call
from ..fields import integer, no_op
from ..route import Handler

__all__ = ["COLLECTIONS", "PAGE", "Collection", "list_nothing", "query_of"]

PAGE: Final = integer(
    "Page number for pagination", default=1, minimum=1, maximum=1_000_000, nullable=True
)


@frozen
class Collection:
    """One collection that is empty.

    Attributes:
        path: Of its list.
        operation: Its operation id; that of AgentOS, as are `tag`, `summary` and `answer`.
        resource: What its scope is on: `<resource>:read`.
        filters: The names of the query that pass without effect: of nothing, nothing is left out.
        body: The whole answer; None for a page, which says `page` and `limit` again.
        page_size: Of a page, unless the caller says.
        shape: The name of its schema in AgentOS; without one the schema has no name.
        answer: The description of its answer.
    """

    path: str
    operation: str
    tag: str
    summary: str
    resource: str
    filters: tuple[str, ...] = ()
    body: Any = None
    page_size: int = 20
    shape: str = ""
    answer: str = "Successful Response"


_WHERE: Final = ("user_id", "db_id", "table")
_SORTING: Final = ("sort_by", "sort_order", "db_id")
_OF: Final = ("agent_id", "team_id", "workflow_id")
_BETWEEN: Final = ("start_time", "end_time", "user_id", "db_id", *_OF)
_KNOWLEDGE: Final[Mapping[str, Any]] = {
    **{name: {} for name in ("readers", "readersForType", "chunkers")},
    **dict.fromkeys(("filters", "vector_dbs", "remote_content_sources"), ()),
}

COLLECTIONS: Final = (
    Collection(
        "/workflows",
        "get_workflows",
        "Workflows",
        "List All Workflows",
        "workflows",
        body=(),
        answer="List of workflows retrieved successfully",
    ),
    Collection(
        "/memories",
        "get_memories",
        "Memory",
        "List Memories",
        "memories",
        (*_WHERE, "agent_id", "team_id", "search_content", "topics", "sort_by", "sort_order"),
        shape="PaginatedResponse_UserMemorySchema_",
        answer="Memories retrieved successfully",
    ),
    Collection(
        "/memory_topics",
        "get_memory_topics",
        "Memory",
        "Get Memory Topics",
        "memories",
        _WHERE,
        body=(),
        answer="Memory topics retrieved successfully",
    ),
    Collection(
        "/user_memory_stats",
        "get_user_memory_stats",
        "Memory",
        "Get User Memory Statistics",
        "memories",
        _WHERE,
        shape="PaginatedResponse_UserStatsSchema_",
        answer="User memory statistics retrieved successfully",
    ),
    Collection(
        "/knowledge/content",
        "get_content",
        "Knowledge",
        "List Content",
        "knowledge",
        (*_SORTING, "knowledge_id"),
        shape="PaginatedResponse_ContentResponseSchema_",
        answer="Content list retrieved successfully",
    ),
    Collection(
        "/knowledge/config",
        "get_knowledge_config",
        "Knowledge",
        "Get Config",
        "knowledge",
        ("db_id", "knowledge_id"),
        body=_KNOWLEDGE,
        shape="ConfigResponseSchema",
        answer="Knowledge configuration retrieved successfully",
    ),
    Collection(
        "/eval-runs",
        "get_eval_runs",
        "Evals",
        "List Evaluation Runs",
        "evals",
        (*_SORTING, *_OF, "table", "model_id", "type", "eval_types"),
        shape="PaginatedResponse_EvalSchema_",
        answer="Evaluation runs retrieved successfully",
    ),
    Collection(
        "/traces",
        "get_traces",
        "Traces",
        "List Traces",
        "traces",
        (*_BETWEEN, "run_id", "session_id", "status"),
        shape="PaginatedResponse_TraceSummary_",
        answer="List of traces retrieved successfully",
    ),
    Collection(
        "/trace_session_stats",
        "get_trace_stats",
        "Traces",
        "Get Trace Statistics by Session",
        "traces",
        _BETWEEN,
        shape="PaginatedResponse_TraceSessionStats_",
        answer="Trace statistics retrieved successfully",
    ),
    Collection(
        "/metrics",
        "get_metrics",
        "Metrics",
        "Get AgentOS Metrics",
        "metrics",
        ("starting_date", "ending_date", "db_id", "table"),
        body={"metrics": (), "updated_at": None},
        shape="MetricsResponse",
        answer="Metrics retrieved successfully",
    ),
    Collection(
        "/schedules",
        "list_schedules_schedules_get",
        "Schedules",
        "List Schedules",
        "schedules",
        ("enabled",),
        page_size=100,
        shape="PaginatedResponse_ScheduleResponse_",
    ),
)


def query_of(collection: Collection) -> type[Any]:
    """Return the class of the fields that `collection` takes."""
    fields = {name: no_op(nullable=True) for name in collection.filters}
    if collection.body is None:
        fields["page"] = PAGE
        fields["limit"] = integer(
            "Number of items to return per page",
            default=collection.page_size,
            minimum=1,
            maximum=1000,
            nullable=True,
        )
    name = f"{collection.resource.capitalize()}Query"
    # Nobody compares or shows one, and without these methods a class is there in half the time.
    return attrs.make_class(name, fields, frozen=True, eq=False, repr=False)


def list_nothing(collection: Collection) -> Handler:
    """Return the handler that answers for `collection`."""

    def handler(_: Call, query: Any) -> Response:
        page = collection.body is None
        return json_response(200, _empty_page(query.page, query.limit) if page else collection.body)

    return handler


def _empty_page(page: int, limit: int) -> Mapping[str, Any]:
    counts = {"total_pages": 0, "total_count": 0, "search_time_ms": 0.0}
    return {"data": (), "meta": {"page": page, "limit": limit, **counts}}
