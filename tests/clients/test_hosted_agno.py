"""The module of the page for people who come from AgentOS, hosted with its three changed lines.

The client of AgentOS 2.5.6 asks; agno itself runs the agent, against a model on loopback.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Generator, Mapping
from typing import Any, Final, TypeAlias

import pytest

from ..adapters.agno_model import AgnoModel, call
from ..ports import free_port
from ..providers.model_server import KEY, Item, Said, serving
from ..transcripts import ROOT, blocks
from .processes import started, until_alive

pytest.importorskip("agno", reason="the client of AgentOS is installed by nox -s agentos-client")
client_module: Any = pytest.importorskip("agno.client")
http_module: Any = pytest.importorskip("agno.utils.http")
httpx: Any = pytest.importorskip("httpx")

# The client leaves its connections to the collector.
OPTIONS: Final = ("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")
pytestmark = [pytest.mark.filterwarnings(option) for option in OPTIONS]

Ask: TypeAlias = Callable[[Callable[[Any], Awaitable[Any]]], Any]

EVENING: Final = {"evening": "Friday", "guests": 2}
FOUND: Final = "Table 7 is free on Friday, for 2 guests"
BOOKED: Final = "Table 7 is booked for Friday"


def read_page() -> tuple[str, str]:
    """Return the module as an AgentOS, and the diff."""
    page = blocks(ROOT / "docs/howto/agentos.md")
    (module,) = (block.text for block in page if block.caption == "restaurant.py")
    (diff,) = (block.text for block in page if block.language == "diff")
    return module, diff


def apply(diff: str, module: str) -> str:
    """Return `module` with each run of lines that is taken away replaced by that put in."""
    for taken, put in re.findall(r"((?:^-.*\n)+)((?:^\+.*\n?)+)", diff, re.MULTILINE):
        before, after = (re.sub("^[-+]", "", lines, flags=re.MULTILINE) for lines in (taken, put))
        assert module.count(before) == 1
        module = module.replace(before, after)
    return module


def answer(messages: list[Mapping[str, Any]]) -> Item:
    """Find a table, book it, and say what came of it."""
    last = messages[-1]
    if last["role"] == "user":
        return Said(("One ", "moment. "), (call("c1", "find_table", **EVENING),))
    if last["content"] == FOUND:
        return Said((), (call("c2", "book_table", table=7, evening="Friday"),))
    return Said((last["content"],))


@pytest.fixture(scope="module")
def ask(tmp_path_factory: pytest.TempPathFactory) -> Generator[Ask]:
    """Runs a coroutine function on a client of the hosted module; all in one loop."""
    folder = tmp_path_factory.mktemp("restaurant")
    module, diff = read_page()
    (folder / "restaurant.py").write_text(apply(diff, module), "utf-8")
    model = AgnoModel(answer=answer)
    address = f"http://127.0.0.1:{free_port()}"
    with serving(model) as provider, pytest.MonkeyPatch.context() as patched:
        patched.setenv("OPENAI_API_KEY", KEY)
        patched.setenv("OPENAI_BASE_URL", f"{provider}/v1")
        port = address.rpartition(":")[2]
        command = ("-m", "legation_cli", "serve", "restaurant:platform", "--port", port)
        with started(folder, "served", *command) as said, asyncio.Runner() as runner:
            until_alive(address, said)

            http_module.set_default_async_client(httpx.AsyncClient())  # of others, on their loops

            def run(act: Callable[[Any], Awaitable[Any]]) -> Any:
                async def main() -> Any:
                    return await act(client_module.AgentOSClient(address, timeout=20))

                return runner.run(main())

            yield run
    assert model.broken == []


def test_three_lines_of_the_module_change() -> None:
    module, diff = read_page()
    changed = apply(diff, module)

    assert [line[0] for line in diff.splitlines()] == ["-", "+", "+", "-", "-", "+"]
    assert len(changed.splitlines()) == len(module.splitlines())
    compile(changed, "restaurant.py", "exec")


def test_run_pauses_and_goes_on(ask: Ask) -> None:
    async def act(client: Any) -> Any:
        paused = await client.run_agent("concierge", "A table for two", session_id="s1")
        (needed,) = paused.requirements
        needed.confirm()
        return paused, await client.continue_agent_run(
            "concierge", paused.run_id, [needed.tool_execution], session_id="s1"
        )

    paused, run = ask(act)

    assert str(getattr(paused.status, "value", paused.status)) == "PAUSED"
    assert [tool.tool_name for tool in paused.tools] == ["find_table", "book_table"]
    assert paused.tools[0].result == FOUND
    assert run.content.endswith(BOOKED)
    assert [(tool.tool_name, tool.result) for tool in run.tools] == [
        ("find_table", FOUND),
        ("book_table", BOOKED),
    ]
    assert run.metrics.input_tokens == 21


def test_stream_has_the_events_of_agno(ask: Ask) -> None:
    async def act(client: Any) -> Any:
        return [event async for event in client.run_agent_stream("concierge", "A table for two")]

    events = ask(act)

    assert events[0].event == "RunStarted"
    assert events[-1].event == "RunPaused"
    assert "".join(e.content for e in events if e.event == "RunContent") == "One moment. "
    assert [e.tool.tool_name for e in events if e.event == "ToolCallCompleted"] == ["find_table"]


def test_tools_that_are_refused_are_not_called(ask: Ask) -> None:
    async def act(client: Any) -> Any:
        paused = await client.run_agent("concierge", "A table for two")
        (needed,) = paused.requirements
        needed.reject("we are closed")
        return await client.continue_agent_run("concierge", paused.run_id, [needed.tool_execution])

    run = ask(act)

    assert run.content.endswith("we are closed")
