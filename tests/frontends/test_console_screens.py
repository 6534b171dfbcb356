"""Each screen of the console: its main task with a token that has just the scope for it."""

from __future__ import annotations

import json
from collections.abc import Generator
from pathlib import Path
from typing import Final

import pytest

from legation.store.audit_export import ExportVerifier
from legation.store.audit_verify import Intact

from ..browser import NoBrowser
from .console_kit import NARROW, Console, console
from .console_world import PLANTED, World, world

ALWAYS: Final = {"Overview", "Runs", "Approvals", "Access"}
"""The screens that need no scope."""


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Generator[World]:
    with world(tmp_path_factory.mktemp("office")) as office:
        office.run("look up Ritz", session_id="lookups")
        office.run("look up Adlon", session_id="lookups")
        office.run("fail", session_id="failing")
        yield office


@pytest.fixture(scope="module")
def chromium() -> Generator[Console]:
    try:
        with console() as started:
            yield started
    except NoBrowser as reason:
        pytest.skip(str(reason))


@pytest.fixture
def shown(chromium: Console, served: World) -> Console:
    chromium.origin = served.origin
    return chromium


def judge(shown: Console, name: str) -> None:
    """A screen can be used by everybody, on a telephone too; nothing complained."""
    shown.picture(name)
    assert shown.violations() == []
    shown.resize(*NARROW)
    assert shown.overflow() == []
    shown.resize(1280, 800)
    shown.prefer("dark")
    assert [rule for rule in shown.violations() if rule[0] == "color-contrast"] == []
    shown.prefer("light")
    shown.assert_clean()


def test_without_a_scope_the_screens_are_absent(shown: Console, served: World) -> None:
    shown.open(served.origin, served.token())

    assert set(shown.screens()) == ALWAYS
    for path in ("sessions", "channels", "databases", "audit", "settings"):
        shown.show(f"/{path}")
        shown.wait_text("There is no such screen, or your token does not open it.")
        shown.show("/overview")
        shown.wait_for("heading", "Overview")
    shown.show("/runs")  # one's own, of which there is none
    shown.wait_text("No run fits")
    shown.assert_clean()


def test_the_other_screens_can_be_used_by_everybody(shown: Console, served: World) -> None:
    shown.open(served.origin, served.token("platform:admin"), "/overview")
    for place, name, text in (
        ("/overview", "overview", "archive"),
        ("/agents", "agents", "Guest book"),
        ("/playground/agent/clerk", "playground", "What you write is sent to it"),
    ):
        shown.show(place)
        shown.wait_text(text)
        if name == "playground":
            shown.write("Message", "look up Kempinski")
            shown.click("Send")
            shown.wait_text("Kempinski: a hotel in Berlin")
            shown.wait_for("link", "Show the run")
        judge(shown, name)


def test_a_database_is_migrated_where_the_id_is_typed(shown: Console, served: World) -> None:
    scopes = ("databases:read", "databases:migrate", "databases:destroy")
    shown.open(served.origin, served.token(*scopes), "/databases")
    assert set(shown.screens()) == {*ALWAYS, "Databases"}
    shown.wait_for("link", "main")
    judge(shown, "databases")
    shown.click("archive", "link")
    shown.wait_text("there is nothing to do")
    shown.wait_text("session_states")  # among the tables, with its size
    shown.choose("To version", "2.10.0")
    shown.wait_text("Lost with it:")
    judge(shown, "database")
    shown.click("Dry run")
    shown.wait_text("Dry run: ")

    shown.click("Migrate")
    shown.wait_for("heading", "Migrate archive to 2.10.0")
    assert shown.page.run("document.querySelector('dialog .danger').disabled")
    shown.press("Escape")
    assert "2.14.0" in shown.text(".facts")
    shown.click("Migrate")
    shown.write("Type archive to go on", "archive")
    shown.page.wait("!document.querySelector('dialog .danger').disabled")
    shown.press("Enter")
    shown.wait_text("2.10.0 → 2.14.0")

    shown.show("/databases/archive")
    shown.wait_for("heading", "up 2.14.0")
    shown.click("Migrate")
    shown.wait_for("heading", "Migrate archive to 2.14.0")
    shown.click("Migrate")
    shown.wait_text("there is nothing to do")
    assert served.ask("GET", "/databases/archive").body["state"] == "current"
    shown.assert_clean()


