"""Models: the codecs of questions and answers, one for each protocol.

Those of providers are imported when they are asked for first: many platforms have no model yet, or
one provider's.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from . import anthropic as anthropic
    from . import chat_completions as chat_completions
    from . import transcription as transcription
else:

    def __getattr__(name: str) -> Any:
        """Import the module `name`.

        Raises:
            AttributeError: It is none of those that are late.
        """
        if name not in _LATE:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return __import__(f"{__name__}.{name}", fromlist=["__name__"])


_LATE: Final = frozenset({"anthropic", "chat_completions", "transcription"})
