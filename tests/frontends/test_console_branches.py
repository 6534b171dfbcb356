"""Branches of a conversation and forks of a run, in a real browser."""

from __future__ import annotations

import json
from collections.abc import Generator
from typing import Any, Final

import httpx2
import pytest

from ..browser import NoBrowser
from ..callers import Issuer
from .console_kit import NARROW, Console, console
from .console_site import bearer, site
from .hosted import hosted

TALK: Final = ("agents:read", "agents:*:run", "teams:read", "teams:*:run", "sessions:read")
WRITE: Final = (*TALK, "sessions:write")
TURNS: Final = "[...document.querySelectorAll('.turn .mine pre')].map((one) => one.innerText)"
ACTIONS: Final = (
    "[...document.querySelectorAll('.turn')].map((turn) =>"
    " [...turn.querySelectorAll('.tools button')].map((one) => one.innerText.trim()))"
)


@pytest.fixture(scope="module")
def issuer() -> Issuer:
    return Issuer()


@pytest.fixture(scope="module")
def origin(issuer: Issuer) -> Generator[str]:
    with hosted(site(issuer)) as base:
        yield base


@pytest.fixture(scope="module")
def shown() -> Generator[Console]:
    try:
        with console() as started:
            yield started
    except NoBrowser as reason:
        pytest.skip(str(reason))


def judge(shown: Console, name: str) -> None:
    """The screen is usable by everybody, at each width and in both schemes."""
    assert shown.violations() == []
    shown.resize(*NARROW)
    assert shown.overflow() == []
    shown.prefer("dark")
    assert shown.violations() == []
    shown.prefer("light")
    shown.resize(1280, 800)
    shown.assert_clean()
    shown.picture(name)


def talk(shown: Console, *messages: str) -> None:
    """Say one thing after the other, each when the answer before is there."""
    shown.wait_for("textbox", "Message")
    for number, message in enumerate(messages, 1):
        shown.write("Message", message)
        shown.press("Enter")
        copies = f"document.querySelectorAll('.turn .tools').length === {number}"
        shown.page.wait(copies)


def act(shown: Console, turn: int, name: str) -> None:
    """Do something with the exchange of this number, with the keyboard."""
    script = (
        f"[...document.querySelectorAll('.turn:nth-child({turn}) .tools button')]"
        f".find((one) => one.innerText.trim() === {json.dumps(name)}).focus()"
    )
    shown.page.run(script)
    shown.press("Enter")


def place(shown: Console) -> str:
    return str(shown.page.run("location.hash"))


def ask(origin: str, token: str, method: str, path: str, **more: Any) -> Any:
    with httpx2.Client(headers={"authorization": f"Bearer {token}"}, timeout=20) as other:
        answer = other.request(method, f"{origin}{path}", **more)
    assert answer.status_code < 300, answer.text
    return answer.json() if answer.content else None


@pytest.mark.parametrize("path", ["agent/concierge", "team/front"])
def test_an_answer_is_made_again_in_a_branch_and_the_original_stays(
    origin: str, issuer: Issuer, shown: Console, path: str
) -> None:
    shown.open(origin, bearer(issuer, *TALK), f"/playground/{path}")
    talk(shown, "Hello", "How is the weather?")
    before = place(shown)
    judge(shown, f"playground-actions-{path[:4]}")
    assert shown.page.run(ACTIONS) == [["Regenerate", "Edit", "Copy as curl", "Copy as pytest"]] * 2
    act(shown, 2, "Regenerate")
    shown.wait_text("This is a branch of another conversation")
    shown.page.wait("document.querySelectorAll('.turn .tools').length === 2")

    assert place(shown) != before
    assert shown.page.run(TURNS) == ["Hello", "How is the weather?"]
    assert "Take a coat." in shown.text(".turn:nth-child(2)")
    judge(shown, f"playground-branch-{path[:4]}")
    shown.click("another conversation", "link")
    shown.page.wait("!document.body.innerText.includes('This is a branch')")
    shown.page.wait("document.querySelectorAll('.turn').length === 2")
    assert place(shown) == before


def test_a_message_is_edited_in_a_branch(origin: str, issuer: Issuer, shown: Console) -> None:
    shown.open(origin, bearer(issuer, *TALK), "/playground/agent/concierge")
    talk(shown, "Hello", "Good mourning", "Bye")
    before = place(shown)
    act(shown, 2, "Edit")
    shown.wait_for("heading", "Edit the message")
    assert shown.violations() == []
    shown.press("Escape")
    shown.page.wait("!document.querySelector('dialog')")
    assert place(shown) == before

    act(shown, 2, "Edit")
    shown.wait_for("heading", "Edit the message")
    assert shown.page.run("document.querySelector('dialog textarea').value") == "Good mourning"
    shown.page.run("document.querySelector('dialog textarea').select()")
    shown.page.run("document.querySelector('dialog textarea').focus()")
    shown.page.call("Input.insertText", text="Good morning")
    shown.click("Ask again")
    shown.wait_text("You said: Good morning")
    assert shown.page.run(TURNS) == ["Hello", "Good morning"]
    shown.assert_clean()


