"""The HTTP surface as an OpenAPI 3.1.0 document (https://spec.openapis.org/oas/v3.1.0).

What the route table knows is taken from it (`document`); `operations` adds what each operation
takes and answers, `schemas` the shapes, one place each.
"""

from __future__ import annotations

from . import custom as custom
from . import document as document
from .operations import OPERATIONS, Operation

__all__ = ["OPERATIONS", "Operation"]