def test_the_trail_is_filtered(shown: Console, served: World) -> None:
    shown.open(served.origin, served.token("audit:read", sub="carol"), "/audit")
    assert set(shown.screens()) == {*ALWAYS, "Audit"}
    shown.wait_text("create_agent_run")
    shown.wait_text("carol")
    shown.write("Who", "bob")
    shown.click("Filter")
    shown.page.wait("location.hash.includes('subject=bob')")
    table = "document.querySelector('table')?.innerText"
    shown.page.wait(f"{table}?.includes('create_agent_run') && !{table}.includes('carol')")

    shown.write("Operation", "no_such_operation")
    shown.press("Enter")
    shown.wait_text("Nothing in the trail fits")
    shown.click("Clear", "link")
    shown.wait_text("create_agent_run")
    judge(shown, "audit")


def test_the_trail_is_verified_and_exported(shown: Console, served: World, tmp_path: Path) -> None:
    shown.open(served.origin, served.token("audit:read", sub="carol"), "/audit")
    shown.wait_text("create_agent_run")
    shown.click("Verify")
    shown.page.wait("document.querySelectorAll('[aria-label=Verdict] h2').length === 2")
    verdict = shown.text("[aria-label=Verdict]")
    assert "main" in verdict
    assert "archive" in verdict
    assert "intact" in verdict
    assert ":" in shown.text("[aria-label=Verdict] li")
    assert shown.violations() == []

    row = served.ask("GET", "/audit?operation=create_agent_run&limit=1").body["data"][0]
    shown.write("Request", row["request_id"])
    shown.write("Database", "main")
    shown.click("Filter")
    shown.page.wait("document.querySelectorAll('tbody tr').length === 1")

    behavior = {"behavior": "allow", "downloadPath": str(tmp_path)}
    shown.page.call("Page.setDownloadBehavior", **behavior)
    shown.click("Export")
    saved = tmp_path / "audit.ndjson"
    shown.until(saved.exists)
    verifier = ExportVerifier()
    lines = saved.read_bytes().splitlines()
    assert [one for one in map(verifier.take, lines) if one is not None] == []
    assert isinstance(verifier.end(), Intact)

    shown.show("/audit?db_id=none")
    shown.click("Export")
    shown.wait_text("names no database")


def test_a_session_is_found_changed_and_deleted(
    shown: Console, served: World, tmp_path: Path
) -> None:
    served.run("look up Excelsior", session_id="to-be-deleted")
    scopes = ("sessions:read", "sessions:write", "sessions:delete")
    token = served.token(*scopes, sub="bob")
    shown.open(served.origin, token, "/sessions?db_id=main")
    assert set(shown.screens()) == {*ALWAYS, "Sessions"}
    shown.wait_text("look up Ritz")
    judge(shown, "sessions")
    shown.write("Name", "Excelsior")
    shown.click("Filter")
    shown.page.wait("document.querySelectorAll('tbody tr').length === 1")
    shown.click("look up Excelsior", "link")
    shown.wait_text("Excelsior: a hotel in Berlin")
    judge(shown, "session")

    shown.write("State as JSON", "{broken")
    shown.click("Save the state")
    assert "JSON" in shown.page.wait("document.querySelector('[role=alert]')?.innerText")
    shown.write("State as JSON", '{"room": 7}')
    shown.click("Save the state")
    shown.wait_text("The state is saved.")
    path = "/sessions/to-be-deleted?db_id=main"
    assert served.ask("GET", f"{path}&user_id=bob").body["session_state"] == {"room": 7}

    saved = tmp_path / "to-be-deleted.json"
    behavior = {"behavior": "allow", "downloadPath": str(tmp_path)}
    shown.page.call("Page.setDownloadBehavior", **behavior)
    shown.click("Export")
    shown.until(saved.exists)
    assert "Excelsior: a hotel in Berlin" in saved.read_text()

    shown.click("Delete")
    shown.wait_for("heading", "Delete look up Excelsior")
    shown.click("Delete")
    shown.wait_text("The session is deleted.")
    assert served.ask("GET", f"{path}&user_id=bob").status == 404
    shown.assert_clean()


def test_a_run_is_found_and_read_step_by_step(shown: Console, served: World) -> None:
    served.run("ask look up Bristol", "teams/desk", session_id="team-run")
    shown.open(served.origin, served.token("runs:read"), "/runs")
    assert set(shown.screens()) == ALWAYS
    shown.wait_text("model_overloaded")
    judge(shown, "runs")
    shown.choose("Status", "ERROR")
    shown.click("Filter")
    shown.page.wait("document.querySelectorAll('tbody tr').length === 1")
    shown.click("Clear", "link")
    shown.click("Desk team", "link")

    shown.wait_text("delegate_task_to_member")
    steps = shown.page.wait(
        "(rows => rows.length === 8 && rows.map((row) => row.innerText.split(' ')[0]))"
        "([...document.querySelectorAll('.waterfall .name')])"
    )
    assert steps == ["Run", "Model", "Tool", "Run", "Model", "Tool", "Model", "Model"]
    rows = shown.page.run(
        "[...document.querySelectorAll('.waterfall button')].map((row) => row.innerText)"
    )
    assert "look_up" in rows[5]
    shown.page.click(".waterfall li:nth-child(6) button")
    shown.wait_text("Bristol: a hotel in Berlin")
    judge(shown, "run")
    shown.click("As JSON", "DisclosureTriangle")
    shown.wait_text("member_responses")
    shown.assert_clean()


