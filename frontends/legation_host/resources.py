"""The resources of a host: what it performs effects with."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from anyio.abc import TaskGroup
from attrs import field

from legation.values import define

from .audit import Trail
from .databases import Database
from .fetch import Fetcher
from .functions import Functions
from .hints import Hints
from .hub import Hub
from .logs import ShowError, Write, hide_error
from .native import Native, Start
from .pace import Pace

if TYPE_CHECKING:  # a host without a platform does not load the migrations
    from legation.migrations.schema_guard import SchemaGuard

__all__ = ["Resources"]


@define(eq=False)
class Resources:
    """The resources of one host, all of one event loop.

    Attributes:
        clock: Microseconds since the epoch, UTC.
        entropy: As many unpredictable bytes as asked for.
        node: The name of this process.
        tasks: What goes on beside the programs; cancelled when the host closes.
        start: Starts a task there.
        native: Makes the events and scopes of the event loop.
        hints: Of each database whose other nodes can be heard.
        show_error: Takes what programs raised, beside the line that the log has for it.
        guard: Is asked at each `Transact`; None where programs bring their own, or need none.
    """

    databases: Mapping[str, Database]
    clock: Callable[[], int]
    entropy: Callable[[int], bytes]
    node: str
    write: Write
    fetcher: Fetcher
    functions: Functions
    trail: Trail
    tasks: TaskGroup
    start: Start
    native: Native
    hub: Hub = field(factory=Hub)
    pace: Pace = field(factory=Pace)
    hints: Mapping[str, Hints] = field(factory=dict[str, Hints])
    show_error: ShowError = hide_error
    guard: SchemaGuard | None = None
