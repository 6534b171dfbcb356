"""The examples work as they stand."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tomllib
from collections import Counter
from collections.abc import Callable, Generator
from contextlib import contextmanager
from functools import wraps
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlencode
from urllib.request import urlopen

import pytest
from attrs import define, evolve, field

from legation import Database, OpenAIModel, Platform, Tool
from legation.config import structure
from legation.effects import FetchReply
from legation.tools import as_tool
from legation_host.loading import from_file, load_platform
from legation_testing import Client, crash_everywhere

from .asgi_driver import AsgiDriver
from .frontends.hosted import hosted
from .providers.chat_completions import ChatCompletionsServer
from .providers.deliveries import ENVIRON, whatsapp
from .providers.model_server import KEY, Said, serving
from .storm_report import PAGE, PLUGIN, find_report
from .transcripts import ROOT, Exchange, Terminal

EXAMPLES: Final = ROOT / "examples"


def test_every_example_is_listed_and_run_here() -> None:
    here = {path.name for path in EXAMPLES.iterdir() if path.suffix in (".py", ".toml")}
    listed = {name for name in here if f"`{name}`" in (EXAMPLES / "README.md").read_text("utf-8")}

    assert here == listed
    assert here == {
        "booking.py",
        "booking.toml",
        "hotel.toml",
        "conftest.py",
        "mounted.py",
        "newsroom.py",
        "outside.py",
        "plain.py",
        "plain.toml",
        "provider.py",
        "shop.py",
        "test_booking.py",
        "test_hotel.py",
        "test_crashes.py",
        "serverless.py",
        "test_newsroom.py",
        "test_recordings.py",
        "test_serverless.py",
        "test_shop.py",
        "test_whatsapp.py",
        "test_wsgi.py",
        "threads.py",
        "whatsapp.toml",
        "wsgi.py",
    }


def test_tests_among_the_examples_pass_and_give_the_report_of_the_page(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *PLUGIN, str(EXAMPLES)],
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
        timeout=300,
    )

    assert done.returncode == 0, done.stdout + done.stderr
    assert find_report(done.stdout) == find_report(PAGE.read_text("utf-8"))


REPEATED: Final = (
    "test_booking.py::test_clear_bookings_twice_whenever_the_process_dies",
    "test_crashes.py::test_session_goes_on_after_the_crash",
    "test_crashes.py::test_what_was_answered_is_still_there",
    "test_newsroom.py::test_no_reporter_is_left_at_work_whenever_the_process_dies",
    "test_shop.py::test_state_knows_of_a_refund_just_where_the_run_does_wherever_it_crashes",
)
"""These crash at every effect, as another does that is tried; a plugin changes nothing there."""


def test_tests_among_the_examples_need_no_plugin_of_pytest() -> None:
    """What a checkout with `pip install . pytest` has."""
    left_out = [f"--deselect={name}" for name in REPEATED]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *left_out, "examples"],
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
        env={**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
        timeout=300,
    )

    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{len(REPEATED)} deselected" in done.stdout


def test_platform_in_python_and_as_a_file_are_the_same() -> None:
    in_python = load("plain").platform

    assert in_python.config == load_platform(str(EXAMPLES / "plain.toml"), {}).config


@pytest.mark.parametrize("named", ["plain:platform", "plain.toml"])
def test_plain_platform_is_served(tmp_path: Path, named: str) -> None:
    for name in ("plain.py", "plain.toml"):
        (tmp_path / name).write_text((EXAMPLES / name).read_text("utf-8"), "utf-8")
    with Terminal(tmp_path) as terminal:
        terminal.expect(Exchange(f"legation serve {named}", "Front office is served at …"))
        asked = "curl -s http://127.0.0.1:7777/teams/desk/runs -F message=hello -F stream=false"
        terminal.expect(Exchange(asked, '{…"team_id":"desk",…"content":"hello",…}'))


SERVED = [
    (
        "booking:platform",
        "Hotel is served at …",
        "agents/desk/runs -F 'message=Book the blue room for 2 nights'",
        '{…"content":"I have tools to execute, but I need confirmation.",…"status":"PAUSED",…}',
    ),
    (
        "newsroom:platform",
        "Newsroom is served at …",
        "teams/front-page/runs -F 'message=What is new in Oslo?'",
        '{…"content":"Oslo: rain by noon. Oslo: the bridge is closed. Oslo: Vålerenga won.",…}',
    ),
]


@pytest.mark.parametrize(("named", "said", "asked", "answer"), SERVED)
def test_agents_of_the_examples_are_served(
    tmp_path: Path, named: str, said: str, asked: str, answer: str
) -> None:
    name = f"{named.partition(':')[0]}.py"
    (tmp_path / name).write_text((EXAMPLES / name).read_text("utf-8"), "utf-8")
    with Terminal(tmp_path) as terminal:
        terminal.expect(Exchange(f"legation serve {named}", said))
        terminal.expect(Exchange(f"curl -s http://127.0.0.1:7777/{asked} -F stream=false", answer))


# --- a real model --------------------------------------------------------------------------------


def post(address: str, path: str, **form: str) -> Any:
    data = urlencode({"stream": "false", **form}).encode()
    with urlopen(f"{address}{path}", data, timeout=20) as response:
        return json.load(response)


def test_booking_runs_on_any_endpoint_of_chat_completions(tmp_path: Path) -> None:
    wants = ("call_1", "book_room", '{"room": "blue", "nights": 2}')
    api = ChatCompletionsServer([Said(("",), (wants,)), Said(("It is ", "booked."))])
    with serving(api) as endpoint:
        config = structure(tomllib.loads((EXAMPLES / "booking.toml").read_text("utf-8")))
        (model,) = config.models
        assert isinstance(model, OpenAIModel)
        url = f"sqlite:///{tmp_path}/hotel.db"
        config = evolve(
            load_platform(str(EXAMPLES / "booking.toml"), {"OPENAI_API_KEY": KEY}).config,
            models=[evolve(model, base_url=f"{endpoint}/v1", api_key_env="OPENAI_API_KEY")],
            databases=[Database("main", url)],
        )
        platform = Platform.from_config(config, environ={"OPENAI_API_KEY": KEY})
        with hosted(platform) as address:
            paused = post(address, "/agents/desk/runs", message="The blue room, two nights")
            tools = [{**r["tool_execution"], "confirmed": True} for r in paused["requirements"]]
            path = f"/agents/desk/runs/{paused['run_id']}/continue"
            run = post(address, path, tools=json.dumps(tools))

    assert api.broken == []
    assert (paused["status"], run["content"]) == ("PAUSED", "It is booked.")
    assert api.seen[1].body["messages"][-1]["content"].startswith("The blue room is yours")
    assert [tool["function"]["name"] for tool in api.seen[0].body["tools"]] == [
        "free_rooms",
        "book_room",
    ]


# --- crashes -------------------------------------------------------------------------------------

KEEPS_SECONDS: Final = 60.0
"""After this long a dead node's runs are ended."""

