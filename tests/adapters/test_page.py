"""The page on hosted frameworks: each of its examples is served as it stands, and answers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import pytest

from legation_testing import Client

from ..providers.chat_completions import ChatCompletionsServer
from ..providers.model_server import KEY, Said, serving
from ..transcripts import DOCS, Block, blocks

sdk: Any = pytest.importorskip("agents", reason="nox -s adapters installs it")
pytest.importorskip("agno")
pytest.importorskip("langchain_openai")
pytest.importorskip("pydantic_ai")

EXAMPLES: Final = [
    block for block in blocks(DOCS / "howto/adapters.md") if block.language == "python"
]

# The clients of the examples are closed by nobody.
pytestmark = [
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[ChatCompletionsServer]:
    made = ChatCompletionsServer([Said(("How can ", "I help?"))])
    with serving(made) as address:
        monkeypatch.setenv("OPENAI_API_KEY", KEY)
        monkeypatch.setenv("OPENAI_BASE_URL", f"{address}/v1")
        sdk.set_default_openai_api("chat_completions")
        yield made
        sdk.set_default_openai_api("responses")


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda block: block.caption)
def test_an_example_answers(example: Block, server: ChatCompletionsServer) -> None:
    names: dict[str, Any] = {}
    exec(compile(example.text, str(example.caption), "exec"), names)
    with Client(names["platform"]) as client:
        (agent,) = client.get("/agents").json()
        run = client.run(agent["id"], "hello")

    assert (run.status, run.content) == ("COMPLETED", "How can I help?")
    assert server.broken == []


def test_every_framework_has_an_example() -> None:
    text = "".join(example.text for example in EXAMPLES)

    for name in ("agno", "pydantic_ai", "openai_agents", "langgraph"):
        assert f"from legation_adapters.{name} import hosted" in text
