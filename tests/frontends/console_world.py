"""A small office that the console is tried on: what it hosts, and what has happened there.

`world` serves it in this process; `platform` is what `legation serve` finds, in a process that may
be killed.  Its model does as the message says, so that nothing has to be arranged in between.
"""

from __future__ import annotations

import json
import os
import sqlite3
import time
import urllib.error
import urllib.request
from collections.abc import Generator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlencode

from attrs import define, frozen

from legation import Agent, AuthorizationConfig, Channel, Database, Platform, Team, tool
from legation.models.conversation import ModelFailed, Prompt
from legation_server import Settings
from legation_testing import Says, ScriptedModel, call

from ..callers import Issuer
from ..providers.deliveries import ENVIRON, whatsapp
from ..providers.server import Faults, listening
from ..providers.strict import WhatsAppApi
from .hosted import hosted

__all__ = [
    "BRIEF",
    "PLANTED",
    "World",
    "ask",
    "copy_run",
    "environment",
    "office",
    "platform",
    "world",
]

PLANTED: Final = (
    "<script>window.ran = 1</script>",
    "<img src=x onerror='window.ran = 1'>",
    "<svg onload='window.ran = 1'></svg>",
    "<svg><script>window.ran = 1</script></svg>",
    "<iframe src='javascript:parent.ran = 1'></iframe>",
    "<iframe srcdoc='<script>parent.ran = 1</script>'></iframe>",
    "<a href='javascript:window.ran = 1' autofocus onfocus='window.ran = 1'>click</a>",
    "<input autofocus onfocus='window.ran = 1'>",
    "<details open ontoggle='window.ran = 1'>x</details>",
    "<video><source onerror='window.ran = 1'></video>",
    "<body onload='window.ran = 1'>",
    "<math><mtext></mtext><style><img src=x onerror='window.ran = 1'></style></math>",
    "<template><script>window.ran = 1</script></template>",
    "<object data='data:text/html,<script>parent.ran = 1</script>'></object>",
    "<form action='javascript:window.ran = 1'><button autofocus>x</button></form>",
    "<meta http-equiv=refresh content='0;url=javascript:window.ran=1'>",
    "<base href='https://other.test/'><script src='x.js'></script>",
    "javascript:window.ran = 1",
    '"><script>window.ran = 1</script>',
    "</title></textarea></style></script><script>window.ran = 1</script>",
)
"""What somebody writes who hopes that a page runs it."""

BRIEF: Final = Settings(grace_seconds=0.1)
"""A browser keeps its connections; nobody has to wait for them at the end."""

_DONE: Final = "Done."


def _answer(prompt: Prompt) -> Says:
    """Do as the last message says: `pay`, `look up`, `fail`, or repeat it."""
    last = prompt.messages[-1]
    if last.role == "tool":
        return Says((f"{_DONE} ", last.content[:2_000]))
    words = last.content
    if words.startswith("pay "):
        to = words.removeprefix("pay ")
        calls = [call("look_up", name=to), call("pay", to=to, amount=120)]
        return Says(("Let me see. ",), calls=calls)
    if words.startswith("look up "):
        return Says(calls=[call("look_up", name=words.removeprefix("look up "))])
    if words.startswith("ask "):
        return Says(calls=[call("delegate_task_to_member", member_id="clerk", task=words[4:])])
    if words.startswith("fail"):
        return Says(fails=ModelFailed("overloaded", "The model is overloaded"))
    return Says(("You said: ", words))


def _wait(gate: str) -> None:
    """Wait until the file `gate` is there, where one is named."""
    due = time.monotonic() + 60
    while gate and not Path(gate).exists() and time.monotonic() < due:
        time.sleep(0.02)


def office(
    database: str,
    base: str,
    authorization: AuthorizationConfig | None,
    *,
    gate: str = "",
    title: str = "",
    **configuration: Any,
) -> Platform:
    """Return the platform: a clerk who may pay when somebody agrees, a guest book, their desk.

    Args:
        gate: A file that a payment waits for.
        title: The name of the clerk.
    """

    @tool(requires_confirmation=True, again="safe")
    def pay(to: str, amount: int) -> str:
        """Pay an amount of money to somebody."""
        _wait(gate)
        return f"{amount} paid to {to}"

    @tool(again="safe")
    def look_up(name: str) -> str:
        """Look a name up in the register."""
        return f"{name}: a hotel in Berlin"

    model = ScriptedModel([_answer] * 100_000)
    whatsapp_channel = Channel(
        id="front-desk",
        kind="whatsapp",
        agent="guestbook",
        app_secret_env="APP_SECRET",
        verify_token_env="VERIFY",
        access_token_env="ACCESS",
        phone_number_id="111",
        api_base_url=f"{base}/v22.0",
    )
    archive = database.replace("office.db", "archive.db")
    clerk = Agent(
        id="clerk", name=title or "Clerk", model=model, tools=[look_up, pay], database="main"
    )
    return Platform(
        id="office",
        name="The Office",
        authorization=authorization is not None,
        authorization_config=authorization or AuthorizationConfig(),
        databases=[Database("main", database), Database("archive", archive)],
        agents=[clerk, Agent(id="guestbook", name="Guest book", database="main")],
        teams=[
            Team(
                id="desk",
                name="Desk",
                members=("clerk", "guestbook"),
                model=model,
                database="main",
            )
        ],
        channels=[whatsapp_channel],
        environ=ENVIRON,
        **configuration,
    )


def environment(folder: Path, base: str, issuer: Issuer, gate: Path) -> dict[str, str]:
    """Return what `platform` reads in another process."""
    return {
        "OFFICE_DATABASE": f"sqlite:///{folder / 'office.db'}",
        "OFFICE_BASE": base,
        "OFFICE_KEY": issuer.pem,
        "OFFICE_GATE": str(gate),
    }


