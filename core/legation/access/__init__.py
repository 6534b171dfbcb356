"""Access control: keys, tokens, scopes, and the decision.

`key_reading` is imported when it is asked for first: a platform without keys does not load it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from . import key_reading as key_reading
else:

    def __getattr__(name: str) -> Any:
        """Import `key_reading`.

        Raises:
            AttributeError: `name` is another.
        """
        if name != "key_reading":
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return __import__(f"{__name__}.{name}", fromlist=["__name__"])
