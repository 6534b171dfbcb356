"""The console's frame, agents and teams, and the playground, in a real browser."""

from __future__ import annotations

import json
from collections.abc import Generator
from pathlib import Path

import httpx2
import pytest

from ..browser import NoBrowser
from ..callers import Issuer
from .console_kit import NARROW, Console, console
from .console_site import HOSTILE, bearer, site
from .hosted import hosted

TALK = ("agents:read", "agents:*:run", "teams:read", "teams:*:run", "sessions:read")


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


def say(shown: Console, message: str) -> None:
    shown.write("Message", message)
    shown.press("Enter")


def judge(shown: Console, name: str) -> None:
    """The screen is usable by everybody, at each width and in both schemes, and runs nothing."""
    assert shown.violations() == []
    shown.resize(*NARROW)
    assert shown.overflow() == []
    shown.prefer("dark")
    assert shown.violations() == []
    shown.prefer("light")
    shown.resize(1280, 800)
    assert shown.page.run("window.ran") is None
    shown.assert_clean()
    shown.picture(name)


def clipboard(shown: Console, button: str) -> str:
    """Return what a button copies."""
    shown.page.run(
        "Object.defineProperty(navigator, 'clipboard', {configurable: true, value:"
        " {writeText: async (text) => { window.copied = text; }}}), window.copied = ''"
    )
    shown.click(button)
    return str(shown.page.wait("window.copied"))


# --- The frame ----------------------------------------------------------------------------------


def test_the_first_paint_comes_soon(origin: str, issuer: Issuer, shown: Console) -> None:
    shown.open(origin, bearer(issuer, "config:read", "databases:read"), "/overview")
    shown.wait_text("Your limits")
    script = "performance.getEntriesByName('first-contentful-paint')[0].startTime"

    assert shown.page.run(script) < 5000  # how soon is measured by a benchmark
    assert shown.screens()[0] == "Overview"
    assert shown.page.run("location.href") == f"{origin}/console#/overview"
    judge(shown, "overview")


def test_a_token_that_is_not_taken_is_asked_for_again(origin: str, shown: Console) -> None:
    shown.open(origin, "a.b.c")
    shown.wait_text("This token is not taken")

    assert shown.text("h1") == "Sign in"
    assert shown.page.run("sessionStorage.length") == 0


def test_a_pasted_token_opens_what_it_allows(origin: str, issuer: Issuer, shown: Console) -> None:
    shown.open(origin)
    assert shown.text("h1") == "Sign in"
    assert shown.violations() == []
    shown.picture("sign-in")
    shown.write("Token", f" Bearer {bearer(issuer, 'agents:read')}\n")
    shown.click("Sign in")

    shown.wait_for("link", "Agents and teams")
    assert not {"Playground", "Databases", "Audit", "Settings"} & {*shown.screens()}
    shown.show("/playground")
    shown.wait_text("There is no such screen, or your token does not open it.")
    shown.click("Sign out")
    shown.wait_for("heading", "Sign in")
    assert shown.page.run("sessionStorage.length") == 0
    shown.assert_clean()


def test_the_keyboard_reaches_the_content(origin: str, issuer: Issuer, shown: Console) -> None:
    shown.open(origin, bearer(issuer, "agents:read"), "/agents")
    shown.wait_for("link", "Concierge")
    shown.page.run("document.querySelector('a, button, input').focus()")
    assert shown.page.run("document.activeElement.innerText") == "Skip to the content"
    shown.press("Enter")
    assert shown.page.run("document.activeElement.innerText") == "Agents and teams"
    shown.page.run("document.querySelector('nav a[href=\"#/overview\"]').focus()")
    shown.press("Enter")
    shown.wait_for("heading", "Overview")
    assert shown.page.wait("document.activeElement.tagName === 'H1'")


def test_on_a_narrow_page_the_menu_is_a_button(origin: str, issuer: Issuer, shown: Console) -> None:
    shown.open(origin, bearer(issuer, "agents:read"), "/overview")
    shown.resize(*NARROW)
    shown.click("Menu")
    shown.click("Agents and teams", "link")
    shown.wait_for("link", "Concierge")
    assert shown.find("link", "Overview") == []
    shown.resize(1280, 800)


def test_without_authorization_nobody_signs_in(shown: Console) -> None:
    with hosted(site(None)) as base:
        shown.open(base)
        shown.wait_for("link", "Playground")
        assert "Everybody (authorization is off)" in shown.text("footer")
        shown.assert_clean()


# --- Agents and teams -----------------------------------------------------------------------------