SIGNED: Final = {
    "WHATSAPP_APP_SECRET": ENVIRON["APP_SECRET"],
    "WHATSAPP_VERIFY_TOKEN": "a-word",
    "WHATSAPP_ACCESS_TOKEN": "EAAG-token",
}


@define
class Tale:
    """Something to do with an example, and every function of the user's that was called."""

    example: str
    act: Callable[[Client], object]
    kind: str = "agent"
    hosted: str = "concierge"
    members: tuple[str, ...] = ()
    called: list[str] = field(factory=list[str])

    def make(self) -> Client:
        self.called.clear()
        if self.example == "whatsapp":
            path = EXAMPLES / "whatsapp.toml"
            reply = FetchReply(200, {}, b'{"messages":[{"id":"wamid.out"}]}')
            return Client(lambda: from_file(path, SIGNED), fetch=lambda _: reply)
        config = load(self.example).platform.config
        agents = [
            evolve(
                agent,
                tools=[self.counted_tool(as_tool(made)) for made in agent.tools],
                run=agent.run if agent.again == "safe" else self.counted(agent.run),
            )
            for agent in config.agents
        ]
        return Client(lambda: Platform.from_config(evolve(config, agents=agents)))

    def counted_tool(self, made: Tool) -> Tool:
        return evolve(made, function=self.counted(made.function)) if made.again == "never" else made

    def counted(self, function: Any) -> Any:
        """Return `function`, which must not be called twice, with its calls counted."""
        if function is None:
            return None

        @wraps(function)
        def called(*args: Any, **kwargs: Any) -> Any:
            self.called.append(function.__name__)
            return function(*args, **kwargs)

        return called

    def check(self, client: Client) -> None:
        """What may be called once was called once, and nothing is left at work."""
        client.advance(KEEPS_SECONDS)
        twice = [name for name, times in Counter(self.called).items() if times > 1]
        assert twice == []
        runs = self.runs(client, f"/{self.kind}s/{self.hosted}")
        assert len(runs) <= 1
        for run in [*runs, *(r for m in self.members for r in self.runs(client, f"/agents/{m}"))]:
            assert run["status"] in ("PAUSED", "COMPLETED", "ERROR")
            if run["status"] == "ERROR":
                assert "interrupted" in run["content"] or "is part of" in run["content"]

    def runs(self, client: Client, path: str) -> list[Any]:
        """Return the runs of the session, which is the only one there is."""
        query = {"type": self.kind, "component_id": self.hosted}
        sessions = client.get("/sessions", query=query).json()["data"]
        assert len(sessions) <= 1
        return [
            run
            for session in sessions
            for run in client.get(
                f"{path}/runs", query={"session_id": session["session_id"]}
            ).json()
        ]


