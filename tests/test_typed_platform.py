"""The platform that type checkers read strictly works as it is typed."""

from __future__ import annotations

import asyncio
from pathlib import Path

from legation import Principal, Run
from legation_testing import Client, ScriptedModel, call

from . import typed_platform as sample

ADA = Principal("ada", frozenset({"agents:*:run"}))
ANSWER = '{"text": "Order 2 is paid back.", "orders": [2]}'


def model() -> ScriptedModel:
    """Return a model that asks for the orders, then for a refund, and answers."""
    return ScriptedModel(
        [call("list_orders"), call("refund", order=2, reason="broken"), ANSWER],
    )


def test_customer_is_served() -> None:
    asked = model()
    with Client(sample.platform(asked), caller=ADA) as client:
        run = sample.serve_customer(client, "Order 2 is broken")

    assert sample.describe(run) == "Order 2 is paid back."
    assert run.answer == sample.Answer("Order 2 is paid back.", [2])
    assert [(one.tool_name, one.tool_call_error) for one in run.tools] == [
        ("list_orders", False),
        ("refund", False),
    ]
    assert run.tools[1].confirmation_note == "agreed on the phone"
    assert "It is Thursday." in asked.prompts[0].messages[0].content


def test_pause_is_seen_in_the_result_and_in_the_events() -> None:
    with Client(sample.platform(model()), caller=ADA) as client:
        paused = client.run("clerk", "Order 2 is broken")
    with Client(sample.platform(model()), caller=ADA) as client:
        events = client.stream("clerk", "Order 2 is broken")

    assert sample.describe(paused) == "waits for refund"
    assert sample.summarize(events)[-1] == "asks for refund"


def test_failure_is_said() -> None:
    with Client(sample.platform(ScriptedModel(["no object"])), caller=ADA) as client:
        run = client.run("clerk", "hi")

    assert sample.describe(run).startswith("failed: ")


def test_functions_behind_tools_are_called_as_before() -> None:
    run = Run(user_id="bob", dependencies=sample.Tenant(), state=sample.Cart())

    assert [order.number for order in sample.list_orders(run)] == [3]
    assert run.state == {"asked": 1}
    assert asyncio.run(sample.find("ada", size=sample.Size.LARGE)) == 1


def test_platform_says_what_it_hosts_in_two_hundred_lines() -> None:
    lines = Path(sample.__file__ or "").read_text("utf-8").splitlines()

    assert 200 <= len(lines) <= 260
    assert repr(sample.platform()) == (
        "Platform(id='shop', agents=['clerk', 'support'], teams=['desk'],"
        " channels=['chat', 'staff', 'till'], databases=['main'])"
    )