def test_agents_and_teams_are_shown_with_tools_and_members(
    origin: str, issuer: Issuer, shown: Console
) -> None:
    shown.open(origin, bearer(issuer, "agents:read", "teams:read"), "/agents")
    shown.wait_for("link", "Front desk")
    judge(shown, "agents")
    shown.click("Concierge", "link")
    shown.wait_for("heading", "Concierge")
    shown.wait_text("asks a person")
    assert HOSTILE in shown.text("main")
    assert "Answer briefly." not in shown.text("main")  # instructions are for administrators
    assert shown.find("link", "Talk to it") == []
    judge(shown, "agent")
    shown.show("/agents/team/front")
    shown.wait_for("heading", "Front desk")
    shown.wait_for("link", "Concierge")
    shown.show("/agents/agent/none")
    shown.wait_text("Agent not found")


# --- The playground -------------------------------------------------------------------------------


def test_an_agent_is_talked_to_and_its_calls_are_shown(
    origin: str, issuer: Issuer, shown: Console
) -> None:
    shown.open(origin, bearer(issuer, *TALK), "/playground/agent/concierge")
    shown.wait_for("textbox", "Message")
    say(shown, "How is the weather?")
    shown.wait_text("Take a coat.")
    shown.wait_for("button", "Copy as curl")
    assert "150 tokens in" in shown.text("main")
    judge(shown, "playground")

    command = clipboard(shown, "Copy as curl")
    assert command.startswith(f"curl -N '{origin}/agents/concierge/runs' \\\n")
    assert "--form-string 'message=How is the weather?'" in command
    test = clipboard(shown, "Copy as pytest")
    compile(test, "test", "exec")
    assert 'call("weather", **{"city": "Oslo"})' in test


def test_a_call_is_approved_and_another_is_executed(
    origin: str, issuer: Issuer, shown: Console
) -> None:
    shown.open(origin, bearer(issuer, *TALK), "/playground/agent/concierge")
    shown.wait_for("textbox", "Message")
    say(shown, "refund it")
    shown.wait_text("wants to be approved")
    judge(shown, "playground-approval")
    shown.click("Approve")
    shown.click("Go on")
    shown.wait_text("Take a coat.")

    say(shown, "scan it")
    shown.wait_text("is yours to execute")
    shown.write("Result", "Badge of Ada")
    shown.click("Go on")
    shown.page.wait("document.body.innerText.split('Take a coat.').length === 3")

    say(shown, "refund it")
    shown.wait_text("wants to be approved")
    shown.click("Reject")
    shown.write("Note", "Not this one")
    shown.click("Go on")
    shown.wait_text("rejected")
    shown.assert_clean()


def test_a_conversation_comes_back_with_its_address(
    origin: str, issuer: Issuer, shown: Console
) -> None:
    token = bearer(issuer, *TALK)
    shown.open(origin, token, "/playground/agent/concierge")
    shown.wait_for("textbox", "Message")
    say(shown, "refund it again")
    shown.wait_text("wants to be approved")
    place = shown.page.run("location.hash.slice(1)")

    shown.open(origin, token, place)
    shown.wait_text("wants to be approved")
    shown.click("Approve")
    shown.click("Go on")
    shown.wait_text("Take a coat.")


def test_a_member_stands_in_the_call_of_its_team(
    origin: str, issuer: Issuer, shown: Console
) -> None:
    shown.open(origin, bearer(issuer, *TALK), "/playground/team/front")
    shown.wait_for("textbox", "Message")
    say(shown, "How is the weather?")
    shown.wait_for("button", "Copy as pytest")
    member = "document.querySelector('.call .member').innerText"
    assert "Concierge" in shown.page.run(member)
    assert "Take a coat." in shown.page.run(member)
    judge(shown, "playground-team")


def test_a_run_is_cancelled_while_it_speaks(origin: str, issuer: Issuer, shown: Console) -> None:
    shown.open(origin, bearer(issuer, *TALK), "/playground/agent/concierge")
    shown.wait_for("textbox", "Message")
    say(shown, f"say slowly {'word ' * 300}")
    shown.wait_text("You said:")
    shown.click("Cancel")
    shown.wait_text("CANCELLED")
    shown.wait_for("button", "Send")


def test_what_is_wrong_is_said_and_nothing_is_lost(
    origin: str, issuer: Issuer, shown: Console
) -> None:
    shown.open(origin, bearer(issuer, *TALK), "/playground/agent/concierge")
    shown.wait_for("textbox", "Message")
    shown.page.run("document.querySelector('.options').open = true")
    shown.write("Dependencies", "[1")
    say(shown, "Hello")
    shown.wait_text("dependencies")
    shown.write("Dependencies", json.dumps({"city": "Oslo"}))
    say(shown, "Hello again")
    shown.wait_text("You said: Hello again")


