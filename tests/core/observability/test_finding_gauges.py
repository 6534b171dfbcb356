"""Findings as measurements."""

from __future__ import annotations

from legation.findings import find
from legation.observability.finding_gauges import FINDINGS_NAME, count_findings


def test_findings_are_counted_by_code_and_severity() -> None:
    found = [
        find("tls_off", "a", ""),
        find("plain_http", "b", ""),
        find("plain_http", "c", ""),
        find("plain_http", "c", "", "low"),
    ]
    gauge = count_findings(found)[FINDINGS_NAME]

    assert (gauge.kind, gauge.merge) == ("gauge", "max")
    assert {
        (*(value for _, value in labels), number) for labels, number in gauge.values.items()
    } == {
        ("tls_off", "medium", 1),
        ("plain_http", "medium", 2),
        ("plain_http", "low", 1),
    }


def test_without_findings_there_is_no_family() -> None:
    assert count_findings(()) == {}
