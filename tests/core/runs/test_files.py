"""The files of a run before it starts: whom they can be sent to, and what is read out of them."""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Callable
from typing import Any

import pytest

from legation import Agent, Platform, Run, Team
from legation.effects import CallFunction, CloseStream, Log, Raised, Returned, TimedOut, Yielding
from legation.hosted.registry import Component
from legation.http.bodies.media_types import PDF, WORD
from legation.runs.files import (
    READ_SECONDS,
    TEXT_LENGTH,
    UnreadableFile,
    find_unsent,
    read_out,
)
from legation.runs.prompt import FILE_BYTES
from legation_testing import Client, ScriptedModel, call, play

from ...providers.documents import make_docx, make_pdf

INVOICE = {"filename": "May.pdf", "mime_type": PDF, "content": b64encode(make_pdf()).decode()}
LETTER = {"filename": "a.docx", "mime_type": WORD, "content": b64encode(make_docx("a")).decode()}
VOICE = {"filename": "a.ogg", "mime_type": "audio/ogg", "content": "T2dnUwA="}
TABLE = {"filename": "t.csv", "mime_type": "text/csv", "content": "MSwy"}
PNG = {"mime_type": "image/png", "content": "iVBORw0KGgo="}
RECORD = {"audio": [VOICE], "files": [INVOICE, LETTER, TABLE], "images": [PNG]}


def read(content: bytes) -> str:
    """Read a document out."""
    return f"{len(content)} bytes"


def answer(message: str) -> str:
    """Answer as an agent."""
    return message


def look(run: Run) -> list[str]:
    """Look at the files."""
    return [f"{one.name} {one.media_type} {len(one.content)}" for one in run.files]


def hosted(*, readers: Any = None, members: int = 0, **agent: Any) -> Component:
    """Return an agent, or a team over as many levels, whose only agent is that one."""
    agent = {"model": ScriptedModel(accepts=()), **agent}
    teams = [
        Team(
            id=f"t{number}",
            members=[f"t{number - 1}" if number else "clerk"],
            model=ScriptedModel(accepts=()),
        )
        for number in range(members)
    ]
    platform = Platform(agents=[Agent(id="clerk", **agent)], teams=teams, readers=readers)
    registry = platform.registry
    return registry.teams[f"t{members - 1}"] if members else registry.agents["clerk"]


@pytest.mark.parametrize("members", [0, 1, 3])
@pytest.mark.parametrize(
    ("agent", "files"),
    [
        ({}, {"files": [TABLE]}),
        ({"model": ScriptedModel()}, {"files": [INVOICE, TABLE], "images": [PNG]}),
        ({"model": ScriptedModel()}, {"images": [{"url": "https://example.org/a.heic"}]}),
        ({"model": ScriptedModel()}, {"files": [{"url": "https://example.org/A.PDF"}]}),
        ({"model": "echo"}, RECORD),
        ({"tools": [look]}, RECORD),
    ],
    ids=["text", "its types", "a picture by its URL", "a PDF by its URL", "echo", "a tool"],
)
def test_a_file_is_taken_where_one_of_a_team_has_a_use_for_it(
    agent: Any, files: Any, members: int
) -> None:
    assert find_unsent(hosted(members=members, **agent), files) is None


def test_a_function_is_given_every_file() -> None:
    component = Platform(agents=[Agent(id="clerk", run=answer)]).registry.agents["clerk"]

    assert find_unsent(component, RECORD) is None


@pytest.mark.parametrize(
    ("agent", "files", "sentence"),
    [
        ({}, {"files": [TABLE, INVOICE]}, f"May.pdf ({PDF}) cannot be sent to agent clerk"),
        ({}, {"images": [PNG]}, "A file (image/png) cannot be sent"),
        ({"model": ScriptedModel()}, {"files": [LETTER]}, f"a.docx ({WORD}) cannot be sent"),
        ({"model": ScriptedModel()}, {"audio": [VOICE]}, "a.ogg (audio/ogg) cannot be sent"),
        (
            {"model": ScriptedModel()},
            {"images": [{"filepath": "/etc/passwd"}]},
            "A file (of no type that is known, without content) cannot be sent",
        ),
        (
            {},
            {"files": [{"name": "a\n.pdf", "url": "https://example.org/a.pdf"}]},
            f"a .pdf ({PDF}, without content) cannot be sent",
        ),
        (
            {},
            {"files": [{**TABLE, "content": b64encode(bytes(FILE_BYTES + 1)).decode()}]},
            "t.csv (text/csv) cannot be sent",
        ),
    ],
)
def test_a_file_that_nothing_takes_is_named_with_what_is_taken(
    agent: Any, files: Any, sentence: str
) -> None:
    told = find_unsent(hosted(**agent), files)

    assert told is not None
    assert told.startswith(sentence)
    types = "application/pdf, image/*, " if "model" in agent else ""
    assert told.endswith(f"which takes {types}and files of text of at most {FILE_BYTES} bytes")


def asked(content: bytes, reader: Callable[..., Any] = read) -> CallFunction:
    return CallFunction(reader, {"content": content}, READ_SECONDS)


