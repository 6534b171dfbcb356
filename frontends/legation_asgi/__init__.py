"""The core as an ASGI 3 application, for uvicorn, hypercorn and whatever mounts one.

app = Application(platform, lambda: open_host({"main": "sqlite:///legation.db"}))
"""

from __future__ import annotations

from .application import Answers, Application

__all__ = ["Answers", "Application"]
