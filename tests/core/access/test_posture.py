from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from legation import EchoModel, OpenAIModel, StandardChannel
from legation.access.posture import Door, Finding, posture
from legation.config import Audit, AuditKey, AuthorizationConfig, Channel, Notify, PlatformConfig
from legation.http.refusals import Fault
from legation.shares.limits import LimitOverrides, NodeLimits, PlatformLimits

KEYED = Audit(keys=[AuditKey("k", secret_env="KEY")])


def tokens(**more: Any) -> AuthorizationConfig:
    return AuthorizationConfig(require=["exp"], verify_audience=True, **more)


def found(**more: Any) -> list[tuple[str, str]]:
    """Return the findings of a configuration that is careful but for `more`."""
    careful: dict[str, Any] = {
        "authorization": True,
        "authorization_config": tokens(),
        "cors_default_origin": False,
        "audit": KEYED,
    }
    config = PlatformConfig(**{**careful, **more})
    return [(finding.path, finding.message) for finding in posture(config)]


def test_a_careful_configuration_has_no_findings() -> None:
    origins = ("https://app.test", "http://localhost:3000", "http://127.0.0.1", "http://[::1]:8080")

    assert found(cors_allowed_origins=origins) == []
    assert found(authorization_config=tokens(excluded_routes=[])) == []


def test_tokens_that_may_live_for_ever_are_a_finding() -> None:
    told = [
        (
            "authorization_config.require",
            'is without "exp": a token that has none is accepted for ever',
        )
    ]
    for require, longest, findings in (
        ((), None, told),
        (("jti",), None, told),
        (("jti", "exp"), None, []),
        ((), 3600.0, []),
    ):
        config = AuthorizationConfig(
            verify_audience=True, require=require, max_lifetime_seconds=longest
        )
        assert found(authorization_config=config) == findings


def test_authorization_that_is_off_is_a_finding() -> None:
    told = "is off: whoever reaches it may do anything"

    assert posture(PlatformConfig()) == (
        Finding("platform.authorization", told, "high", code="authorization_off"),
    )


@pytest.mark.parametrize("door", [Door("machine"), Door(local_only=True)], ids=str)
def test_authorization_that_is_off_is_less_grave_on_this_machine_alone(door: Door) -> None:
    (one,) = posture(PlatformConfig(), door)

    assert (one.path, one.severity) == ("platform.authorization", "low")


def test_an_audience_that_is_not_checked_is_a_finding() -> None:
    told = "is off: a token that was issued for another service is taken"

    assert found(authorization_config=AuthorizationConfig(require=["exp"])) == [
        ("authorization_config.verify_audience", told)
    ]


def test_a_trail_that_is_only_chained_is_a_finding() -> None:
    told = "are none: whoever writes to the database can forge a trail that is only chained"

    assert found(audit=Audit(heads_log=True)) == [("audit.keys", told)]
    assert "audit.keys" not in {finding.path for finding in posture(PlatformConfig())}


def test_the_origin_that_is_always_allowed_is_a_finding() -> None:
    told = "pages of http://localhost:3000 may call the platform; false forbids it"

    assert found(cors_default_origin=True) == [("platform.cors_default_origin", told)]
    assert found(cors_default_origin=True, cors_allowed_origins=["http://localhost:3000"]) == []


@pytest.mark.parametrize(
    ("door", "paths"),
    [
        (Door(), []),
        (Door("machine"), []),
        (Door("network"), ["server.tls"]),
        (Door("network", proxied=True), []),
        (Door("network", encrypted=True), []),
        (Door("network", encrypted=True, hsts=False), ["server.hsts"]),
        (Door("machine", encrypted=True, hsts=False), []),
    ],
    ids=str,
)
def test_an_address_that_others_reach_wants_tls(door: Door, paths: list[str]) -> None:
    careful = PlatformConfig(
        authorization=True,
        authorization_config=tokens(),
        cors_default_origin=False,
        audit=KEYED,
    )

    assert [one.path for one in posture(careful, door)] == paths


@pytest.mark.parametrize("secret", ["a" * 64, "changeme" * 8, "0123456789" * 4])
def test_a_secret_for_tokens_that_can_be_guessed_is_a_finding(secret: str) -> None:
    strong = "s9Xw3vQ7kLzB1nH5rT8yC2mF6jD4gP0a"
    config = tokens(verification_keys=[strong, secret], algorithm="HS256")
    [(path, message)] = found(authorization_config=config)

    assert path == "authorization_config.verification_keys[1]"
    assert secret not in message
    public = tokens(verification_keys=[secret], algorithm="ES256")
    assert found(authorization_config=public) == []


def test_the_gravest_findings_come_first() -> None:
    weak = (Fault("channels.bot.secret_token_env", "can be guessed"),)
    config = PlatformConfig(authorization=True, allowed_hosts=["*"])

    severities = [one.severity for one in posture(config, Door(), weak)]

    assert severities == ["high", "medium", "low", "low", "low", "low"]


@pytest.mark.parametrize(
    ("url", "is_open"),
    [
        ("http://10.0.0.7:11434/v1", True),
        ("HTTP://models.test/v1", True),
        ("https://models.test/v1", False),
        ("http://localhost:11434/v1", False),
    ],
)
def test_a_provider_over_plain_http_is_a_finding(url: str, is_open: bool) -> None:
    models = [OpenAIModel("m", "gpt", base_url=url), EchoModel("e")]
    channels = [
        StandardChannel("s", agent="a", secret_env="S", reply_url=url),
        Channel("t", kind="telegram", agent="a", api_base_url=url),
    ]
    paths = ["models.m.base_url", "channels.s.reply_url", "channels.t.api_base_url"]

    assert [path for path, _ in found(models=models, channels=channels)] == paths * is_open


@pytest.mark.parametrize("name", ["*", "https://app.test", "app.test:80", "App.test", "", "a/b"])
def test_a_host_that_is_none_is_a_finding(name: str) -> None:
    [(path, message)] = found(allowed_hosts=["app.test", name])

    assert path == "platform.allowed_hosts[1]"
    assert message.startswith(f"{name!r} is not the name of a host")


def test_a_route_that_is_open_beyond_the_usual_is_a_finding() -> None:
    config = tokens(excluded_routes=["/ready", "/agents"])

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
