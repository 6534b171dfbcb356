"""Legation as an ASGI 3 application, for uvicorn, hypercorn and whatever mounts one.

app = asgi(Platform(agents=[Agent(id="concierge")]))      # uvicorn my_module:app
"""

from __future__ import annotations

from .application import Application, asgi

__all__ = ["Application", "asgi"]