def test_a_document_is_read_out_for_a_model_that_does_not_take_it() -> None:
    component = hosted(readers={PDF: read, WORD: read})
    script = [
        (asked(make_pdf()), Returned("In all:\0 42")),
        (asked(make_docx("a")), Returned("Dear Ada")),
    ]

    found = play(read_out(component, {**RECORD, "files": [INVOICE, TABLE, LETTER]}), script)

    assert found == {
        **RECORD,
        "files": [{**INVOICE, "text": "In all:\ufffd 42"}, TABLE, {**LETTER, "text": "Dear Ada"}],
    }
    assert find_unsent(component, {"files": found["files"]}) is None


def test_nothing_is_read_out_where_every_model_takes_it_or_there_are_no_bytes() -> None:
    both, elsewhere = {PDF: read}, {"files": [{"url": "https://example.org/a.pdf"}]}

    assert play(read_out(hosted(model=ScriptedModel(), readers=both), RECORD), []) == RECORD
    assert play(read_out(hosted(readers=both), elsewhere), []) == elsewhere


def test_what_a_client_says_to_be_the_text_is_not_believed() -> None:
    lie = {"files": [{**INVOICE, "text": "In all: 0 EUR"}]}

    assert play(read_out(hosted(), lie), []) == {"files": [INVOICE]}


@pytest.mark.parametrize(
    ("outcome", "reason"),
    [
        (Returned(" \n"), "there is no text"),
        (Returned("x" * (TEXT_LENGTH + 1)), "there is too much text"),
        (Returned(b"text"), "the reader returned bytes"),
        (Returned(None), "the reader returned NoneType"),
        (Yielding(7), "the reader returned an iterator"),
        (TimedOut(), "the reader took too long"),
        (Raised(UnreadableFile("it is\nencrypted")), "it is encrypted"),
        (Raised(KeyError("quoted")), "KeyError"),
    ],
)
def test_a_document_without_text_is_refused_and_the_log_says_why(outcome: Any, reason: str) -> None:
    component = hosted(readers={PDF: read})
    log = Log("warning", "file_unread", (("type", PDF), ("reason", reason)))

    closed = [(CloseStream(7), None)] if isinstance(outcome, Yielding) else []

    found = play(
        read_out(component, {"files": [INVOICE]}),
        [(asked(make_pdf()), outcome), *closed, (log, None)],
    )

    assert found == {"files": [INVOICE]}
    told = find_unsent(component, found)
    assert told is not None
    assert told.startswith(f"May.pdf ({PDF}, without text that can be read) cannot be sent to")
    assert told.endswith(f"which takes {PDF}, and files of text of at most {FILE_BYTES} bytes")


# --- through the whole platform ----------------------------------------------------------------


def test_a_run_with_a_file_that_nothing_takes_does_not_begin() -> None:
    model = ScriptedModel(["42 EUR"], accepts=("image/png",))
    with Client(Platform(agents=[Agent(id="clerk", model=model)])) as client:
        refused = client.post(
            "/agents/clerk/runs",
            json={"message": "?", "stream": False, "session_id": "s", "files": [INVOICE]},
        )
        listed = client.get("/sessions").json()

    assert refused.status == 400
    assert refused.json()["detail"] == (
        f"Unsupported file type: May.pdf ({PDF}) cannot be sent to agent clerk, which takes"
        f" image/png, and files of text of at most {FILE_BYTES} bytes"
    )
    assert model.prompts == []
    assert listed["data"] == []


def test_a_model_reads_the_text_of_a_document_that_it_does_not_take() -> None:
    model = ScriptedModel(["42 EUR"], accepts=())
    agents = [Agent(id="clerk", model=model)]
    with Client(Platform(agents=agents, readers={PDF: read})) as client:
        run = client.post(
            "/agents/clerk/runs", json={"message": "?", "stream": False, "files": [INVOICE]}
        ).json()

    assert run["status"] == "COMPLETED"
    assert run["input"]["files"] == [{"filename": "May.pdf", "mime_type": PDF}]
    size = len(make_pdf())
    assert model.prompts[0].messages[-1].content == (
        f'?\n\n<file name="May.pdf" type="{PDF}">\n{size} bytes\n</file>'
    )


def test_a_tool_is_given_what_its_model_is_not_shown() -> None:
    model = ScriptedModel([call("look"), "Seen."], accepts=())
    with Client(Platform(agents=[Agent(id="clerk", model=model, tools=[look])])) as client:
        client.run("clerk", "?", files=[INVOICE])

    assert "(Its content is not shown to you.)" in model.prompts[0].messages[-1].content
    result = json.loads(model.prompts[1].messages[-1].content)
    assert result == [f"May.pdf {PDF} {len(make_pdf())}"]


def test_a_pdf_of_four_mebibytes_reaches_the_model_whole() -> None:
    model = ScriptedModel(["Long."])
    content = b64encode(make_pdf(size=4 << 20)).decode()
    with Client(Platform(agents=[Agent(id="clerk", model=model)])) as client:
        file = {"name": "long.pdf", "content": content}
        sent = {"message": "?", "stream": False, "files": [file]}
        run = client.post("/agents/clerk/runs", json=sent).json()

    assert run["status"] == "COMPLETED"
    (document,) = model.prompts[0].messages[-1].documents
    assert document.data == content
    assert (document.name, document.media_type) == ("long.pdf", PDF)
