from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from legation import ConfigurationError, Console, Platform
from legation.config import structure
from legation.hosted.sign_in import sign_in_faults


def faults(**more: Any) -> list[str]:
    made = Console(**{"issuer": "https://id.example.com", "client_id": "console", **more})
    return [fault.path for fault in sign_in_faults(made)]


@pytest.mark.parametrize(
    "issuer",
    [
        "https://id.example.com",
        "https://id.example.com/",
        "https://id.example.com:8443/realms/main",
        "https://[2001:db8::1]/",
        "http://localhost:8080/realms/main",
        "http://127.0.0.1:9000",
        "http://[::1]:9000/x",
    ],
)
def test_an_issuer_is_https_or_on_this_machine(issuer: str) -> None:
    assert faults(issuer=issuer) == []


@pytest.mark.parametrize(
    "issuer",
    [
        "",
        "id.example.com",
        "http://id.example.com",
        "http://localhost.example.com",
        "https://",
        "https://user@id.example.com",
        "https://id.example.com?x=1",
        "https://id.example.com/#x",
        "https://id.example.com; script-src *",
        "https://id.example.com\n",
        "https://id.example.com/a b",
        "https://id.example.com/'none'",
        "https://id.example.com,https://b",
        "https://*",
        "javascript:alert(1)",
        "https://id.example.com/" + "a" * 501,
    ],
)
def test_no_other_address_is_one(issuer: str) -> None:
    assert faults(issuer=issuer) == ["console.issuer"]


@given(st.text())
def test_what_is_taken_stands_in_a_policy_as_one_word(issuer: str) -> None:
    if not faults(issuer=issuer):
        assert not set(issuer) & set(" ;,'\"\n\r\t")


def test_sign_in_needs_both_or_neither() -> None:
    assert [fault.path for fault in sign_in_faults(Console())] == []
    assert faults(issuer=None) == ["console.issuer"]
    assert faults(client_id=None) == ["console.client_id"]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("client_id", ""),
        ("client_id", "a b"),
        ("client_id", "a" * 256),
        ("scope", ""),
        ("scope", "openid  profile"),
        ("scope", 'a"b'),
        ("scope", "a" * 2001),
        ("audience", ""),
        ("audience", "a" * 501),
    ],
)
def test_what_is_sent_to_the_provider_is_visible_and_bounded(name: str, value: str) -> None:
    assert faults(**{name: value}) == [f"console.{name}"]


def test_the_rest_of_a_provider_is_taken() -> None:
    assert faults(scope="openid api://legation/.default", audience="https://api.example.com/") == []


def test_a_platform_with_half_of_a_provider_does_not_start() -> None:
    with pytest.raises(ConfigurationError, match=r"console\.client_id: is missing"):
        Platform(console=Console(issuer="https://id.example.com"))


# --- In a file -----------------------------------------------------------------------------------


def test_the_table_says_where_people_sign_in() -> None:
    table = {"issuer": "https://id.example.com", "client_id": "c", "scope": "a b", "audience": "x"}

    assert structure({"console": table}).console == Console(**table)
    assert structure({}).console is True
    assert structure({"console": {}}).console == Console()


def test_the_switch_is_stronger_than_the_table() -> None:
    table = {"issuer": "https://id.example.com", "client_id": "c"}

    assert structure({"platform": {"console": False}}).console is False
    assert structure({"platform": {"console": False}, "console": table}).console is False


@pytest.mark.parametrize(
    ("mapping", "said"),
    [
        ({"console": True}, "console: expected a table"),
        ({"console": {"oidc_issuer": "x"}}, "console: unknown: oidc_issuer"),
        ({"console": {"issuer": 1}}, "console.issuer: "),
        ({"platform": {"console": "yes"}}, "platform.console: expected true or false"),
        ({"platform": {"console": False}, "console": 1}, "console: expected a table"),
    ],
)
def test_every_fault_of_it_has_its_path(mapping: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        structure(mapping)

    assert said in str(caught.value)


@pytest.mark.parametrize("value", ["yes", None, {"issuer": "x"}])
def test_a_script_is_told_what_is_expected(value: Any) -> None:
    with pytest.raises(ConfigurationError, match=r"^console: expected"):
        Platform(console=value)


def test_a_script_is_told_which_member_is_wrong() -> None:
    wrong: Any = 1
    with pytest.raises(ConfigurationError, match=r"^console\.issuer: expected a string"):
        Platform(console=Console(issuer=wrong))
