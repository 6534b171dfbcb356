"""The shop in agno 2.5.6."""

from collections.abc import Sequence
from typing import Literal

from agno.agent import Agent
from agno.db.sqlite import SqliteDb
from agno.media import File
from agno.models.openai import OpenAIChat
from agno.os import AgentOS
from agno.run import RunContext
from agno.tools import tool
from pydantic import BaseModel, Field

ORDERS = {"ann": {"A-1": 30}, "bob": {"B-1": 99}}


class Resolution(BaseModel):
    """The settlement of a case."""

    order: str = Field(description="The order that it was about.")
    refunded: int
    next_step: Literal["none", "ship again", "call"]


def list_orders(run_context: RunContext) -> dict[str, int]:
    """List the orders of the customer, with their prices."""
    return ORDERS.get(run_context.user_id or "", {})


@tool(requires_confirmation=True)
def refund(run_context: RunContext, order: str, amount: int) -> str:
    """Pay money back for an order of the customer.

    Args:
        order: Its number.
        amount: How much, in euros.
    """
    price = ORDERS.get(run_context.user_id or "", {}).get(order)
    if price is None or not 0 < amount <= price:
        return "There is no such order, or it was cheaper."
    state = run_context.session_state
    state["refunds"] = [*state.get("refunds", []), order]
    return f"{amount} euros are on their way."


def keep_invoices(run_context: RunContext, files: Sequence[File] | None = None) -> str:
    """Keep the invoices that the customer sent along."""
    run_context.session_state["invoices"] = [file.filename for file in files or ()]
    return f"Kept {len(files or ())}."


def instruct(agent: Agent, run_context: RunContext) -> str:
    refunds = (run_context.session_state or {}).get("refunds", [])
    return f"You help {run_context.user_id}. Refunded before: {refunds}."


def build(url: str, file: str) -> Agent:
    return Agent(
        id="shop",
        model=OpenAIChat(id="m", base_url=url, api_key="k"),
        db=SqliteDb(db_file=file),
        instructions=instruct,
        tools=[list_orders, refund, keep_invoices],
        output_schema=Resolution,
        session_state={},
    )


def serve(url: str, file: str):
    return AgentOS(agents=[build(url, file)]).get_app()
