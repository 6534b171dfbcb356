from __future__ import annotations

from base64 import urlsafe_b64encode
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from legation import Agent, Channel, Platform
from legation.access.decide import Principal
from legation.erasure.people import ENCODED, is_reserved, letters_of, owners_of, read_user
from legation.store.erasure import LettersOf, PersonSeen

NAMES = ["ada", "a/b|c%", "~ada", "~~ada", "~channel:x", "~~channel:x", "é" * 256, ".", "a;b\\c"]


@pytest.mark.parametrize("name", NAMES)
def test_every_subject_can_be_named(name: str) -> None:
    encoded = ENCODED + urlsafe_b64encode(name.encode()).decode()

    assert read_user(name) == name
    assert read_user(encoded) == read_user(encoded.rstrip("=")) == name


@pytest.mark.parametrize("subject", NAMES)
def test_a_user_is_found_under_the_owner_of_its_token(subject: str) -> None:
    owner = Principal(subject).owner
    named = owner if subject.lstrip("~").startswith("channel:") else subject

    assert owner is not None
    assert named is not None
    assert owners_of(named)[0] == owner
    assert not is_reserved(named)


@pytest.mark.parametrize("text", ["", "====", "a", "a" * 5, "/w", "_w", "AA", "ÿ", "_-__"])
def test_what_is_no_base64url_of_text_names_nobody(text: str) -> None:
    assert read_user(ENCODED + text) is None


@given(st.text())
def test_any_text_is_a_user_or_nobody(text: str) -> None:
    read_user(text)
    read_user(ENCODED + text)


@pytest.mark.parametrize("name", ["", "~nobody:x", "~channel:chat:4911"])
def test_an_owner_of_the_platform_is_no_user(name: str) -> None:
    assert is_reserved(name)


def test_a_name_with_a_tilde_may_have_older_rows() -> None:
    assert owners_of("~ada") == ("~~ada", "~ada")
    assert owners_of("ada") == ("ada",)


@pytest.mark.parametrize("name", ["~address:192.0.2.1", "~agent:a:eve", "~team:t:eve"])
def test_a_name_that_looks_like_a_counter_is_not_taken_for_it(name: str) -> None:
    assert owners_of(name) == (f"~{name}",)


def find_subject(sender: str) -> str:
    """Say who a sender is, as only the function knows."""
    return f"user {sender}"


def channel(name: str, subjects: dict[str, str] | Callable[[str], str]) -> Channel:
    return Channel(
        id=name,
        kind="standard",
        agent="a",
        secret_env="S",
        reply_url="http://x.test/",
        subjects=subjects,
    )


def platform() -> Platform:
    return Platform(
        agents=[Agent(id="a")],
        channels=[
            channel("chat", {"49": "ada", "50": "eve"}),
            channel("desk", {}),
            channel("fair", find_subject),
        ],
        environ={"S": "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"},
    )


def test_letters_are_found_by_the_configuration_and_by_what_was_seen() -> None:
    seen = (
        PersonSeen("desk", "press 7", "D7", "desk:D7#m1"),
        PersonSeen("desk", "8", "G1", "desk:8"),
        PersonSeen("desk", "9"),
    )

    registry = platform().registry

    assert letters_of(registry, registry.default_database, "ada", seen) == (
        LettersOf("chat", ("49", "press 49"), ("49",)),
        LettersOf("desk", ("7", "8", "9", "press 7", "press 8", "press 9"), ("7", "8", "9", "D7")),
    )
    assert letters_of(registry, "other", "ada", ()) == ()
