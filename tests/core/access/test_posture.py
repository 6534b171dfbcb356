from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from legation.access.posture import Finding, posture
from legation.config import AuthorizationConfig, PlatformConfig


def found(**more: Any) -> list[tuple[str, str]]:
    config = PlatformConfig(authorization=True, **more)
    return [(finding.path, finding.message) for finding in posture(config)]


def test_a_careful_configuration_has_no_findings() -> None:
    origins = ("https://app.test", "http://localhost:3000", "http://127.0.0.1", "http://[::1]:8080")

    assert found(cors_allowed_origins=origins) == []
    assert found(authorization_config=AuthorizationConfig(excluded_routes=[])) == []


def test_authorization_that_is_off_is_a_finding() -> None:
    told = "is off: whoever reaches it may do anything"

    assert posture(PlatformConfig()) == (Finding("platform.authorization", told),)


def test_a_route_that_is_open_beyond_the_usual_is_a_finding() -> None:
    config = AuthorizationConfig(excluded_routes=["/ready", "/agents"])

    assert found(authorization_config=config) == [
        ("authorization_config.excluded_routes[1]", "/agents is open to everybody")
    ]


@pytest.mark.parametrize(
    ("origin", "told"),
    [
        ("*", "'*' is not an origin and allows nothing"),
        ("null", "'null' is not an origin and allows nothing"),
        ("http://[", "'http://[' is not an origin and allows nothing"),
        ("http://a.test", "http://a.test is not HTTPS: its pages can be forged on the way"),
        ("http://localhost.a.test", "http://localhost.a.test is not HTTPS: its pages can be"),
        ("app.test", "'app.test' is not an origin and allows nothing; one is as https://app"),
        ("https://a.test/", "'https://a.test/' is not an origin and allows nothing"),
        ("https://a.test/chat", "'https://a.test/chat' is not an origin and allows nothing"),
        ("https://A.test", "'https://A.test' is not an origin and allows nothing"),
        ("HTTPS://a.test", "'HTTPS://a.test' is not an origin and allows nothing"),
        ("https://*.a.test", "'https://*.a.test' is not an origin and allows nothing"),
        ("https://a.test:443", "'https://a.test:443' is not an origin and allows nothing"),
        ("http://localhost:80", "'http://localhost:80' is not an origin and allows nothing"),
        ("https://a.test\n", "'https://a.test\\n' is not an origin and allows nothing"),
    ],
)
def test_an_origin_that_protects_nobody_is_a_finding(origin: str, told: str) -> None:
    [(path, message)] = found(cors_allowed_origins=["https://a", origin])

    assert path == "platform.cors_allowed_origins[1]"
    assert message.startswith(told)


@given(st.text())
def test_any_origin_has_findings_or_none(origin: str) -> None:
    assert len(found(cors_allowed_origins=[origin])) <= 1
