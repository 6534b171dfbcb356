"""A crash at every point: the process is killed at each effect in turn, and started again.

What happens between two effects is pure, so these are all the points there are.
"""

from __future__ import annotations

from legation import Agent, Platform
from legation.store.audit import Audited
from legation.store.failures import Unavailable
from legation_testing import Client, crash_everywhere

LEASE_SECONDS = 30
"""How long a node may be silent before its work is taken over."""


def make() -> Client:
    """Return a platform of its own for each try."""
    return Client(lambda: Platform(agents=[Agent(id="concierge")]))


def statuses(client: Client) -> list[str]:
    """Return where the runs of the session stand, in their order."""
    runs = client.get("/agents/concierge/runs", query={"session_id": "first"}).json()
    return [run["status"] for run in runs]


def test_run_is_whole_or_interrupted_or_was_never_there() -> None:
    def act(client: Client) -> None:
        client.run("concierge", "hello", session_id="first")

    def check(client: Client) -> None:
        client.advance(2 * LEASE_SECONDS)
        assert statuses(client) in ([], ["COMPLETED"], ["ERROR"])

    tried = crash_everywhere(make, act, check)

    assert tried.points > 20
    assert tried.by_effect["Transact"] > 4


def test_what_was_answered_is_still_there() -> None:
    answered: list[str] = []

    def act(client: Client) -> None:
        answered.clear()
        for message in ("one", "two"):
            client.run("concierge", message, session_id="first")
            answered.append("COMPLETED")

    def check(client: Client) -> None:
        client.advance(2 * LEASE_SECONDS)
        assert statuses(client)[: len(answered)] == answered

    crash_everywhere(make, act, check)


def test_session_goes_on_after_the_crash() -> None:
    def act(client: Client) -> None:
        client.run("concierge", "hello", session_id="first")

    def check(client: Client) -> None:
        client.advance(2 * LEASE_SECONDS)
        assert client.run("concierge", "again", session_id="first")["content"] == "again"

    crash_everywhere(make, act, check)


def test_run_that_cannot_be_stored_is_refused() -> None:
    with make() as client:
        # A change and its row in the audit trail are one unit of work.
        client.fail_at(Audited, Unavailable("gone"))

        response = client.post("/agents/concierge/runs", form={"message": "hello"})

        assert response.status == 503
        assert "gone" not in response.text
