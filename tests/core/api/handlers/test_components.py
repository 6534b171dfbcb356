from __future__ import annotations

import pytest

from legation import Platform
from legation.config import Agent, Team
from legation_testing import Client

from ....callers import Issuer, demo


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


@pytest.mark.parametrize(
    ("scope", "shown", "instructed"),
    [
        ("agents:read", ["alpha", "beta"], False),
        ("agents:beta:read", ["beta"], False),
        ("platform:admin", ["alpha", "beta"], True),
    ],
)
def test_a_list_has_what_its_reader_may_see(scope: str, shown: list[str], instructed: bool) -> None:
    issuer = Issuer()
    with Client(demo(issuer)) as client:
        answer = client.get("/agents", token=issuer.token(scope))

    assert [agent["id"] for agent in answer.json()] == shown
    assert (b"the secret of" in answer.body) is instructed
