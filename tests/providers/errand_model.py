"""A model that runs errands: of each it wants five calls of tools, then it says that it is done.

It speaks chat completions as strictly as the real ones, and decides by the conversation alone: a
request that is sent again is answered as before.
"""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Mapping
from typing import Any, Final

from attrs import define, field

from .chat_completions import ChatCompletionsServer
from .model_server import Cut, Item, Said

__all__ = ["PLACES", "ROUNDS", "WORDS", "ErrandModel"]

ROUNDS: Final = (("note",), ("book", "look"), ("note",), ("book",))
"""The tools that are called in each round; an answer without calls follows."""
PLACES: Final = {
    f"{number}.{index}": name
    for number, names in enumerate(ROUNDS, 1)
    for index, name in enumerate(names, 1)
}
"""The tool of each call, by its place."""
WORDS: Final = ("All ", "of ", "it ", "is ", "done.")


@define(eq=False)
class ErrandModel(ChatCompletionsServer):
    """Answers a message that names an errand, after `seconds`.

    Attributes:
        asked: How often it was asked for each answer: by errand and round.
    """

    seconds: float = 0.1
    asked: Counter[tuple[str, int]] = field(factory=Counter[tuple[str, int]], init=False)

    def take(self, path: str, headers: Mapping[str, str], body: bytes) -> Item:
        """Judge a request, and answer it by what was said so far; one that is cut is none."""
        if len(body) < int(headers["content-length"]):
            return Cut()
        judged = super().take(path, headers, body)
        if self.broken or not isinstance(judged, Said):
            return judged
        time.sleep(self.seconds)
        messages: list[Mapping[str, Any]] = json.loads(body)["messages"]
        last = max(n for n, message in enumerate(messages) if message["role"] == "user")
        errand = messages[last]["content"]
        turn = sum(message["role"] == "assistant" for message in messages[last:]) + 1
        with self.lock:
            self.asked[errand, turn] += 1
        if turn > len(ROUNDS):
            return Said(WORDS, pause_seconds=self.seconds / len(WORDS))
        return Said(("One moment. ",), tuple(_calls(errand, turn)))


def _calls(errand: str, turn: int) -> list[tuple[str, str, str]]:
    named = enumerate(ROUNDS[turn - 1], 1)
    return [
        (f"call_{turn}_{n}", name, json.dumps({"errand": errand, "place": f"{turn}.{n}"}))
        for n, name in named
    ]
