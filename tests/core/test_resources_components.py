from __future__ import annotations

import pytest

from legation import Platform
from legation.config import Agent, Team
from legation_testing import Client


def platform() -> Platform:
    return Platform(
        agents=(Agent(id="a", instructions="Secret."),), teams=(Team(id="t", members=("a",)),)
    )


@pytest.mark.parametrize("kind", ["agent", "team"])
def test_what_is_hosted_is_listed_and_described(kind: str) -> None:
    with Client(platform) as client:
        (listed,) = client.get(f"/{kind}s").json()

        assert client.get(f"/{kind}s/{listed['id']}").json() == listed
        assert client.get(f"/{kind}s/nope").json()["detail"] == f"{kind.capitalize()} not found"
