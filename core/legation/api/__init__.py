"""The REST interface: routes as one table, the dispatcher, the handlers, the OpenAPI document.

`openapi` is imported when it is asked for first: many platforms are never asked to describe
themselves.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from . import openapi as openapi
else:

    def __getattr__(name: str) -> Any:
        """Import `openapi`.

        Raises:
            AttributeError: `name` is another.
        """
        if name != "openapi":
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return __import__(f"{__name__}.{name}", fromlist=["__name__"])
