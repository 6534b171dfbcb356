"""A stand-in for the API of Telegram, Slack or Meta: it takes one message, and keeps it.

    python3 provider.py

It listens at port 7778.  The message stands in `sent.json`; then the program ends.
"""

from __future__ import annotations

import json
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

PORT = 7778
SENT = Path("sent.json")

# What each of them says of who we are, and of a message that it has taken.
ANSWER = {
    "ok": True,
    "result": {"id": 110201543, "is_bot": True, "username": "guesthouse_bot", "message_id": 2},
    "user_id": "U0BOT",
    "bot_id": "B0BOT",
    "ts": "1767225600.000200",
    "messages": [{"id": "wamid.out"}],
}


class Provider(BaseHTTPRequestHandler):
    """Answers what the server asks, and keeps the message that it sends."""

    def do_GET(self) -> None:
        """Say who we are."""
        self.answer()

    def do_POST(self) -> None:
        """Keep what has a text."""
        body = self.rfile.read(int(self.headers["content-length"]))
        if b'"text"' in body:
            SENT.write_bytes(body)
        self.answer()

    def answer(self) -> None:
        """Answer as all of them would."""
        body = json.dumps(ANSWER).encode()
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object, **__: object) -> None:
        """Say nothing."""


def main() -> None:
    """Serve until a message was taken."""
    server = HTTPServer(("127.0.0.1", PORT), Provider)
    while not SENT.exists():
        server.handle_request()


if __name__ == "__main__":
    main()
