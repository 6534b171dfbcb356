# pyright: strict, reportUnnecessaryTypeIgnoreComment=true
"""A platform of two hundred lines as an author writes it, which type checkers read strictly.

`assert_type` holds both checkers to what they are to infer: where a type is lost, they refuse this
file.  `test_typed_platform` runs it.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Final, Literal, NotRequired, TypedDict, assert_type

import attrs

from legation import (
    Agent,
    AnthropicModel,
    AuthorizationConfig,
    Database,
    EchoModel,
    FromModel,
    OpenAIModel,
    Platform,
    Run,
    SlackChannel,
    StandardChannel,
    Team,
    ToolError,
    WhatsAppChannel,
    tool,
)
from legation.models.conversation import ModelProtocol
from legation_testing import (
    Client,
    RunContent,
    RunEvent,
    RunMetrics,
    RunPaused,
    RunResult,
    RunStatus,
    ToolCallCompleted,
    ToolExecution,
)

# --- what the tools work on ----------------------------------------------------------------------


class Size(enum.Enum):
    """The size of a shirt."""

    SMALL = "small"
    LARGE = "large"


@attrs.frozen
class Order:
    """An order of a customer."""

    number: int
    size: Size
    price: float


@dataclass(frozen=True)
class Refund:
    """Money that was paid back."""

    order: int
    reason: Literal["broken", "late", "other"]


class Cart(TypedDict):
    """The state of a session."""

    orders: NotRequired[list[int]]
    asked: NotRequired[int]


@attrs.frozen
class Tenant:
    """The dependencies that a request brings."""

    name: str = "shop"


@attrs.frozen
class Answer:
    """The structured answer of the clerk."""

    text: str
    orders: list[int]


ORDERS: Final[Mapping[str, Sequence[Order]]] = {
    "ada": (Order(1, Size.SMALL, 9.5), Order(2, Size.LARGE, 12.0)),
    "bob": (Order(3, Size.LARGE, 12.0),),
}

# --- tools ---------------------------------------------------------------------------------------


@tool(again="safe")
def list_orders(run: Run[Tenant, Cart]) -> list[Order]:
    """List the orders of the caller."""
    assert_type(run.user_id, str | None)
    assert_type(run.dependencies, Tenant)
    assert_type(run.state, Cart)
    run.state["asked"] = run.state.get("asked", 0) + 1
    return list(ORDERS.get(run.user_id or "", ()))


@tool(requires_confirmation=True, timeout_seconds=5.0)
def refund(
    order: int,
    reason: Annotated[Literal["broken", "late", "other"], "why the customer wants it"],
    run: Run[Tenant, Cart],
) -> Refund:
    """Pay an order back.

    Args:
        order: The number of the order.
    """
    if order not in (one.number for one in ORDERS.get(run.user_id or "", ())):
        raise ToolError(f"there is no order {order}")
    run.state["orders"] = [*run.state.get("orders", []), order]
    return Refund(order, reason)


@tool(name="find_customer")
async def find(user_id: Annotated[str, FromModel], *, size: Size | None = None) -> int:
    """Count the orders of any customer; for the people of the support."""
    return sum(size in (None, order.size) for order in ORDERS.get(user_id, ()))


def today(run: Run) -> str:
    """Return the instructions of the day."""
    return f"You are a clerk.  It is {run.now:%A}."


# The function behind a tool is called as before, with its types.
assert_type(list_orders(run=Run(user_id="ada", state=Cart())), list[Order])
assert_type(refund(1, "late", Run(user_id="ada", state=Cart())), Refund)

# --- the platform --------------------------------------------------------------------------------


def clerk(model: str | ModelProtocol) -> Agent:
    """Return the agent that serves customers."""
    return Agent(
        "clerk",
        name="Clerk",
        model=model,
        instructions=today,
        tools=[list_orders, refund],
        output_schema=Answer,
        history_runs=5,
        in_doubt="ask",
    )


def platform(model: str | ModelProtocol = "fast") -> Platform:
    """Return the platform of the shop."""
    return Platform(
        id="shop",
        name="Shop",
        on_busy="reject",
        run_timeout_seconds=60,
        databases=[Database("main", "sqlite://")],
        authorization=False,
        authorization_config=AuthorizationConfig(algorithm="ES256", scopes_claim="scope"),
        models=[
            EchoModel("slow", delay_seconds=2.0),
            OpenAIModel("fast", "gpt-5-mini", temperature=0.2, retries=1),
            AnthropicModel("wise", "claude-sonnet-5", max_output_tokens=2_000),
        ],
        agents=[clerk(model), Agent("support", model="slow", tools=[find])],
        teams=[Team("desk", model="slow", mode="route", members=["clerk", "support"])],
        channels=[
            WhatsAppChannel(
                "chat",
                agent="clerk",
                phone_number_id="100",
                app_secret_env="SECRET",
                verify_token_env="TOKEN",
                access_token_env="TOKEN",
            ),
            SlackChannel("staff", team="desk", signing_secret_env="SECRET", bot_token_env="TOKEN"),
            StandardChannel(
                "till", agent="clerk", secret_env="HOOK", reply_url="https://till.test/replies"
            ),
        ],
        environ={
            "OPENAI_API_KEY": "sk-1",
            "ANTHROPIC_API_KEY": "sk-2",
            "SECRET": "a-secret-of-the-shop",
            "TOKEN": "a-token",
            "HOOK": "c2VjcmV0LW9mLXRoZS10aWxsLW9mLXRoZS1zaG9w",
        },
    )


# --- as its tests read it ------------------------------------------------------------------------


def describe(result: RunResult) -> str:
    """Return in words how a run ended."""
    assert_type(result.status, RunStatus)
    assert_type(result.tools, tuple[ToolExecution, ...])
    assert_type(result.metrics, RunMetrics)
    assert_type(result.state, Mapping[str, Any])
    match result.status:
        case "COMPLETED":
            return assert_type(result.answer_as(Answer), Answer).text
        case "PAUSED":
            asked = [one.tool_execution.tool_name for one in result.requirements]
            return f"waits for {', '.join(asked)}"
        case "ERROR":
            return f"failed: {result.error_type}"
        case "PENDING" | "RUNNING" | "CANCELLED":
            return result.status


def summarize(events: Sequence[RunEvent]) -> list[str]:
    """Return the events that a person wants to see."""
    lines: list[str] = []
    for event in events:
        match event:
            case ToolCallCompleted(tool=call):
                lines.append(f"{call.tool_name}: {call.result}")
            case RunContent(content=str(piece)):
                lines.append(piece)
            case RunPaused(requirements=needed):
                lines += [f"asks for {one.tool_execution.tool_name}" for one in needed]
            case _:
                pass
    return lines


def serve_customer(client: Client, message: str) -> RunResult:
    """Run the clerk, and agree to all that it asks for."""
    run = client.run("clerk", message, session_id="s", user_id="ada", dependencies={"name": "x"})
    while run.status == "PAUSED":
        run = client.go_on(run, confirmed=True, confirmation_note="agreed on the phone")
    return run