def ask(path: str, message: str) -> Callable[[Client], Any]:
    form = {"message": message, "stream": "false"}
    return lambda client: client.post(f"{path}/runs", form=form).expect_success().json()


def book(client: Client) -> None:
    paused = ask("/agents/desk", "Book the blue room for 2 nights")(client)
    tools = [{**needed["tool_execution"], "confirmed": True} for needed in paused["requirements"]]
    form = {"tools": json.dumps(tools), "stream": False}
    client.post(f"/agents/desk/runs/{paused['run_id']}/continue", form=form).expect_success()


def write(client: Client) -> None:
    sent = whatsapp(("4915112345", "wamid.1", "Hello"))
    client.post("/chat/webhook", headers=sent.headers, body=sent.body).expect_success()
    client.advance(5)


TALES = [
    Tale("plain", ask("/agents/concierge", "hello")),
    Tale("plain", ask("/teams/desk", "hello"), "team", "desk", ("concierge", "archivist")),
    Tale("booking", ask("/agents/desk", "A room for 130?"), hosted="desk"),
    Tale("booking", book, hosted="desk"),
    Tale(
        "newsroom",
        ask("/teams/front-page", "What is new in Oslo?"),
        "team",
        "front-page",
        ("weather", "traffic", "sports"),
    ),
    Tale("whatsapp", write),
]


@pytest.mark.parametrize(
    "tale", TALES, ids=[f"{t.example}-{t.hosted}-{n}" for n, t in enumerate(TALES)]
)
def test_no_crash_does_anything_twice_or_leaves_anything_at_work(
    tale: Tale, figures: Callable[[str], None]
) -> None:
    tried = crash_everywhere(tale.make, tale.act, tale.check)

    assert tried.points > 20
    figures(
        f"examples: {tale.example}, {tale.kind} {tale.hosted}: "
        f"a crash at each of {tried.points} effects, {tried.by_effect['Transact']} of them "
        "transactions: nothing was called twice, nothing is left at work"
    )


# --- mounted -------------------------------------------------------------------------------------


@contextmanager
def working_in(folder: Path) -> Generator[None]:
    before = Path.cwd()
    os.chdir(folder)
    try:
        yield
    finally:
        os.chdir(before)


def load(name: str) -> Any:
    spec = spec_from_file_location(f"example_{name}", EXAMPLES / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


async def test_mounted_platform_answers_below_its_mount(tmp_path: Path) -> None:
    with working_in(tmp_path):
        server = AsgiDriver(load("mounted").app)

        assert (await server.get("/mission/health"))[0] == 503
        async with server.alive():
            assert (await server.get("/"))[1] == b"The agents are below /mission.\n"
            assert (await server.get("/mission/agents"))[1].startswith(b'[{"id":"concierge"')
            assert (await server.get("/v1/mission/health", "/v1"))[0] == 200
            assert (await server.get("/missionary"))[1].startswith(b"The agents")
