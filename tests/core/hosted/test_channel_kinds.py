"""Kinds of channels of an application: taken as ours are, or refused with a sentence."""

from __future__ import annotations

from typing import Any, ClassVar, Final

import pytest
from attrs import frozen

from legation import Agent, Channel, ConfigurationError, Platform
from legation.channels import CHANNEL_KINDS
from legation.hosted.channel_kinds import settings_of

from ...providers.loopback import Loopback

SECRETS: Final = {"S": "a secret", "T": "another", "BLANK": " x "}
RIGHT: Final[dict[str, Any]] = {
    "line": "one",
    "endpoint": "https://loop.example",
    "secret_env": "S",
}


@frozen
class Nameless(Loopback):
    """Has no name of its kind."""

    kind: ClassVar[str] = "No Kind"


@frozen
class Limitless(Loopback):
    """Takes no text."""

    kind: ClassVar[str] = "limitless"
    text_limit: ClassVar[int] = 0


@frozen
class Telegraph(Loopback):
    """Is called as one of ours."""

    kind: ClassVar[str] = "telegram"


@frozen
class Strange(Loopback):
    """Is told apart by what it has not."""

    kind: ClassVar[str] = "strange"
    sender: ClassVar[tuple[str, ...]] = ("number",)


class Abstract(Loopback.__base__):  # type: ignore[misc, name-defined]
    """Does nothing."""


def faults(*channels: Channel, kinds: Any = (Loopback,)) -> list[tuple[str, str]]:
    """Return the faults of a platform with `channels`."""
    with pytest.raises(ConfigurationError) as caught:
        Platform(agents=[Agent(id="a")], channels=channels, channel_kinds=kinds, environ=SECRETS)
    return [(fault.path, fault.message) for fault in caught.value.faults]


def channel(name: str = "loop", **settings: Any) -> Channel:
    """Return a channel of the kind, set as is right but for `settings`."""
    given = {key: value for key, value in {**RIGHT, **settings}.items() if value is not None}
    return Channel(id=name, kind="loopback", agent="a", settings=given)


@pytest.mark.parametrize(
    ("kind", "why"),
    [
        ("loopback", "expected a frozen class of attrs, made from Codec"),
        (dict, "expected a frozen class of attrs, made from Codec"),
        (Loopback("l", "one", "https://a", "s"), "expected a frozen class of attrs"),
        (Nameless, "Nameless has no kind: "),
        (Limitless, "Limitless has no text_limit of at least 1"),
        (Telegraph, "there is a kind 'telegram' already"),
        (Strange, "Strange has no field number"),
        (frozen(Abstract), "Abstract has no encode, read_delivery, read_reply, secrets, verify"),
    ],
    ids=["text", "class", "value", "kind", "limit", "ours", "sender", "abstract"],
)
def test_what_is_no_kind_is_refused(kind: Any, why: str) -> None:
    ((path, sentence),) = faults(kinds=[kind])

    assert path == "channel_kinds[0]"
    assert sentence.startswith(why)


def test_two_kinds_of_one_name_are_refused() -> None:
    assert faults(kinds=[Loopback, Loopback]) == [
        ("channel_kinds[1]", "there is a kind 'loopback' already")
    ]


@pytest.mark.parametrize(
    ("settings", "path", "why"),
    [
        ({"line": None}, "channels.loop.settings.line", "missing"),
        ({"secret_env": None}, "channels.loop.secret_env", "missing"),
        ({"secret_env": "U"}, "channels.loop.settings.secret_env", "U"),
        ({"previous_env": "U"}, "channels.loop.settings.previous_env", "U"),
        ({"previous_env": 3}, "channels.loop.settings.previous_env", "the name of a variable"),
        ({"previous_file": 3}, "channels.loop.settings.previous_file", "the path of a file"),
        ({"colour": 1}, "channels.loop.settings.colour", "is not allowed together with the kind"),
        ({"secret": "x"}, "channels.loop.settings.secret", "is not allowed together with the kind"),
        ({"endpoint": "ftp://x"}, "channels.loop", "endpoint must be an http or https URL"),
        ({"line": 3}, "channels.loop", "expected string"),
        ({"secret_env": "BLANK"}, "channels.loop", "a secret begins or ends with white space"),
    ],
)
def test_settings_that_are_wrong_are_told_with_their_path(
    settings: dict[str, Any], path: str, why: str
) -> None:
    ((where, sentence),) = faults(channel(**settings))

    assert where == path
    assert why in sentence


def test_settings_of_ours_stand_beside_the_channel_and_not_below() -> None:
    ours = Channel(id="t", kind="telegram", agent="a", settings={"line": "one"})

    assert ("channels.t.settings.line", "is not allowed together with the kind telegram") in faults(
        ours
    )


def test_two_channels_of_one_sender_are_found() -> None:
    told = "has the line and the secret of channels.loop: both would answer"

    assert faults(channel(), channel("again")) == [("channels.again", told)]


def test_two_channels_of_a_kind_are_made_with_their_secrets() -> None:
    platform = Platform(
        agents=[Agent(id="a")],
        channels=[channel(), channel("two", secret_env="T", previous_env="S")],
        channel_kinds=[Loopback],
        environ=SECRETS,
    )

    one, two = (hosted.codec for hosted in platform.registry.channels.values())
    assert one == Loopback("loop", "one", "https://loop.example", "a secret")
    assert two == Loopback("two", "one", "https://loop.example", "another", "a secret")


def test_kind_of_an_application_is_unknown_to_another_platform() -> None:
    assert faults(channel(), kinds=()) == [
        (
            "channels.loop.kind",
            "'loopback' is none of: whatsapp, telegram, slack, standard",
        )
    ]


def test_each_kind_says_what_it_takes() -> None:
    taken = {kind: [s.key for s in settings_of(made)] for kind, made in CHANNEL_KINDS.items()}

    assert taken["standard"] == ["secret_env", "reply_url", "previous_secret_env"]
    assert [s.required for s in settings_of(CHANNEL_KINDS["standard"])] == [True, True, False]