def test_a_conversation_goes_on_from_the_middle_and_comes_back_with_its_address(
    origin: str, issuer: Issuer, shown: Console
) -> None:
    token = bearer(issuer, *WRITE)
    shown.open(origin, token, "/playground/agent/concierge")
    talk(shown, "Hello", "How is the weather?")
    before = place(shown)
    act(shown, 1, "Branch from here")
    shown.wait_text("This is a branch of another conversation")
    shown.page.wait("document.querySelectorAll('.turn .tools').length === 1")
    assert shown.page.run(TURNS) == ["Hello"]
    shown.write("Message", "refund it")
    shown.press("Enter")
    shown.wait_text("wants to be approved")
    assert shown.page.run(ACTIONS)[1][:2] == ["Regenerate", "Edit"]
    assert "Branch from here" not in shown.page.run(ACTIONS)[1]

    branch = place(shown)
    shown.open(origin, token, branch[1:])
    shown.wait_text("This is a branch of another conversation")
    shown.wait_text("wants to be approved")
    assert shown.page.run(TURNS) == ["Hello", "refund it"]
    shown.click("another conversation", "link")
    shown.page.wait("!document.body.innerText.includes('This is a branch')")
    shown.page.wait("document.querySelectorAll('.turn').length === 2")
    assert place(shown) == before
    assert shown.page.run(TURNS) == ["Hello", "How is the weather?"]


def test_only_what_the_caller_may_do_is_offered(
    origin: str, issuer: Issuer, shown: Console
) -> None:
    shown.open(origin, bearer(issuer, "agents:read", "agents:run"), "/playground/agent/concierge")
    talk(shown, "Hello")

    assert shown.page.run(ACTIONS) == [["Copy as curl", "Copy as pytest"]]


def test_what_is_gone_meanwhile_is_a_sentence(origin: str, issuer: Issuer, shown: Console) -> None:
    token = bearer(issuer, *WRITE, "sessions:delete")
    shown.open(origin, token, "/playground/agent/concierge")
    talk(shown, "Hello")
    before = place(shown)
    session = before.partition("session=")[2]
    ask(origin, token, "DELETE", f"/sessions/{session}?type=agent")
    for name, sentence in (
        ("Regenerate", "Run not found"),
        ("Branch from here", f"Session with id '{session}' not found"),
    ):
        act(shown, 1, name)
        shown.wait_text(sentence)
        assert place(shown) == before
    assert shown.page.run(TURNS) == ["Hello"]
    shown.assert_clean()


# --- Forks of a run ------------------------------------------------------------------------------


def have_run(origin: str, token: str, message: str, path: str = "agents/concierge") -> Any:
    fields = {"message": message, "stream": "false"}
    return ask(origin, token, "POST", f"/{path}/runs", data=fields)


def choose(shown: Console, number: int) -> None:
    """Choose a step of the waterfall."""
    shown.page.wait(f"document.querySelectorAll('.waterfall li').length >= {number}")
    shown.page.click(f".waterfall li:nth-child({number}) button")


def test_a_run_is_forked_at_a_call_with_another_result(
    origin: str, issuer: Issuer, shown: Console
) -> None:
    token = bearer(issuer, *TALK)
    run = have_run(origin, token, "How is the weather?")
    shown.open(origin, token, f"/runs/{run['run_id']}?component=agent:concierge&db_id=main")
    shown.wait_text("COMPLETED")
    choose(shown, 3)
    shown.wait_for("button", "Fork from this step")
    judge(shown, "run-step")
    shown.click("Fork from this step")
    shown.wait_text("makes this call again")
    shown.page.run("document.querySelector('dialog textarea').focus()")
    shown.page.call("Input.insertText", text="Sun in Oslo")
    assert shown.violations() == []
    shown.click("Fork")
    shown.wait_text("Fork of")
    shown.wait_text("at 1.1")
    shown.wait_text("Take a coat.")
    judge(shown, "run-fork")

    made = place(shown).partition("/runs/")[2].partition("?")[0]
    assert made != run["run_id"]
    told = ask(origin, token, "GET", f"/agents/concierge/runs/{made}")
    assert [tool["result"] for tool in told["tools"]] == ["Sun in Oslo"]
    assert ask(origin, token, "GET", f"/agents/concierge/runs/{run['run_id']}") == run
    shown.click("another run", "link")
    shown.page.wait(f"location.hash.includes({json.dumps(run['run_id'])})")


@pytest.mark.parametrize(("step", "at"), [(1, "from its beginning"), (4, "at 2")])
def test_a_run_is_forked_at_its_beginning_and_at_an_answer(
    origin: str, issuer: Issuer, shown: Console, step: int, at: str
) -> None:
    token = bearer(issuer, *TALK)
    run = have_run(origin, token, "How is the weather?")
    shown.open(origin, token, f"/runs/{run['run_id']}?component=agent:concierge&db_id=main")
    shown.wait_text("COMPLETED")
    choose(shown, step)
    shown.click("Fork from this step")
    shown.wait_for("heading", "Fork from this step")
    shown.click("Fork")
    shown.wait_text(at)
    shown.wait_text("Take a coat.")
    shown.assert_clean()


def test_the_steps_of_members_and_runs_of_others_are_for_reading(
    origin: str, issuer: Issuer, shown: Console
) -> None:
    run = have_run(origin, bearer(issuer, *TALK), "How is the weather?", "teams/front")
    place = f"/runs/{run['run_id']}?component=team:front&db_id=main"
    shown.open(origin, bearer(issuer, *TALK), place)
    shown.wait_text("COMPLETED")
    choose(shown, 3)
    shown.wait_for("button", "Fork from this step")
    choose(shown, 5)
    shown.page.wait("!document.body.innerText.includes('Fork from this step')")

    other = bearer(issuer, *TALK, "runs:read", sub="bob")
    shown.open(origin, other, place)
    shown.wait_text("COMPLETED")
    choose(shown, 3)
    shown.page.wait("!!document.querySelector('.step')")
    assert "Fork from this step" not in shown.text()
