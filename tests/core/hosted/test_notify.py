"""The faults of `[notify]`, each with its place, and where notices are hosted."""

from __future__ import annotations

import base64
from typing import Any, Final

import pytest

from legation import Agent, Channel, ConfigurationError, Database, Notify, Platform
from legation.config import structure

SECRET: Final = base64.b64encode(b"k" * 32).decode()
ENVIRON: Final = {"HOOK": SECRET, "OLD": SECRET, "SHORT": "x"}


def made(environ: dict[str, str] = ENVIRON, **options: Any) -> Platform:
    notify = Notify(**{"url": "https://h.test/in", "secret_env": "HOOK", **options})
    return Platform(agents=[Agent("clerk")], notify=notify, environ=environ)


def faults(**options: Any) -> list[str]:
    with pytest.raises(ConfigurationError) as wrong:
        made(**options)
    return [f"{fault.path}: {fault.message}" for fault in wrong.value.faults]


@pytest.mark.parametrize(
    ("options", "fault"),
    [
        ({"url": "ftp://h.test"}, "notify.url: must be an http or https URL"),
        ({"url": "https://h.test/a b"}, "notify.url: must be an http or https URL"),
        ({"url": ""}, "notify.url: must be an http or https URL"),
        ({"secret_env": None}, "notify.secret_env: missing"),
        ({"secret_env": "NO"}, "notify.secret_env: the environment variable NO is not set"),
        (
            {"previous_secret_env": "NO"},
            "notify.previous_secret_env: the environment variable NO is not set",
        ),
        ({"on": []}, "notify.on: is empty: name one, or leave it out"),
        ({"on": ["paused", "done"]}, "notify.on[1]: 'done' is none of: paused, failed"),
        ({"components": ["clerk"]}, "notify.components[0]: 'clerk' is none of: agent:clerk"),
        (
            {"secret_env": "SHORT"},
            "notify.secret_env: ",
        ),
    ],
    ids=str,
)
def test_what_cannot_work_stops_the_start(options: dict[str, Any], fault: str) -> None:
    (found,) = faults(**options)

    assert found.startswith(fault)
    assert SECRET not in found


def test_all_faults_are_said_at_once() -> None:
    assert len(faults(url="x", secret_env="NO", on=["a", "b"], components=["c"])) == 5


@pytest.mark.parametrize("name", ["notify", "notify.main"])
def test_a_channel_of_the_same_name_is_one_too_many(name: str) -> None:
    channel = Channel(
        id=name, kind="standard", agent="clerk", secret_env="HOOK", reply_url="https://a.test"
    )
    notify = Notify(url="https://h.test", secret_env="HOOK")
    with pytest.raises(ConfigurationError, match="has the name of the channel"):
        Platform(agents=[Agent("clerk")], channels=[channel], notify=notify, environ=ENVIRON)
    platform = Platform(agents=[Agent("clerk")], channels=[channel], environ=ENVIRON)
    assert [*platform.registry.channels] == [name]


def test_there_is_a_channel_for_each_database_with_runs() -> None:
    names = ("none", "first", "second")
    platform = Platform(
        agents=[Agent("a", database="first"), Agent("b", database="second")],
        databases=[Database(name, "sqlite://") for name in names],
        notify=Notify(url="https://h.test", secret_env="HOOK", previous_secret_env="OLD"),
        environ=ENVIRON,
    )

    assert [*platform.registry.channels] == ["notify.first", "notify.second"]
    assert {*platform.registry.notices} == {"first", "second"}
    codec = platform.registry.channels["notify.first"].codec
    assert len(codec.secrets) == 2


def test_a_file_says_it_in_a_table() -> None:
    table = {"url": "https://h.test", "secret_env": "HOOK", "on": ["failed"]}
    config = structure({"notify": table})
    assert config.notify == Notify(url="https://h.test", secret_env="HOOK", on=["failed"])

    for wrong, path in (
        ({**table, "secret": "x"}, "notify"),
        ({**table, "on": "failed"}, "notify.on"),
        ("x", "notify"),
    ):
        with pytest.raises(ConfigurationError) as refused:
            structure({"notify": wrong})
        assert refused.value.faults[0].path == path