def platform() -> Platform:
    """Return the platform that `environment` describes."""
    keys = (os.environ["OFFICE_KEY"],)
    authorization = AuthorizationConfig(verification_keys=keys, algorithm="RS256")
    url, base = os.environ["OFFICE_DATABASE"], os.environ["OFFICE_BASE"]
    gate = os.environ["OFFICE_GATE"]
    return office(url, base, authorization, gate=gate, lease_seconds=5.0)


def copy_run(file: Path, run_id: str, times: int) -> str:
    """Copy a run of a SQLite database, each copy a second older; return the id of the newest."""
    with closing(sqlite3.connect(file, timeout=60)) as database, database:
        names = [str(row[1]) for row in database.execute("pragma table_info(runs)")]
        changed = {
            "run_no": "run_no + i",
            "run_id": "substr(run_id, 1, 24) || printf('%012d', i)",
            "created_us": "created_us - i * 1000000",
        }
        columns = ", ".join(changed.get(name, name) for name in names)
        database.execute(
            f"""with recursive n(i) as (select 1 union all select i + 1 from n where i < {times})
            insert into runs ({", ".join(names)}) select {columns} from runs, n where run_id = ?""",
            (run_id,),
        )
    return f"{run_id[:24]}{1:012d}"


@frozen
class Answer:
    """What a route answered."""

    status: int
    body: Any


def ask(
    origin: str, token: str, method: str, path: str, form: dict[str, str] | None = None
) -> Answer:
    """Ask a route as a program does."""
    data = None if form is None else urlencode(form).encode()
    headers = {"authorization": f"Bearer {token}"}
    request = urllib.request.Request(f"{origin}{path}", data, headers, method=method)
    try:
        with urllib.request.urlopen(request, timeout=20) as reply:
            return Answer(reply.status, json.loads(reply.read() or b"null"))
    except urllib.error.HTTPError as error:
        with error:
            return Answer(error.code, error.read().decode())


@define(eq=False)
class World:
    """The office, served; who signs its tokens; and the provider of its channel."""

    origin: str
    issuer: Issuer
    provider: WhatsAppApi
    faults: Faults

    def token(self, *scopes: str, sub: str = "ada", **claims: Any) -> str:
        """Return a token of ten minutes."""
        now = int(time.time())
        return self.issuer.token(*scopes, sub=sub, **{"iat": now, "exp": now + 600, **claims})

    def ask(self, method: str, path: str, form: dict[str, str] | None = None) -> Answer:
        """Ask as an administrator whose name is Ada."""
        return ask(self.origin, self.token("platform:admin"), method, path, form)

    def run(self, message: str, component: str = "agents/clerk", **form: str) -> dict[str, Any]:
        """Have a run, as Bob, whom the console does not belong to."""
        told = {"message": message, "stream": "false", **form}
        token = self.token("agents:run", "teams:run", sub="bob")
        answer = ask(self.origin, token, "POST", f"/{component}/runs", told)
        assert answer.status == 200, answer
        return dict(answer.body)

    def answer(self, run: dict[str, Any], *, confirmed: bool) -> None:
        """Answer what a run waits for, as Bob."""
        asked = run["requirements"][0]["tool_execution"]
        form = {"tools": json.dumps([{**asked, "confirmed": confirmed}]), "stream": "false"}
        path = f"/agents/clerk/runs/{run['run_id']}/continue"
        token = self.token("agents:run", sub="bob")
        assert ask(self.origin, token, "POST", path, form).status == 200

    def outcome(self, run: dict[str, Any]) -> tuple[str, bool, str | None]:
        """Return how a run ended, once it has, and how its payment was answered."""
        due = time.monotonic() + 20
        token = self.token("runs:read")
        while True:
            found = ask(self.origin, token, "GET", f"/agents/clerk/runs/{run['run_id']}").body
            if found["status"] not in ("PENDING", "RUNNING", "PAUSED"):
                (call,) = (one for one in found["tools"] if one["tool_name"] == "pay")
                return found["status"], call["confirmed"], call["confirmation_note"]
            assert time.monotonic() < due, found
            time.sleep(0.02)

    def deliver(self, messages: Sequence[tuple[str, str, str]]) -> None:
        """Deliver messages of people on the channel: sender, id and text."""
        sent = whatsapp(*messages)
        target = sent.target.replace("/whatsapp/", "/front-desk/")
        url = f"{self.origin}{target}"
        request = urllib.request.Request(url, sent.body, dict(sent.headers), method="POST")
        with urllib.request.urlopen(request, timeout=20) as reply:
            assert reply.status == 200

    def until_sent(self, *recipients: str) -> None:
        """Wait until the provider has taken a message for each of these."""
        due = time.monotonic() + 20
        while {seen.recipient for seen in self.provider.seen} != set(recipients):
            assert time.monotonic() < due, self.provider.seen
            time.sleep(0.02)

    def until_dead(self, number: int) -> None:
        """Wait until so many replies are dead letters."""
        due = time.monotonic() + 20
        while True:
            (channel,) = self.ask("GET", "/channels").body
            if channel["replies"]["dead"] >= number:
                return
            assert time.monotonic() < due, channel
            time.sleep(0.05)


@contextmanager
def world(folder: Path, *, mount: str = "", **configuration: Any) -> Generator[World]:
    """Serve the office until the block ends."""
    issuer, provider, faults = Issuer(), WhatsAppApi(), Faults()
    with listening(provider, faults) as base:
        url = f"sqlite:///{folder / 'office.db'}"
        served = office(url, base, issuer.authorization(), **configuration)
        with hosted(served, BRIEF) as origin:
            yield World(f"{origin}{mount}", issuer, provider, faults)