def test_a_run_is_followed_while_it_works(shown: Console, served: World) -> None:
    paused = served.run("pay Adlon", session_id="followed")
    query = "component=agent:clerk&db_id=main"
    shown.open(served.origin, served.token("runs:read"), f"/runs/{paused['run_id']}?{query}")
    shown.wait_text("waits for an answer")
    served.answer(paused, confirmed=True)
    shown.wait_text("120 paid to Adlon")
    shown.page.wait("document.querySelector('.facts').innerText.includes('COMPLETED')")
    shown.assert_clean()


def test_who_may_answers_for_somebody_else(shown: Console, served: World) -> None:
    token = served.token("approvals:read", "approvals:write")
    shown.open(served.origin, token, "/approvals")
    assert set(shown.screens()) == ALWAYS
    shown.wait_text("Nobody waits")
    waiting = [
        served.run(f"pay {name}", session_id=f"pay-{name}") for name in ("Ada", "Eve", "Zoe")
    ]
    shown.wait_text("3 approvals")  # nobody has asked for it
    for name in ("Ada", "Eve", "Zoe"):
        shown.wait_text(name)
    assert "Let me see" not in shown.text()  # of others what is asked, and no more
    judge(shown, "approvals")

    shown.click("Approve pay Ada")
    shown.write("Note", "It is due")
    judge(shown, "approve")
    shown.click("Approve")
    shown.wait_text("Approved: the run goes on.")
    shown.wait_text("2 approvals")
    shown.click("Reject pay Eve")
    shown.write("Note", "Not hers")
    shown.click("Reject")
    shown.wait_text("Rejected: the run goes on without it.")
    shown.wait_text("1 approval")

    served.answer(waiting[2], confirmed=True)  # Bob is quicker
    shown.wait_text("Nobody waits")
    assert [served.outcome(run) for run in waiting] == [
        ("COMPLETED", True, "It is due"),
        ("COMPLETED", False, "Not hers"),
        ("COMPLETED", True, None),
    ]
    shown.choose("Status", "rejected")
    shown.click("Filter")
    shown.wait_text("Answered by")
    assert "ada" in shown.text("article")
    shown.assert_clean()


def test_an_answer_that_is_too_late_is_told(shown: Console, served: World) -> None:
    run = served.run("pay late", session_id="late")
    (approval,) = served.ask("GET", f"/approvals?status=pending&run_id={run['run_id']}").body[
        "data"
    ]
    token = served.token("approvals:read", "approvals:write")
    shown.open(served.origin, token, f"/approvals/{approval['id']}")
    shown.click("Approve pay late")
    shown.wait_for("textbox", "Note")
    served.answer(run, confirmed=False)
    shown.click("Approve")
    shown.wait_text("Approval is already 'rejected' and cannot be resolved")
    shown.page.wait("document.querySelector('article').innerText.includes('rejected')")
    assert shown.find("button", "Approve pay late") == []


def test_an_incident_leads_to_its_run(shown: Console, served: World) -> None:
    shown.open(served.origin, served.token("incidents:read", "runs:read"), "/incidents")
    assert set(shown.screens()) == {*ALWAYS, "Incidents"}
    shown.wait_text("model_overloaded")
    judge(shown, "incidents")
    shown.click("agent:clerk", "link")
    shown.wait_text("The model is overloaded")
    shown.assert_clean()


