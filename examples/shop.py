"""A shop's clerk: it knows whose orders it is about, and a person agrees before it pays back.

legation serve shop:platform      without OPENAI_API_KEY it repeats what it is told
"""

from __future__ import annotations

import os
from typing import Annotated, Literal

from annotated_types import Gt
from attrs import frozen

from legation import Agent, Database, OpenAIModel, Platform, Run, ToolError, tool

ORDERS = {"ann": {"A-1": 30, "A-2": 12}, "bob": {"B-1": 99}}  # a real shop has a database


@frozen
class Resolution:
    """The settlement of a case.

    Attributes:
        refunded: How much was paid back, in euros.
    """

    order: str
    refunded: int
    next_step: Literal["none", "ship again", "call"] = "none"


@tool(again="safe")
def list_orders(run: Run) -> dict[str, int]:
    """List the orders of the customer, with their prices."""
    return ORDERS.get(run.user_id or "", {})


@tool(requires_confirmation=True)
def refund(run: Run, order: str, amount: Annotated[int, Gt(0)]) -> str:
    """Pay money back for an order of the customer.

    Args:
        order: Its number.
        amount: How much, in euros.
    """
    if amount > list_orders(run).get(order, 0):
        raise ToolError("There is no such order, or it was cheaper")
    run.state["refunds"] = [*run.state.get("refunds", []), order]
    return f"{amount} euros are on their way."


def keep_invoices(run: Run) -> str:
    """Keep the invoices that the customer sent along."""
    run.state["invoices"] = [file.name for file in run.files]
    return f"Kept {len(run.files)}."


def instruct(run: Run) -> str:
    """Return what the model is told at the start of each run."""
    refunds = ", ".join(run.state.get("refunds", [])) or "nothing"
    return f"You help {run.user_id}. Today is {run.now:%d %B %Y}. Paid back before: {refunds}."


GPT = OpenAIModel("gpt", "gpt-5-mini")
MODELS = [GPT] if "OPENAI_API_KEY" in os.environ else []

platform = Platform(
    id="shop",
    environ=os.environ,
    databases=[Database("main", "sqlite:///shop.db")],
    models=MODELS,
    agents=[
        Agent(
            id="clerk",
            model="gpt" if MODELS else "echo",
            instructions=instruct,
            tools=[list_orders, refund, keep_invoices],
            output_schema=Resolution,
        )
    ],
)
