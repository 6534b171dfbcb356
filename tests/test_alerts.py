"""The alert rules, their page and the dashboard, as files: each is whole, and they agree."""

from __future__ import annotations

import json
import re
import shutil
from itertools import combinations
from pathlib import Path
from typing import Any, Final

import pytest

from .prometheus import DASHBOARD, DEPLOY, RULES, NoPrometheus, promtool
from .transcripts import DOCS, ROOT

PAGE: Final = DOCS / "howto/alerts.md"
PARTS: Final = ("Meaning", "Look", "Do", "Over")


def read_rules() -> list[str]:
    """Return the text of each rule."""
    return re.split(r"^ {6}- (?=alert: )", RULES.read_text("utf-8"), flags=re.MULTILINE)[1:]


def read_sections() -> dict[str, str]:
    """Return the text of the section of each alert."""
    parts = re.split(r"^## `(\w+)`$", PAGE.read_text("utf-8"), flags=re.MULTILINE)[1:]
    return dict(zip(parts[::2], parts[1::2], strict=True))


def read_board() -> Any:
    return json.loads(DASHBOARD.read_text("utf-8"))


# --- rules ---------------------------------------------------------------------------------------


def test_prometheus_accepts_the_configuration_and_the_rules(tmp_path: Path) -> None:
    shutil.copytree(DEPLOY / "prometheus", tmp_path, dirs_exist_ok=True)
    (tmp_path / "scraper.token").write_text("token")
    try:
        checked = promtool("check", "config", tmp_path / "prometheus.yml")
    except NoPrometheus as reason:
        pytest.skip(str(reason))

    assert checked.returncode == 0, checked.stderr
    assert f"{len(read_rules())} rules found" in checked.stdout


def test_alerts_fire_after_the_time_of_their_rules() -> None:
    try:
        tried = promtool("test", "rules", DEPLOY / "prometheus/alerts_test.yml")
    except NoPrometheus as reason:
        pytest.skip(str(reason))

    assert tried.returncode == 0, tried.stderr + tried.stdout


def test_each_rule_is_tried_with_each_severity() -> None:
    cases = (DEPLOY / "prometheus/alerts_test.yml").read_text("utf-8")
    for rule in read_rules():
        name = re.findall(r"alert: (\w+)", rule)[0]
        severity = re.findall(r"severity: (\w+)", rule)[0]
        assert f'alertname="{name}",alertstate="firing",severity="{severity}"' in cases, name


def test_each_rule_has_what_a_person_who_is_woken_up_needs() -> None:
    for rule in read_rules():
        names = re.findall(r"^ +(\w+):", f"      {rule}", re.MULTILINE)
        severity = re.findall(r"severity: (\w+)", rule)

        assert {"alert", "expr", "summary", "description", "runbook"} <= {*names}, rule
        assert severity in (["page"], ["ticket"]), rule
        assert " by (job, " in rule or rule.startswith("alert: LegationDown\n"), rule


def test_each_rule_has_its_reason() -> None:
    lines = RULES.read_text("utf-8").splitlines()
    rules = [number for number, line in enumerate(lines) if line.startswith("      - alert: ")]

    assert [lines[number] for number in rules if not lines[number - 1].startswith("      # ")] == []


# --- page ----------------------------------------------------------------------------------------


def test_each_rule_has_its_section_and_each_section_its_rule() -> None:
    names = [re.findall(r"alert: (\w+)", rule)[0] for rule in read_rules()]
    books = [re.findall(r"runbook: (\S+)", rule)[0] for rule in read_rules()]

    assert list(read_sections()) == list(dict.fromkeys(names))
    assert books == [f"{PAGE.relative_to(ROOT)}#{name.lower()}" for name in names]


@pytest.mark.parametrize(("name", "text"), read_sections().items(), ids=read_sections())
def test_each_section_says_what_it_means_and_what_to_do(name: str, text: str) -> None:
    assert tuple(re.findall(r"^\*\*(\w+)\.\*\*", text, re.MULTILINE)) == PARTS, name


def test_panels_that_the_page_names_are_there() -> None:
    titles = {panel["title"] for panel in read_board()["panels"]}
    named = {
        " ".join(title.split())
        for text in read_sections().values()
        for title in re.findall(r"(?<!\*)\*([A-Z][^*]+)\*(?!\*)", text)
    }

    assert "Runs by status" in named
    assert named - titles == {"Status, Targets"}  # a menu of Prometheus


# --- dashboard -----------------------------------------------------------------------------------


def test_panels_have_a_place_of_their_own() -> None:
    panels = read_board()["panels"]
    places = [panel["gridPos"] for panel in panels]

    assert len({panel["id"] for panel in panels}) == len(panels)
    assert len({panel["title"] for panel in panels}) == len(panels)
    assert all(place["x"] + place["w"] <= 24 for place in places)
    assert [one for one in combinations(places, 2) if overlap(*one)] == []


def overlap(one: dict[str, int], other: dict[str, int]) -> bool:
    return all(
        one[start] < other[start] + other[size] and other[start] < one[start] + one[size]
        for start, size in (("x", "w"), ("y", "h"))
    )


def test_panels_say_what_they_show_and_select_by_the_variables() -> None:
    board = read_board()
    variables = {f"${one['name']}" for one in board["templating"]["list"]}
    panels = [panel for panel in board["panels"] if panel["type"] != "row"]

    assert variables == {"$datasource", "$job", "$instance", "$database"}
    for panel in panels:
        assert panel["description"], panel["title"]
        assert panel["datasource"]["uid"] == "${datasource}"
        for target in panel["targets"]:
            assert 'job=~"$job",instance=~"$instance"' in target["expr"], panel["title"]
            asked = set(re.findall(r"\$[a-z]+", target["expr"]))
            assert asked <= variables, panel["title"]


def test_the_provisioning_finds_the_dashboard_and_prometheus() -> None:
    provisioning = DEPLOY / "grafana/provisioning"
    source = (provisioning / "datasources/prometheus.yml").read_text("utf-8")
    boards = (provisioning / "dashboards/legation.yml").read_text("utf-8")
    page = " ".join(PAGE.read_text("utf-8").split())

    for text, pattern in ((source, r"url: (\S+)"), (boards, r"path: (\S+)")):
        (found,) = re.findall(pattern, text)
        assert f"`{found}`" in page
