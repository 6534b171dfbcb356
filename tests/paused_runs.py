"""Runs that wait for people, in two databases, of several users, for the tests of their lists."""

from __future__ import annotations

import json
from typing import Any, Final

from cryptography.hazmat.primitives.asymmetric import ed25519

from legation import Agent, Platform, Team, tool
from legation.models.conversation import ModelFailed
from legation_testing import Client, ScriptedModel, call

from .callers import Issuer
from .two_databases import IN_MEMORY

__all__ = ["ISSUER", "OWN", "Office", "begin", "token"]

ISSUER: Final = Issuer(ed25519.Ed25519PrivateKey.generate())
OWN: Final = ("agents:run", "teams:run")


def token(sub: str, *scopes: str, **claims: Any) -> str:
    """Return the token of `sub`; one that only runs agents and teams, unless scopes are named."""
    return ISSUER.token(*(scopes or OWN), sub=sub, **claims)


class Office:
    """Agents that ask before they delete, and what was deleted.

    `clerk` asks once and `twice` two times; `hand` leaves its call to the client, and `echo` asks
    nothing.  `keeper` is as `clerk`, in the other database; the team `desk` has a clerk.
    """

    def __init__(self) -> None:
        self.deleted: list[str] = []

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

        def script(*steps: Any) -> ScriptedModel:
            return ScriptedModel([*steps] * 20)

        once = (call("delete", path="/x"), "Done.")
        tools: Any = [delete, shell]
        member = Agent(id="member", model=script(*once), tools=tools)
        lead = script(call("delegate_task_to_member", member_id="member", task="tidy up"), "Good.")
        return Platform(
            agents=(
                Agent(id="clerk", name="The clerk", model=script(*once), tools=tools),
                Agent(
                    id="twice", model=script(once[0], call("delete", path="/y"), ""), tools=tools
                ),
                Agent(id="hand", model=script(call("shell", command="ls"), "Listed."), tools=tools),
                Agent(id="broken", model=script(ModelFailed("refused", "The model refused"))),
                Agent(id="keeper", model=script(*once), database="second", tools=tools),
                Agent(id="echo"),
                member,
            ),
            teams=(Team(id="desk", members=("member",), model=lead),),
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
