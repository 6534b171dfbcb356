"""The conversation of `legation chat`, against a world that is written down.

A transcript has a line for each action: `>` what was typed, `!` what the person was told, `=` a
piece of an answer, `*` an event as JSON, and the requests as they are.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, Final

import pytest
from attrs import define, evolve, field

from legation_cli.chat_actions import (
    Action,
    Call,
    End,
    Ended,
    Event,
    Lost,
    Next,
    Open,
    Print,
    Read,
    Reply,
    Say,
    Send,
    Stopped,
    Tell,
    TooLong,
    Wait,
)
from legation_cli.chat_talk import ID, LEFT, Options, converse
from legation_cli.failing import CannotGoOn

DESK: Final = Options("http://here", ("agent", "desk"), key="k")
PIPE: Final = evolve(DESK, interactive=False)
STOP: Final = Stopped()
BROKEN: Final = Ended()
ASKED: Final = {"tool_call_id": "c", "tool_name": "book", "tool_args": {"room": "blue"}}
GONE: Final = Lost("the server cannot be reached")


def event(name: str, number: int, run: str = "r", **data: Any) -> Event:
    return Event(name, {"run_id": run, "session_id": "s", **data}, f"{run}:{number}")


def started(run: str = "r") -> Event:
    return event("RunStarted", 1, run)


def said(text: str, number: int = 2) -> Event:
    return event("RunContent", number, content=text)


def completed(text: str = "hello", number: int = 3) -> Event:
    return event("RunCompleted", number, content=text)


def paused(*tools: dict[str, Any], number: int = 2) -> Event:
    asked = [{"id": f"r.{n}", "tool_execution": tool} for n, tool in enumerate(tools)]
    return event("RunPaused", number, requirements=asked)


HELLO: Final = [started(), said("hello"), completed()]


@define
class World:
    """What is typed, how each stream goes, and the reply to each other request, in order."""

    typed: list[Any]
    streams: list[Any]
    replies: list[Any] = field(factory=list[Any])
    lines: list[str] = field(factory=list[str])
    _stream: list[Any] = field(factory=list[Any])

    def hold(self, options: Options) -> int:
        talk = converse(options)
        try:
            action = next(talk)
            while True:
                action = talk.send(self.perform(action))
        except StopIteration as stop:
            code: int = stop.value
        assert (self.typed, self.streams, self.replies) == ([], [], [])
        return code

    def perform(self, action: Action) -> Any:
        match action:
            case Say(text):
                self.lines.append(f"= {text!r}")
            case Tell(text):
                self.lines.append(f"! {text}")
            case Print(data):
                self.lines.append(f"* {json.dumps(data)}")
            case Read(prompt):
                line = self.typed.pop(0) if self.typed else End()
                self.lines.append(f"{prompt}{line if isinstance(line, str) else type(line)}")
                return line
            case Send(call):
                self.note(call)
                return self.replies.pop(0)
            case Open(call):
                self.note(call)
                stream = self.streams.pop(0)
                if isinstance(stream, list):
                    self._stream = [*stream]
                    return None
                return stream
            case Next():
                return self._stream.pop(0) if self._stream else BROKEN
            case Wait(seconds):
                self.lines.append(f"waits {seconds} s")
        return None

    def note(self, call: Call) -> None:
        ends = [f"after {call.after}"] * bool(call.after)
        form = ["&".join(f"{name}={value}" for name, value in call.form.items())]
        key = [f"({call.key})"] * bool(call.key)
        self.lines.append(" ".join(filter(None, [call.method, call.path, *form, *ends, *key])))


def hold(
    typed: Sequence[Any],
    *streams: Any,
    replies: Sequence[Any] = (),
    options: Options = PIPE,
) -> tuple[list[str], int]:
    world = World([*typed], [*streams], [*replies])
    code = world.hold(options)
    return world.lines, code


def without_prompts(lines: list[str]) -> list[str]:
    return [line for line in lines if not line.startswith(">")]


# --- messages -------------------------------------------------------------------------------------


def test_message_is_answered_piece_by_piece_in_the_session_that_it_began() -> None:
    again = [started("r2"), event("RunCompleted", 2, "r2", content="again")]
    lines, code = hold(["hi", "you?"], HELLO, again)

    assert without_prompts(lines) == [
        "POST /agents/desk/runs message=hi&stream=true (k-1)",
        "= 'hello'",
        "= '\\n'",
        "POST /agents/desk/runs message=you?&stream=true&session_id=s (k-2)",
        "= 'again'",
        "= '\\n'",
    ]
    assert code == 0


def test_session_and_user_that_were_named_are_sent() -> None:
    options = evolve(PIPE, component=("team", "both"), session_id="mine", user_id="ada")
    lines, _ = hold(["hi"], HELLO, options=options)

    assert lines[1] == (
        "POST /teams/both/runs message=hi&stream=true&session_id=mine&user_id=ada (k-1)"
    )


@pytest.mark.parametrize(
    ("typed", "sent"),
    [
        (["one \\", "two"], ["one \ntwo"]),
        (["one\\"], ["one"]),
        (["", "  ", "x"], ["x"]),
        (["//tmp"], ["/tmp"]),
        (["one\\", STOP, "two"], ["two"]),
        (["one\\", TooLong(5), "two"], ["two"]),
        (["x" * (1 << 20), "y"], ["x" * (1 << 20), "y"]),
        (["x" * (1 << 20) + "y", "z"], ["z"]),
        (["x" * (1 << 19) + "\\", "y" * (1 << 19), "a"], ["a"]),
    ],
    ids=range(9),
)
def test_lines_make_messages(typed: list[Any], sent: list[str]) -> None:
    lines, code = hold(typed, *[HELLO] * len(sent), options=DESK)

    posted = [line for line in lines if line.startswith("POST")]
    texts = [line.removeprefix("POST /agents/desk/runs message=").split("&")[0] for line in posted]
    assert texts == sent
    assert code == 0


def test_line_of_a_pipe_that_is_too_long_ends_it() -> None:
    with pytest.raises(CannotGoOn, match="a line has at most 5 characters"):
        hold([TooLong(5)])


@pytest.mark.parametrize(
    ("command", "told"),
    [
        ("/new", "The next message begins another session."),
        ("/session", "There is no session yet: the first message makes it."),
        ("/resume", "There is no run to go on with."),
        ("/what is", "There is no /what: /help lists the commands."),
        ("/quit", None),
        ("/exit", None),
    ],
)
def test_commands(command: str, told: str | None) -> None:
    lines, code = hold([command], options=DESK)

    assert [line for line in lines[2:] if line.startswith("!")] == ([f"! {told}"] if told else [])
    assert code == 0


def test_help_names_every_command() -> None:
    lines, _ = hold(["/help"])

    assert all(f"  /{name} " in lines[1] for name in ("new", "session", "resume", "quit"))


def test_session_is_named_and_left() -> None:
    lines, _ = hold(["hi", "/session", "/new", "hi"], HELLO, HELLO)

    assert "! s" in lines
    assert lines[-4].startswith("POST /agents/desk/runs message=hi&stream=true (")


def test_greeting_is_for_a_person() -> None:
    lines, _ = hold([], options=evolve(DESK, console=True))

    assert lines[:2] == [
        "! You talk to the agent desk at http://here.  /help lists the commands.",
        "! The console is at http://here/console",
    ]
    assert hold([]) == ([f"> {End}"], 0)


def test_events_are_printed_for_a_script() -> None:
    lines, _ = hold(["hi"], HELLO, options=evolve(PIPE, as_json=True))

    assert [json.loads(line[2:]) for line in lines if line[0] == "*"] == [e.data for e in HELLO]
    assert not any(line.startswith("=") for line in lines)


# --- whom to talk to ------------------------------------------------------------------------------

ONE: Final = Reply(200, [{"id": "desk"}, {"id": "../up"}, 7])
TWO: Final = Reply(200, [{"id": "desk", "description": "Books"}, {"id": "cook", "name": "Cook"}])
NONE: Final = Reply(200, [])


def test_only_one_is_taken() -> None:
    options = evolve(PIPE, component=None)
    lines, _ = hold(["hi"], HELLO, replies=[ONE, Reply(403)], options=options)

    assert lines[:2] == ["GET /agents", "GET /teams"]
    assert "POST /agents/desk/runs message=hi&stream=true (k-1)" in lines


@pytest.mark.parametrize("chosen", ["3", " night "])
def test_person_chooses_among_several(chosen: str) -> None:
    options = evolve(DESK, component=None)
    teams = Reply(200, [{"id": "night"}])
    lines, _ = hold(["4", TooLong(1), chosen], replies=[TWO, teams], options=options)

    assert lines[2:5] == [
        "!   1  agent desk  Books",
        "!   2  agent cook  Cook",
        "!   3  team night",
    ]
    assert "! You talk to the team night at http://here.  /help lists the commands." in lines


@pytest.mark.parametrize("typed", [STOP, End()])
def test_who_chooses_nobody_leaves(typed: Any) -> None:
    _, code = hold([typed], replies=[TWO, NONE], options=evolve(DESK, component=None))

    assert code == LEFT


@pytest.mark.parametrize(
    ("replies", "told"),
    [
        ([TWO, NONE], "say whom to talk to: --agent desk, --agent cook"),
        ([NONE, NONE], "http://here has no agent that you may run"),
        ([GONE], "http://here does not answer: the server cannot be reached"),
        (
            [Reply(401, {"detail": "No token"}), Reply(401)],
            "http://here: No token (401): give a token by LEGATION_TOKEN or --token",
        ),
        ([Reply(404, "no JSON object"), NONE], "http://here: the server refused (404)"),
        ([Reply(200, {"a": 1}), Reply(200)], "http://here has no agent that you may run"),
    ],
)
def test_nobody_to_talk_to(replies: list[Any], told: str) -> None:
    with pytest.raises(CannotGoOn) as caught:
        hold([], replies=replies, options=evolve(PIPE, component=None))

    assert caught.value.message == told


def test_ctrl_c_ends_the_search() -> None:
    assert hold([], replies=[STOP], options=evolve(PIPE, component=None))[1] == LEFT


@pytest.mark.parametrize("name", [".", "..", "a/b", "", "a?b", "a" * 129, "ä"])
def test_no_id_leads_out_of_its_path(name: str) -> None:
    assert ID.fullmatch(name) is None


# --- refusals and lost streams --------------------------------------------------------------------


def test_refusal_ends_a_pipe_and_not_a_person() -> None:
    refusal = Reply(403, {"detail": "Insufficient permissions"})
    with pytest.raises(CannotGoOn, match=r"^Insufficient permissions \(403\)$"):
        hold(["hi"], refusal)

    lines, code = hold(["hi", "hi"], refusal, HELLO, options=DESK)
    assert "! Error: Insufficient permissions (403)" in lines
    assert code == 0


def test_stream_that_breaks_goes_on_behind_the_last_event() -> None:
    rest = [said(" there", 3), completed("hello there", 4)]
    lines, code = hold(["hi"], [started(), said("hello")], rest)

    assert without_prompts(lines)[1:] == [
        "= 'hello'",
        "= '\\n'",
        "! (the connection broke: the stream is opened again)",
        "waits 0.5 s",
        "GET /agents/desk/runs/r/events after r:2",
        "= ' there'",
        "= '\\n'",
    ]
    assert code == 0


def test_request_that_was_not_answered_is_sent_again_under_its_key() -> None:
    lines, _ = hold(["hi"], GONE, Reply(503, {"detail": "Closing"}), [], HELLO)

    assert [line for line in lines if line.startswith(("POST", "waits"))] == [
        "POST /agents/desk/runs message=hi&stream=true (k-1)",
        "waits 0.5 s",
        "POST /agents/desk/runs message=hi&stream=true (k-1)",
        "waits 1.0 s",
        "POST /agents/desk/runs message=hi&stream=true (k-1)",
        "waits 2.0 s",
        "POST /agents/desk/runs message=hi&stream=true (k-1)",
    ]


def test_patience_ends_and_begins_anew_with_each_event() -> None:
    eight = [GONE] * 8
    found = [said("a", 2)]
    lines, code = hold(
        ["hi", "/resume"],
        *([started()], *eight[:7], found, *eight),
        *(Reply(429), HELLO[2:]),
        replies=[Reply(200, {"status": "RUNNING"})],
        options=DESK,
    )

    waits = [float(line.split()[1]) for line in lines if line.startswith("waits")]
    assert waits[:8] == [0.5, 1, 2, 4, 8, 8, 8, 8]
    assert "! Error: the server cannot be reached: /resume looks for the run again" in lines
    assert "GET /agents/desk/runs/r session_id=s" in lines
    assert lines[-4:-1] == ["GET /agents/desk/runs/r/events after r:2", "= 'hello'", "= '\\n'"]
    assert code == 0


def test_pipe_gives_up_with_a_sentence_and_so_does_a_chat_whose_server_ended() -> None:
    with pytest.raises(CannotGoOn, match="cannot be reached"):
        hold(["hi"], *[GONE] * 9)
    with pytest.raises(CannotGoOn, match="has ended"):
        hold(["hi"], Lost("it has ended", final=True), options=DESK)


def test_person_is_told_of_a_run_that_never_began() -> None:
    lines, _ = hold(["hi"], *[GONE] * 9, options=DESK)

    assert "! Error: the server cannot be reached" in lines


def test_stream_of_a_run_that_is_gone_is_refused() -> None:
    with pytest.raises(CannotGoOn, match=r"Run not found \(404\)"):
        hold(["hi"], [started()], Reply(404, {"detail": "Run not found"}))


def test_token_that_expires_ends_the_chat_with_a_way_to_go_on() -> None:
    expired = Event("token_expired", {"detail": "Token has expired"})
    with pytest.raises(CannotGoOn) as caught:
        hold(["hi"], [started(), expired])

    assert caught.value.message == (
        "Token has expired: the run goes on; with another token, --session s goes on here"
    )


@pytest.mark.parametrize("name", ["RunError", "RunCancelled", "TeamRunError"])
def test_run_that_fails_counts_for_a_pipe_alone(name: str) -> None:
    failed = [started(), event(name, 2, content="No", reason="No")]

    assert hold(["hi"], failed)[1] == 1
    assert hold(["hi"], failed, options=DESK)[1] == 0


def test_end_of_a_members_run_is_not_the_end() -> None:
    member = event("RunError", 2, "m", parent_run_id="r", agent_id="ann", content="No")
    lines, code = hold(["hi"], [started(), member, completed("x", 3)])

    assert lines[2:4] == ["!   [ann] Error: No", "= 'x'"]
    assert code == 0


# --- Ctrl-C ---------------------------------------------------------------------------------------

CANCELLED: Final = event("RunCancelled", 4, reason="by you")


def test_ctrl_c_cancels_the_run_and_follows_it_to_its_end() -> None:
    lines, code = hold(["hi"], [*HELLO[:2], STOP], [CANCELLED], replies=[Reply(200)], options=DESK)

    assert lines[4:-1] == [
        "= '\\n'",
        "! Cancelling the run; Ctrl-C once more ends the chat.",
        "POST /agents/desk/runs/r/cancel session_id=s (k-2)",
        "GET /agents/desk/runs/r/events after r:2",
        "! Cancelled: by you",
    ]
    assert code == 0


@pytest.mark.parametrize(
    ("streams", "replies"),
    [
        ([[started(), STOP], [STOP]], [Reply(200)]),
        ([[started(), STOP], STOP], [Reply(200)]),
        ([[started(), STOP]], [STOP]),
        ([STOP, STOP], []),
    ],
)
def test_ctrl_c_a_second_time_leaves(streams: list[Any], replies: list[Any]) -> None:
    assert hold(["hi"], *streams, replies=replies)[1] == LEFT


def test_run_without_an_id_is_cancelled_as_soon_as_it_has_one() -> None:
    lines, _ = hold(["hi"], STOP, [started(), CANCELLED], replies=[Reply(200)])

    assert [line for line in lines if "POST" in line] == [
        "POST /agents/desk/runs message=hi&stream=true (k-1)",
        "POST /agents/desk/runs message=hi&stream=true (k-1)",
        "POST /agents/desk/runs/r/cancel session_id=s (k-2)",
    ]


@pytest.mark.parametrize(
    ("reply", "told"),
    [
        (GONE, "! Error: the server cannot be reached"),
        (Reply(403, {"detail": "No"}), "! Error: No (403)"),
        (Reply(409), None),
    ],
)
def test_run_that_cannot_be_cancelled_is_followed_all_the_same(
    reply: Any, told: str | None
) -> None:
    lines, code = hold(["hi"], [started(), STOP], HELLO[1:], replies=[reply])

    assert [line for line in lines if "Error" in line] == ([told] if told else [])
    assert code == 0


def test_ctrl_c_while_waiting_to_reconnect_cancels_too(monkeypatch: pytest.MonkeyPatch) -> None:
    perform = World.perform

    def stop(world: World, action: Action) -> Any:
        done = perform(world, action)
        return STOP if isinstance(action, Wait) else done

    monkeypatch.setattr(World, "perform", stop)
    lines, code = hold(["hi"], [started()], [CANCELLED], replies=[Reply(200)])

    assert "POST /agents/desk/runs/r/cancel session_id=s (k-2)" in lines
    assert code == 1


def test_ctrl_c_at_the_prompt_leaves_the_second_time() -> None:
    assert hold([STOP, STOP], options=DESK)[1] == LEFT
    assert hold([STOP, "/quit"], options=DESK)[1] == 0


# --- approvals ------------------------------------------------------------------------------------


def answers(lines: list[str]) -> list[dict[str, Any]]:
    (line,) = [line for line in lines if "/continue " in line]
    form = line.split(" ", 2)[2]
    found: list[dict[str, Any]] = json.loads(form[len("tools=") : form.index("&stream=true")])
    return found


AGREE: Final = {**ASKED, "requires_confirmation": True}
EXECUTE: Final = {**ASKED, "external_execution_required": True}
DOUBT: Final = {**ASKED, "in_doubt": True}


@pytest.mark.parametrize(
    ("tool", "typed", "answer"),
    [
        (AGREE, ["y"], {"confirmed": True}),
        (AGREE, ["perhaps", "", "N"], {"confirmed": False}),
        (AGREE, ["no  too dear "], {"confirmed": False, "confirmation_note": "too dear"}),
        (EXECUTE, ["42"], {"result": "42"}),
        (EXECUTE, ["a\\", "/b"], {"result": "a\n/b"}),
        (EXECUTE, [""], {"result": ""}),
        (EXECUTE, [TooLong(9), "b"], {"result": "b"}),
        (DOUBT, ["= done "], {"result": "done"}),
        (DOUBT, ["done", "yes"], {"confirmed": True}),
    ],
)
def test_answers_of_a_person(tool: dict[str, Any], typed: list[Any], answer: Any) -> None:
    lines, code = hold(["hi", *typed], [started(), paused(tool)], HELLO[1:])

    assert answers(lines) == [{**tool, "requirement_id": "r.0", **answer}]
    assert '(room="blue")' in lines[2]
    assert code == 0


def test_every_call_that_waits_is_asked_about_and_a_second_pause_as_well() -> None:
    streams = [started(), paused(AGREE, EXECUTE)], [paused(AGREE, number=4)], [completed("x", 5)]
    lines, _ = hold(["hi", "y", "42", "n"], *streams)

    sent = [line.split(" ", 2)[2] for line in lines if "/continue " in line]
    assert [json.loads(one[6 : one.index("&stream")])[0]["confirmed"] for one in sent] == [
        True,
        False,
    ]
    assert [line[-5:] for line in lines if "/continue " in line] == ["(k-2)", "(k-3)"]


@pytest.mark.parametrize("typed", [[], [STOP]])
def test_run_that_is_not_answered_waits_on(typed: list[Any]) -> None:
    lines, code = hold(["hi", *typed], [started(), paused(AGREE)])

    assert "The run r waits for an answer: give it in the console, or by /approvals." in lines[4]
    assert code == 1


def test_run_that_waits_is_taken_up_again() -> None:
    waits = Reply(200, {"status": "PAUSED"})
    lines, code = hold(
        ["hi", STOP, "/resume", "y"],
        *([started(), paused(AGREE)], HELLO[1:]),
        replies=[waits],
        options=DESK,
    )

    assert answers(lines)[0]["confirmed"] is True
    assert code == 0


def test_answer_of_somebody_else_is_seen() -> None:
    late = Reply(409, {"detail": "The run does not wait"})
    done = Reply(200, {"status": "COMPLETED"})
    lines, code = hold(["hi", "y"], [started(), paused(AGREE)], late, HELLO[2:], replies=[done])

    assert lines[-4:-1] == [
        "GET /agents/desk/runs/r/events after r:2",
        "= 'hello'",
        "= '\\n'",
    ]
    assert "! Somebody else has answered; the run goes on." in lines
    assert code == 0


@pytest.mark.parametrize("reply", [Reply(200, {"status": "PAUSED"}), STOP])
def test_answer_that_is_refused_while_the_run_waits(reply: Any) -> None:
    busy = Reply(409, {"detail": "The session is busy"})
    lines, code = hold(["hi", "y"], [started(), paused(AGREE)], busy, replies=[reply], options=DESK)

    assert ("! Error: The session is busy (409)" in lines) == (reply != STOP)
    assert code == (LEFT if reply == STOP else 0)


def test_pause_that_waits_for_nothing_is_over() -> None:
    assert hold(["hi"], [started(), paused()])[1] == 0
