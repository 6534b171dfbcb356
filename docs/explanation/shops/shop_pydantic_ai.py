"""The shop in Pydantic AI 2.68."""

from dataclasses import dataclass, field
from typing import Literal

from pydantic import BaseModel, Field
from pydantic_ai import Agent, DeferredToolRequests, RunContext
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider

ORDERS = {"ann": {"A-1": 30}, "bob": {"B-1": 99}}


class Resolution(BaseModel):
    """The settlement of a case."""

    order: str = Field(description="The order that it was about.")
    refunded: int
    next_step: Literal["none", "ship again", "call"]


@dataclass
class Deps:
    user_id: str
    state: dict = field(default_factory=dict)
    files: list[str] = field(default_factory=list)


def build(url: str) -> Agent:
    model = OpenAIChatModel("m", provider=OpenAIProvider(base_url=url, api_key="k"))
    agent = Agent(model, deps_type=Deps, output_type=[Resolution, DeferredToolRequests])

    @agent.instructions
    def instruct(ctx: RunContext[Deps]) -> str:
        return f"You help {ctx.deps.user_id}. Refunded before: {ctx.deps.state.get('refunds', [])}."

    @agent.tool
    def list_orders(ctx: RunContext[Deps]) -> dict[str, int]:
        """List the orders of the customer, with their prices."""
        return ORDERS.get(ctx.deps.user_id, {})

    @agent.tool(requires_approval=True)
    def refund(ctx: RunContext[Deps], order: str, amount: int) -> str:
        """Pay money back for an order of the customer.

        Args:
            order: Its number.
            amount: How much, in euros.
        """
        price = ORDERS.get(ctx.deps.user_id, {}).get(order)
        if price is None or not 0 < amount <= price:
            return "There is no such order, or it was cheaper."
        ctx.deps.state["refunds"] = [*ctx.deps.state.get("refunds", []), order]
        return f"{amount} euros are on their way."

    @agent.tool
    def keep_invoices(ctx: RunContext[Deps]) -> str:
        """Keep the invoices that the customer sent along."""
        ctx.deps.state["invoices"] = list(ctx.deps.files)
        return f"Kept {len(ctx.deps.files)}."

    return agent
