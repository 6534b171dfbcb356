"""Runs that wait for people, in two databases, of several users, for the tests of their lists."""

from __future__ import annotations

import json
from typing import Any, Final

from cryptography.hazmat.primitives.asymmetric import ed25519

from legation import Agent, Model, Platform, Team, tool
from legation.models.conversation import ModelFailed
from legation_testing import Client, ScriptedModel, call

from .callers import NOW, Issuer
from .two_databases import IN_MEMORY

__all__ = ["ISSUER", "OWN", "Office", "begin", "token"]

ISSUER: Final = Issuer(ed25519.Ed25519PrivateKey.generate())
OWN: Final = ("agents:run", "teams:run")


def token(sub: str, *scopes: str, **claims: Any) -> str:
    """Return the token of `sub`; one that only runs agents and teams, unless scopes are named."""
    return ISSUER.token(*(scopes or OWN), sub=sub, **{"exp": NOW + 1_000_000, **claims})


class Office:
    """Agents that ask before they delete, and what was deleted.

    `clerk` asks once and `twice` two times; `hand` leaves its call to the client; `echo` asks
    nothing, nor does `slow`.  `keeper` is as `clerk`, in the other database; the team `desk` has
    one as well.
    """

    def __init__(self) -> None:
        self.deleted: list[str] = []
        once = (call("delete", path="/x"), "Done.")
        asked = call("delegate_task_to_member", member_id="member", task="tidy up")
        scripts: dict[str, tuple[Any, ...]] = {
            "clerk": once,
            "twice": (once[0], call("delete", path="/y"), ""),
            "hand": (call("shell", command="ls"), "Listed."),
            "broken": (ModelFailed("refused", "The model refused"),),
            "keeper": once,
            "member": once,
            "desk": (asked, "Good."),
        }
        # Each goes on where it was, also in another process.
        self.models = {name: ScriptedModel([*steps] * 20) for name, steps in scripts.items()}

    def platform(self, **more: Any) -> Platform:
        """Return the platform anew, as after a start."""

        @tool(requires_confirmation=True)
        def delete(path: str) -> str:
            """Delete a file."""
            self.deleted.append(path)
            return f"{path} is gone"

        @tool(external_execution=True)
        def shell(command: str) -> str:
            """Run a command."""
            raise AssertionError

        tools: Any = [delete, shell]
        models = self.models
        return Platform(
            agents=(
                Agent(id="clerk", name="The clerk", model=models["clerk"], tools=tools),
                Agent(id="twice", model=models["twice"], tools=tools),
                Agent(id="hand", model=models["hand"], tools=tools),
                Agent(id="broken", model=models["broken"]),
                Agent(id="keeper", model=models["keeper"], database="second", tools=tools),
                Agent(id="member", model=models["member"], tools=tools),
                Agent(id="echo"),
                Agent(id="slow", model="slow"),
            ),
            teams=(Team(id="desk", members=("member",), model=models["desk"]),),
            models=(Model("slow", "echo", delay_seconds=5.0),),
            databases=IN_MEMORY,
            authorization=True,
            authorization_config=ISSUER.authorization(),
            **more,
        )


def begin(client: Client, who: str, component: str = "agents/clerk", **form: Any) -> dict[str, Any]:
    """Return a run of `who`, as it is when it paused or ended."""
    asked = {"message": "tidy up", "stream": False, **form}
    response = client.post(f"/{component}/runs", form=asked, token=token(who))
    run: dict[str, Any] = json.loads(response.body)
    assert "status" in run, run
    return run