def test_dead_letters_are_sent_again_and_discarded(shown: Console, served: World) -> None:
    served.provider.reachable = False
    served.deliver([("4911", "m1", "hello"), ("4912", "m2", "hello"), ("4913", "m3", "hello")])
    served.until_dead(3)
    token = served.token("channels:read", "channels:write")
    shown.open(served.origin, token, "/channels")
    assert set(shown.screens()) == {*ALWAYS, "Channels"}
    shown.wait_text("whatsapp")
    judge(shown, "channels")
    shown.click("front-desk replies", "link")
    shown.wait_text("HTTP 400")
    judge(shown, "dead-letters")
    shown.click("Retry reply-m1")
    shown.wait_text("It is sent again.")
    served.until_dead(3)  # in vain: the provider still refuses
    assert served.provider.seen == []

    served.provider.reachable = True
    shown.show("/channels/front-desk?what=replies&state=dead")
    shown.page.wait("document.querySelectorAll('tbody tr').length === 3")
    shown.click("Retry reply-m2")
    shown.page.wait("document.querySelectorAll('tbody tr').length === 2")
    shown.click("Discard all")
    shown.write("Type front-desk to go on", "front-desk")
    shown.page.wait("!document.querySelector('dialog .danger').disabled")
    shown.press("Enter")
    shown.wait_text("2 letters: discarded.")
    shown.wait_text("No dead letters")

    shown.click("Send a test message")
    shown.write("To", "4915")
    shown.click("Send")
    shown.wait_text("The message is on its way.")
    served.until_sent("4912", "4915")
    shown.assert_clean()


def test_a_request_is_tried_before_it_is_made(shown: Console, served: World) -> None:
    shown.open(served.origin, served.token("agents:clerk:run"), "/access")
    shown.write("Path", "/agents/guestbook/runs")
    shown.choose("Method", "POST")
    shown.click("Explain")
    shown.wait_text("Denied")
    shown.write("Path", "/agents/clerk/runs")
    shown.click("Explain")
    shown.wait_text("Allowed")
    shown.choose("Routes", "denied")
    shown.page.wait("!document.querySelector('table').innerText.includes('GET /me\\n')")
    judge(shown, "access")


def test_a_token_is_explained(shown: Console, served: World) -> None:
    shown.open(served.origin, served.token("access:read"), "/access")
    shown.wait_text("RS256")
    label = "As the bearer of this token, or of these claims as JSON; empty: you"
    shown.write(label, json.dumps({"sub": "eve", "scopes": ["audit:read"]}))
    shown.write("Path", "/audit")
    shown.click("Explain")
    shown.wait_text("eve")
    shown.wait_text("Allowed")
    shown.write(label, "not.a.token")
    shown.click("Explain")
    shown.wait_text("The token is refused")
    judge(shown, "access-token")


def test_a_setting_is_found(shown: Console, served: World) -> None:
    shown.open(served.origin, served.token("config:read"), "/settings")
    assert "Settings" in shown.screens()
    shown.wait_text("office.db")
    judge(shown, "settings")
    shown.write("Find a key", "lease_seconds", "searchbox")
    shown.wait_text("No key fits.")
    shown.click("Defaults too", "checkbox")
    shown.wait_text("lease_seconds")
    assert "BEGIN PUBLIC KEY" not in shown.text()
    shown.assert_clean()


def test_nothing_that_people_write_is_run(shown: Console, tmp_path: Path) -> None:
    with world(tmp_path, title=PLANTED[0]) as office:
        for number, text in enumerate(PLANTED):
            office.run(f"look up {text}", session_id="planted")
            if number < 3:
                office.run(f"pay {text}", session_id=f"waits-{number}")
        last = office.run(f"look up {' '.join(PLANTED)}", session_id="last")
        office.provider.reachable = False
        office.deliver([("4911", "m1", PLANTED[1])])
        office.until_dead(1)
        shown.open(office.origin, office.token("platform:admin", sub=PLANTED[2]))
        for place, seen in (
            ("/overview", PLANTED[2]),
            ("/agents", PLANTED[0]),
            ("/playground", PLANTED[2]),
            ("/runs", PLANTED[0]),
            (f"/runs/{last['run_id']}?component=agent:clerk&db_id=main", PLANTED[-1]),
            ("/sessions?db_id=main", "look up"),
            ("/sessions/planted?type=agent&db_id=main&user_id=bob", PLANTED[-1]),
            ("/channels/front-desk", "reply-m1"),
            ("/audit", PLANTED[2]),
            ("/access", PLANTED[2]),
            ("/settings", PLANTED[0]),
        ):
            shown.show(place)
            shown.wait_text(seen)
            assert shown.page.run("'ran' in window") is False, place
        shown.show("/sessions/planted?type=agent&db_id=main&user_id=bob")
        shown.wait_text(f"look up {PLANTED[-1]}")
        read = shown.text("main")
        assert [text for text in PLANTED if text not in read] == []
        # What a page would have to do to look at it has happened: details are open, all is drawn.
        shown.page.run(
            "document.querySelectorAll('details').forEach((one) => { one.open = true; })"
        )
        assert shown.page.run("'ran' in window") is False
        shown.assert_clean()
        shown.page.go("about:blank")
