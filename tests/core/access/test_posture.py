from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from legation.access.posture import Finding, posture
from legation.config import AuthorizationConfig, Notify, PlatformConfig
from legation.shares.limits import LimitOverrides, NodeLimits, PlatformLimits


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
    ("url", "paths"),
    [
        ("https://hooks.test/in", []),
        ("http://hooks.test/in", ["notify.url"]),
        ("http://localhost.a.test/in", ["notify.url"]),
        ("http://localhost:8080/in", []),
        ("http://127.0.0.1", []),
        ("http://[", ["notify.url"]),
        ("http://[::1]:8080/in", []),
    ],
)
def test_a_webhook_that_can_be_read_on_the_way_is_a_finding(url: str, paths: list[str]) -> None:
    notify = Notify(url=url, secret_env="HOOK")

    assert [path for path, _ in found(notify=notify)] == paths


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


@pytest.mark.parametrize(
    ("limits", "path", "told"),
    [
        (
            PlatformLimits(requests_per_second=0),
            "limits.requests_per_second",
            "is 0: whoever asks without end is answered",
        ),
        (
            PlatformLimits(requests_per_second=50, request_burst=10),
            "limits.request_burst",
            "is less than requests_per_second (50): who asks evenly is refused, too",
        ),
        (
            PlatformLimits(runs=10, node=NodeLimits(runs=9)),
            "limits.runs",
            "is more than limits.node.runs (9): no node has so many",
        ),
        (
            PlatformLimits(tokens_per_day=5, anonymous=LimitOverrides(tokens_per_day=6)),
            "limits.anonymous.tokens_per_day",
            "is more than limits.tokens_per_day (5): who has no name gets more",
        ),
        (
            PlatformLimits(stored_bytes=1000),
            "limits.state_bytes",
            "is more than limits.stored_bytes: none is so large",
        ),
    ],
    ids=lambda value: value if isinstance(value, str) and value.startswith("limits") else None,
)
def test_a_limit_that_does_not_limit_is_a_finding(
    limits: PlatformLimits, path: str, told: str
) -> None:
    assert found(limits=limits) == [(path, told)]


def test_limits_that_make_sense_are_no_finding() -> None:
    anonymous = LimitOverrides(runs=2, tokens_per_day=100, requests_per_second=5)
    limits = PlatformLimits(
        runs=8, tokens_per_day=1_000_000, stored_bytes=1 << 30, anonymous=anonymous
    )

    assert found(limits=limits) == []
