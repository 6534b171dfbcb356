"""The findings: their table, their words and their order."""

from __future__ import annotations

import re

import pytest

from legation.findings import FINDINGS, SEVERITIES, Finding, find, sort_findings


@pytest.mark.parametrize("code", FINDINGS)
def test_a_kind_has_a_name_a_sentence_and_what_to_do(code: str) -> None:
    kind = FINDINGS[code]

    assert re.fullmatch(r"[a-z]+(_[a-z]+)+", code)
    assert kind.severity in SEVERITIES
    assert kind.meaning.endswith(".")
    assert kind.remedy.endswith(".")


def test_a_finding_is_as_grave_as_its_kind_unless_it_says_otherwise() -> None:
    usual, lighter = find("schema_behind", "a.b", "is"), find("schema_behind", "a.b", "is", "low")

    assert usual == Finding("a.b", "is", "high", code="schema_behind")
    assert lighter.severity == "low"


@pytest.mark.parametrize(
    ("path", "remedy"),
    [
        ("databases.main", "Run `legation migrate main`."),
        ("databases.main.url", "Run `legation migrate main`."),
        ("databases", "Run `legation migrate NAME`."),
    ],
)
def test_what_to_do_names_what_the_finding_is_about(path: str, remedy: str) -> None:
    found = find("schema_behind", path, "is behind", "low")

    assert found.as_json() == {
        "code": "schema_behind",
        "severity": "low",
        "path": path,
        "message": "is behind",
        "remedy": remedy,
    }


def test_the_gravest_come_first_and_else_the_order_stays() -> None:
    codes = ("hsts_off", "tls_off", "disk_full", "disk_low", "route_open")
    found = sort_findings(find(code, code, "") for code in codes)

    assert [one.code for one in found] == [
        "disk_full",
        "route_open",
        "tls_off",
        "disk_low",
        "hsts_off",
    ]
