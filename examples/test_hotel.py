"""Tests of the hotel on a real model, with a script in the place of the model."""

from __future__ import annotations

from pathlib import Path

import pytest

from legation import Platform
from legation_cli.hotel import CHANNEL_SECRET, make_hotel
from legation_host.loading import load_platform
from legation_testing import Client, ScriptedModel, call

ENVIRON = {"OPENAI_API_KEY": "none", "HELP_SECRET": CHANNEL_SECRET}


@pytest.fixture
def hotel() -> Platform:
    return load_platform(str(Path(__file__).with_name("hotel.toml")), ENVIRON)


def test_the_file_describes_what_the_demonstration_hosts(hotel: Platform) -> None:
    shown = make_hotel("sqlite://").registry
    described = hotel.registry

    for name in ("agents", "teams"):
        for id_, component in getattr(shown, name).items():
            other = getattr(described, name)[id_]
            assert (component.name, component.description, component.mode) == (
                other.name,
                other.description,
                other.mode,
            )
            assert [tool.name for tool in component.tools] == [tool.name for tool in other.tools]
    assert described.channels.keys() == shown.channels.keys()


def test_a_real_model_would_wait_for_approval_as_well(hotel: Platform) -> None:
    script = ScriptedModel([call("book_room", kind="suite", nights=2, guest="Ada"), "Done."])
    with Client(hotel, databases=["main"]) as client, client.override(model=script):
        run = client.run("desk", "The suite for Ada, for two nights", session_id="first")
        assert run["status"] == "PAUSED"
        assert client.go_on(run, confirmed=True)["content"] == "Done."

        state = client.get("/sessions/first").json()["session_state"]
        assert [booking["euros"] for booking in state["bookings"].values()] == [480]
