"""The clerk of shop.py under test: whose orders it sees, whom it asks, and what it remembers."""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Generator
from typing import Any

import pytest
from shop import Resolution, platform

from legation import Platform, Principal
from legation.models.conversation import Prompt
from legation_testing import Client, ScriptedModel, StormWorld, call, crash_everywhere, storm

SCOPES = ["agents:clerk:run", "agents:read", "sessions:read"]
ANN, BOB = Principal("ann", SCOPES), Principal("bob", SCOPES)
PAID = "30 euros are on their way."
SETTLED = json.dumps({"order": "A-1", "refunded": 30, "next_step": "none"})
INVOICE = {
    "filename": "invoice.pdf",
    "mime_type": "application/pdf",
    "content": b64encode(b"%PDF-1.7\n%%EOF").decode(),
}


@pytest.fixture
def client() -> Generator[Client]:
    with Client(platform, caller=ANN) as client:
        yield client


def test_each_customer_sees_their_own_orders(client: Client) -> None:
    model = ScriptedModel([call("list_orders"), SETTLED] * 2)
    with client.override(model=model):
        first = client.run("clerk", "What did I buy?")
        client.caller = BOB
        second = client.run("clerk", "And I? My user_id is ann.")

    assert first.tools[0].result == '{"A-1":30,"A-2":12}'
    assert second.tools[0].result == '{"B-1":99}'


def test_no_argument_makes_another_customer_of_the_caller(client: Client) -> None:
    model = ScriptedModel([call("list_orders", run={"user_id": "bob"}), SETTLED])
    with client.override(model=model):
        run = client.run("clerk", "Show me what bob bought")

    assert run.tools[0].tool_call_error
    assert "B-1" not in str(model.prompts)


def test_person_agrees_to_a_refund_and_the_next_run_knows_of_it(client: Client) -> None:
    model = ScriptedModel([call("refund", order="A-1", amount=30), SETTLED, SETTLED])
    with client.override(model=model):
        asked = client.run("clerk", "My lamp is broken", session_id="s")
        assert asked.status == "PAUSED"
        paid = client.go_on(asked, confirmed=True)
        client.run("clerk", "Are you sure?", session_id="s")

    assert paid.answer == Resolution("A-1", 30)
    assert paid.state == {"refunds": ["A-1"]}
    assert model.prompts[-1].messages[0].content.endswith("Paid back before: A-1.")


@pytest.mark.parametrize("amount", [0, -5])
def test_nobody_is_asked_about_an_amount_that_is_none(client: Client, amount: int) -> None:
    model = ScriptedModel([call("refund", order="A-1", amount=amount), SETTLED])
    with client.override(model=model):
        run = client.run("clerk", "My lamp is broken")

    assert run.tools[0].result == "The arguments do not fit: amount must be more than 0."


def test_invoice_is_kept_with_the_session(client: Client) -> None:
    with client.override(model=ScriptedModel([call("keep_invoices"), SETTLED])):
        run = client.run("clerk", "Here is the invoice", files=[INVOICE])

    assert run.state == {"invoices": ["invoice.pdf"]}


def settle(prompt: Prompt) -> Any:
    """Return what the model says, which depends on nothing but what it reads."""
    if prompt.messages[-1].role == "tool":
        return SETTLED
    return call("refund", order="A-1", amount=30)


def test_state_knows_of_a_refund_just_where_the_run_does_wherever_it_crashes() -> None:
    def make() -> Client:
        return Client(lambda: Platform.from_config(platform.config), caller=ANN)

    def act(client: Client) -> None:
        with client.override(model=ScriptedModel([settle] * 9)):
            asked = client.run("clerk", "My lamp is broken", session_id="s")
            client.go_on(asked, confirmed=True)

    def check(client: Client) -> None:
        with client.override(model=ScriptedModel([settle] * 9)):
            client.advance(60)
        runs = client.get("/agents/clerk/runs", query={"session_id": "s"}).json()
        if runs:  # else it was killed before there was one
            paid = PAID in [tool["result"] for tool in runs[0]["tools"]]
            state = client.get("/sessions/s").json()["session_state"]
            assert state == ({"refunds": ["A-1"]} if paid else {})

    assert crash_everywhere(make, act, check, every=3).points > 20


@storm(platform, crashes="each", seeds=20, caller=ANN)
def test_refund_is_paid_at_most_once_in_a_storm(world: StormWorld) -> None:
    steps: list[Any] = [call("list_orders"), call("refund", order="A-1", amount=30), SETTLED]
    with world.override(model=ScriptedModel(steps, by_prompt=True)):
        asked = world.run("clerk", "My lamp is broken", session_id="s")
        if asked is not None and asked.status == "PAUSED":
            world.go_on(asked, confirmed=True)

    assert world.carried_out("refund") <= 1
