"""Tests of the hotel on a real model, with a script in the place of the model."""

from __future__ import annotations

from pathlib import Path

import pytest

from legation import Platform
from legation_host.loading import load_platform
from legation_testing import Client, ScriptedModel, call

ENVIRON = {"OPENAI_API_KEY": "none", "HELP_SECRET": "whsec_" + "QSB0" * 8}


@pytest.fixture
def hotel() -> Platform:
    return load_platform(str(Path(__file__).with_name("hotel.toml")), ENVIRON)


def test_a_real_model_would_wait_for_approval_as_well(hotel: Platform) -> None:
    script = ScriptedModel([call("book_room", kind="suite", nights=2, guest="Ada"), "Done."])
    with Client(hotel, databases=["main"]) as client, client.override(model=script):
        run = client.run("desk", "The suite for Ada, for two nights", session_id="first")
        assert run["status"] == "PAUSED"
        assert client.go_on(run, confirmed=True)["content"] == "Done."

        state = client.get("/sessions/first").json()["session_state"]
        assert [booking["euros"] for booking in state["bookings"].values()] == [480]