def test_a_sign_in_that_ends_is_asked_for_over_the_screen(
    origin: str, issuer: Issuer, shown: Console
) -> None:
    shown.open(origin, bearer(issuer, *TALK), "/playground/agent/concierge")
    shown.wait_for("textbox", "Message")
    shown.page.run(
        "sessionStorage.setItem(Object.keys(sessionStorage)[0],"
        f" {json.dumps(bearer(issuer, *TALK, seconds=-60))})"
    )
    say(shown, "Hello")
    shown.wait_for("heading", "Sign in again")
    assert shown.violations() == []
    shown.write("Token", bearer(issuer, *TALK))
    shown.click("Sign in")
    shown.page.wait("!document.querySelector('dialog')")
    assert shown.text("h1") == "Playground"
    say(shown, "Hello again")
    shown.wait_text("You said: Hello again")


CUT = """
(() => {
  const real = window.fetch;
  window.fetch = async (address, options) => {
    const answer = await real(address, options);
    if (options?.method !== "POST" || !String(address).endsWith("/runs")) return answer;
    let pieces = 0;
    const cut = new TransformStream({
      transform(piece, control) {
        pieces += 1;
        if (pieces > 3) control.error(new TypeError("cut"));
        else control.enqueue(piece);
      },
    });
    return new Response(answer.body.pipeThrough(cut), {status: 200, headers: answer.headers});
  };
  return true;
})()
"""


def spoil_token(shown: Console, token: str) -> None:
    key = "Object.keys(sessionStorage)[0]"
    shown.page.run(f"sessionStorage.setItem({key}, {json.dumps(token)})")


def test_a_sign_in_that_ends_in_the_middle_of_a_stream_loses_nothing_of_it(
    origin: str, issuer: Issuer, shown: Console
) -> None:
    shown.open(origin, bearer(issuer, *TALK), "/playground/agent/concierge")
    shown.wait_for("textbox", "Message")
    shown.page.run(CUT)
    say(shown, f"say slowly {' '.join(str(number) for number in range(20))} end")
    shown.wait_text("You said:")
    spoil_token(shown, bearer(issuer, *TALK, seconds=-60))
    shown.wait_for("heading", "Sign in again")
    shown.write("Token", bearer(issuer, *TALK))
    shown.click("Sign in")
    shown.wait_for("button", "Copy as curl")

    numbers = " ".join(str(number) for number in range(20))
    assert f"You said: say slowly {numbers} end" in shown.text(".run")


def test_a_call_that_somebody_else_answered_is_shown_as_answered(
    origin: str, issuer: Issuer, shown: Console
) -> None:
    token = bearer(issuer, *TALK)
    shown.open(origin, token, "/playground/agent/concierge")
    shown.wait_for("textbox", "Message")
    say(shown, "refund it")
    shown.wait_text("wants to be approved")
    run_id = shown.page.run(
        "document.querySelector('.tools a').hash.split('/').at(-1).split('?')[0]"
    )
    body = {"tools": json.dumps([]), "stream": "false"}
    path = f"{origin}/agents/concierge/runs/{run_id}/continue"
    with httpx2.Client(headers={"authorization": f"Bearer {token}"}, timeout=20) as other:
        assert other.post(path, data=body).status_code == 200

    shown.click("Approve")
    shown.click("Go on")
    shown.wait_text("Take a coat.")
    assert shown.find("button", "Go on") == []
    assert "rejected" in shown.text(".run")


def test_files_and_an_output_schema_go_with_a_message(
    origin: str, issuer: Issuer, shown: Console, tmp_path: Path
) -> None:
    note = tmp_path / "a note.txt"
    note.write_text("Bring a coat.")
    shown.open(origin, bearer(issuer, *TALK), "/playground/agent/long")
    shown.wait_for("textbox", "Message")
    document = shown.page.call("DOM.getDocument")["root"]["nodeId"]
    found = shown.page.call("DOM.querySelector", nodeId=document, selector="input[type=file]")
    shown.page.call("DOM.setFileInputFiles", nodeId=found["nodeId"], files=[str(note)])
    shown.wait_for("button", "Without files")
    say(shown, "Read it")
    shown.wait_text("Bring a coat.")
    assert "a note.txt" in shown.text(".mine")

    shown.page.run("document.querySelector('.options').open = true")
    schema = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
    shown.write("Output schema", json.dumps(schema))
    say(shown, '{"city": "Oslo"}')
    shown.page.wait("[...document.querySelectorAll('.run .json .key')].length === 1")
    assert '"Oslo"' in shown.text(".run .json")
