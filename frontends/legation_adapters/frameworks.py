"""The import of a framework, which is there only with its extra."""

from __future__ import annotations

from importlib import import_module
from typing import Any

__all__ = ["load"]


def load(module: str, extra: str) -> Any:
    """Return a module of a framework.

    Raises:
        ImportError: It is not installed; the text says how it is.
    """
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        if error.name is not None and error.name.partition(".")[0] == module.partition(".")[0]:
            raise ImportError(f"{module} is missing: pip install 'legation[{extra}]'") from None
        raise
