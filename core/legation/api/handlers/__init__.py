"""The handlers of the HTTP surface, one module for each kind of resource.

Most are imported when a request asks for one of their operations first.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

LATE: Final = frozenset(
    """access all_runs approvals audit audit_export channels config console databases
    docs forks incidents letters metrics nodes outgoing refusals replays run_changes run_summary
    session_export sessions users webhooks""".split()
)
"""The modules that are not imported with the table of routes."""

if TYPE_CHECKING:
    from . import audit as audit
    from . import channels as channels
    from . import console as console
    from . import databases as databases
    from . import metrics as metrics
else:

    def __getattr__(name: str) -> Any:
        """Import the module `name`.

        Raises:
            AttributeError: There is none of that name.
        """
        if name not in LATE:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return __import__(f"{__name__}.{name}", fromlist=["__name__"])
