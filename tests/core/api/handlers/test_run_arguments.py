"""The arguments of a run: each is honoured, taken without effect or refused, as its table says."""

from __future__ import annotations

import json
from collections.abc import Generator
from typing import Any, Final

import jsonschema_rs
import pytest

from legation import Agent, Database, Platform, Team
from legation.api.handlers.run_arguments import ARGUMENTS, Action, Argument, Treatment, arguments_of
from legation.tools import tool
from legation_testing import Client, ScriptedModel, call

PATH: Final = "/agents/ann/runs"
PERSON: Final = {
    "title": "Person",
    "type": "object",
    "properties": {"name": {"type": "string"}},
    "required": ["name"],
}
UNTITLED: Final = {name: value for name, value in PERSON.items() if name != "title"}
WRAPPED: Final = {"type": "json_schema", "json_schema": {"name": "person", "schema": PERSON}}
ADA: Final = '{"name": "Ada"}'

ACCEPTED: Final = [a for a in ARGUMENTS if a.treatment is Treatment.ACCEPTED]
REFUSED: Final = [a for a in ARGUMENTS if a.treatment is Treatment.REFUSED]


@tool(requires_confirmation=True)
def book(room: int) -> str:
    """Book a room."""
    return f"room {room} is booked"


@tool(external_execution=True)
def pay(amount: int) -> str:
    """Pay."""
    raise AssertionError(amount)


def platform() -> Platform:
    """Return two databases, with an agent in each and a team in the second."""
    asking = ScriptedModel((call("book", room=7), call("pay", amount=3), "Done.") * 9)
    delegate = call("delegate_task_to_member", member_id="bob", task="book")
    return Platform(
        databases=[Database("main", "sqlite://"), Database("second", "sqlite://")],
        agents=[
            Agent(id="ann", model=ScriptedModel((ADA,) * 60)),
            Agent(id="bob", model=asking, tools=[book, pay], database="second"),
        ],
        teams=[
            Team(
                id="desk",
                members=["bob"],
                model=ScriptedModel((delegate, "All done.") * 9),
                database="second",
            )
        ],
    )


@pytest.fixture
def client() -> Generator[Client]:
    with Client(platform) as client:
        yield client


def name_of(argument: Argument) -> str:
    return f"{argument.name}-{'-'.join(argument.actions)}"


def run(client: Client, **fields: Any) -> dict[str, Any]:
    form = {"message": "x", "stream": False, **fields}
    done: dict[str, Any] = client.post(PATH, form=form).expect_success().json()
    return done


def paused(client: Client, path: str = "/agents/bob/runs") -> dict[str, Any]:
    form = {"message": "x", "stream": False}
    begun: dict[str, Any] = client.post(path, form=form).expect_success().json()
    assert begun["status"] == "PAUSED", begun
    return begun


def send(client: Client, action: Action, **fields: Any) -> Any:
    """Send `fields` with a request that is right without them."""
    if action is Action.START:
        return client.post(PATH, form={"message": "x", "stream": False, **fields})
    begun = paused(client)
    return client.post(f"/agents/bob/runs/{begun['run_id']}/{action}", form=fields)


# --- the table ---------------------------------------------------------------------------------


@pytest.mark.parametrize("action", Action, ids=str)
def test_no_request_has_an_argument_twice(action: Action) -> None:
    names = [argument.name for argument in arguments_of(action)]

    assert len(names) == len(set(names))


@pytest.mark.parametrize("argument", ARGUMENTS, ids=name_of)
def test_an_argument_has_a_type_where_it_is_honoured_and_there_alone(argument: Argument) -> None:
    assert (argument.kind is not None) is (argument.treatment is Treatment.HONOURED)
    assert argument.meaning
    assert argument.since in ("2.5.6", "2.6", "2.7", "2.8")


def test_the_document_describes_what_is_taken_and_nothing_else(client: Client) -> None:
    schemas = client.get("/openapi.json").json()["components"]["schemas"]

    for action, names in {
        Action.START: ("RunRequest", "RunForm", "Body_create_agent_run", "Body_create_team_run"),
        Action.CONTINUE: ("ContinueRequest", "Body_continue_agent_run", "Body_continue_team_run"),
        Action.CANCEL: ("CancelRequest", "CancelForm"),
        Action.RESUME: ("ResumeRequest", "ResumeForm"),
    }.items():
        known = arguments_of(action)
        taken = {a.name for a in known if a.treatment is not Treatment.REFUSED}
        for name in names:
            assert set(schemas[name]["properties"]) == taken
            assert schemas[name]["required"] == [a.name for a in known if a.required]


def satisfies(client: Client, shape: str, body: Any) -> bool:
    """Say whether the document allows `body` where it refers to `shape`."""
    document = client.get("/openapi.json").json()
    schema = {"$ref": f"#/components/schemas/{shape}", "components": document["components"]}
    return jsonschema_rs.Draft202012Validator(schema).is_valid(body)


@pytest.mark.parametrize(
    "word",
    [
        *("true", "False", "TRUE", "1", "0", "yes", "N", "oFF", "on", "t"),
        *("2", "maybe", " true", "01", "o", "true\n", "truefalse"),
    ],
    ids=repr,
)
def test_a_form_takes_the_booleans_that_the_document_says(client: Client, word: str) -> None:
    form = {"message": "x", "stream": "false", "use_json_schema": word}

    taken = client.post(PATH, form=form).status == 200

    assert taken is satisfies(client, "RunForm", form)
    assert taken is satisfies(client, "Body_create_agent_run", form)


def test_a_boolean_of_a_form_may_be_empty(client: Client) -> None:
    form = {"message": "x", "stream": "false", "use_json_schema": ""}

    assert client.post(PATH, form=form).status == 200
    assert satisfies(client, "RunForm", form)


@pytest.mark.parametrize(
    "value", [True, False, None, 0, 1, 0.0, 1.0, "yes", "0", 2, -1, 0.5, "", "2", []], ids=repr
)
def test_json_has_the_booleans_that_the_document_says(client: Client, value: Any) -> None:
    body = {"message": "x", "stream": False, "use_json_schema": value}

    assert (client.post(PATH, json=body).status == 200) is satisfies(client, "RunRequest", body)


@pytest.mark.parametrize(
    ("argument", "action"),
    [(a, action) for a in ACCEPTED for action in a.actions],
    ids=lambda value: value.name if isinstance(value, Argument) else str(value),
)
def test_what_has_no_effect_is_taken_whatever_it_is(
    client: Client, argument: Argument, action: Action
) -> None:
    sent = "<starlette.background.BackgroundTasks object at 0x7f>"

    assert send(client, action, **{argument.name: sent}).status == 200


@pytest.mark.parametrize(
    ("argument", "action"),
    [(a, action) for a in REFUSED for action in a.actions],
    ids=lambda value: value.name if isinstance(value, Argument) else str(value),
)
def test_what_is_refused_says_why(client: Client, argument: Argument, action: Action) -> None:
    answer = send(client, action, **{argument.name: '{"a": 1}'})

    assert answer.status == 422
    assert answer.json()["errors"] == [
        {"path": f"body.{argument.name}", "message": f"is not supported: {argument.meaning}"}
    ]


def test_what_later_gateways_send_with_every_continuation_passes(client: Client) -> None:
    """A gateway of 2.9 sends the defaults of its own form, and an empty field for each None."""
    later = {
        "input": "",
        "continue_from": "end",
        "fork": "false",
        "regenerate": "False",
        "replace_original": "",
        "additional_instructions": "",
        "background_tasks": "<starlette.background.BackgroundTasks object at 0x7f>",
        "tools": "",
        "stream": "false",
    }

    answer = send(client, Action.CONTINUE, **later)

    assert answer.status == 200
    assert "rejected" in answer.json()["tools"][0]["result"]


@pytest.mark.parametrize("how", ["form", "json"])
def test_an_unknown_argument_is_refused(client: Client, how: str) -> None:
    sent = {"message": "x", "stream": "false", "tenant": "1"}
    answer = client.post(PATH, form=sent) if how == "form" else client.post(PATH, json=sent)

    assert answer.status == 422
    assert [fault["path"] for fault in answer.json()["errors"]] == ["body.tenant"]


@pytest.mark.parametrize("how", ["urlencoded", "multipart"])
def test_an_empty_field_of_a_form_is_an_absent_one(client: Client, how: str) -> None:
    names = [a.name for a in arguments_of(Action.START) if a.name not in ("message", "stream")]
    form = {"message": "x", "stream": "false", **dict.fromkeys(names, ""), "nonsense": ""}
    if how == "urlencoded":
        answer = client.post(PATH, form=form)
    else:
        parts = "".join(
            f'--b\r\nContent-Disposition: form-data; name="{name}"\r\n\r\n{value}\r\n'
            for name, value in form.items()
        )
        kind = {"content-type": "multipart/form-data; boundary=b"}
        answer = client.post(PATH, body=f"{parts}--b--\r\n".encode(), headers=kind)

    assert answer.json()["status"] == "COMPLETED"


def test_an_empty_message_is_missing(client: Client) -> None:
    answer = client.post(PATH, form={"message": ""})

    assert answer.json()["errors"] == [{"path": "body.message", "message": "is required"}]


# --- structured answers ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fields", "content_type"),
    [
        ({"output_schema": json.dumps(PERSON)}, "Person"),
        ({"output_schema": json.dumps(PERSON), "use_json_schema": "false"}, "Person"),
        ({"output_schema": json.dumps(PERSON), "use_json_schema": "true"}, "dict"),
        ({"output_schema": json.dumps(WRAPPED), "use_json_schema": "true"}, "dict"),
        ({"output_schema": json.dumps(WRAPPED)}, "Person"),
        ({"output_schema": '{"type": "json_object"}'}, "dict"),
        ({"output_schema": json.dumps(UNTITLED)}, "dict"),
        ({"output_schema": json.dumps({**PERSON, "title": ""})}, "dict"),
    ],
    ids=["title", "not dict", "dict", "wrapped dict", "wrapped", "any", "untitled", "empty title"],
)
def test_a_structured_answer_is_called_by_the_title_of_its_schema(
    client: Client, fields: dict[str, Any], content_type: str
) -> None:
    done = run(client, **fields)

    assert (done["content"], done["content_type"]) == ({"name": "Ada"}, content_type)


def test_an_answer_of_text_is_called_so(client: Client) -> None:
    assert run(client)["content_type"] == "str"


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "json_schema"},
        {"type": "json_schema", "json_schema": {"name": "person"}},
        {"type": "json_schema", "json_schema": {"schema": {"type": "nonsense"}}},
        {"type": "json_schema", "json_schema": {"schema": WRAPPED}},
    ],
    ids=["nothing in it", "no schema", "not a schema", "twice"],
)
def test_a_wrapper_without_a_schema_is_refused(client: Client, schema: Any) -> None:
    answer = client.post(PATH, form={"message": "x", "output_schema": json.dumps(schema)})

    assert answer.status == 422
    assert [fault["path"] for fault in answer.json()["errors"]] == ["body.output_schema"]


# --- media, cancelling, listing ----------------------------------------------------------------


def test_input_files_are_files(client: Client) -> None:
    files = json.dumps([{"url": "https://example.org/a.pdf"}])
    inline = json.dumps([{"url": "data:text/csv;base64,MSwy", "name": "a.csv"}])

    done = run(client, files=files, input_files=inline)

    assert done["input"]["files"] == [
        {"url": "https://example.org/a.pdf"},
        {"name": "a.csv", "mime_type": "text/csv", "size": 3},
    ]


def test_an_upload_has_an_effect_or_is_refused(client: Client) -> None:
    parts = "".join(
        f'--b\r\nContent-Disposition: form-data; name="{name}"{more}\r\n\r\nx\r\n'
        for name, more in (("message", ""), ("images", '; filename="a.png"'))
    )
    kind = {"content-type": "multipart/form-data; boundary=b"}

    refused = client.post(PATH, body=f"{parts}--b--\r\n".encode(), headers=kind)

    assert refused.json()["errors"] == [{"path": "body.images", "message": "unknown field"}]


def test_input_files_that_are_none_are_refused_by_their_name(client: Client) -> None:
    answer = client.post(PATH, form={"message": "x", "input_files": "[1]"})

    assert [f["path"] for f in answer.json()["errors"]] == ["body.input_files[0]"]


@pytest.mark.parametrize("where", ["query", "body", "both", "neither"])
def test_a_run_is_cancelled_in_its_session(client: Client, where: str) -> None:
    begun = paused(client)
    path = f"/agents/bob/runs/{begun['run_id']}/cancel"
    right, wrong = {"session_id": begun["session_id"]}, {"session_id": "another"}
    if where == "query":
        assert client.post(path, query=wrong).status == 404
        assert client.post(path, query=right).status == 200
    elif where == "both":
        assert client.post(path, query=wrong, form=right).status == 404
        assert client.post(path, query=right, form=wrong).status == 404
        assert client.post(path, query=right, form=right).status == 200
    elif where == "body":
        assert client.post(path, form=wrong).status == 404
        assert client.post(path, query={"session_id": ""}, form=right).status == 200
    else:
        assert client.post(path, query={"session_id": ""}).status == 200

    query = {"session_id": begun["session_id"]}
    (row,) = client.get("/agents/bob/runs", query=query).json()
    assert row["status"] == "CANCELLED"


def test_a_session_stands_once_in_the_query_of_a_cancellation(client: Client) -> None:
    twice = [("session_id", "s"), ("session_id", "s")]

    refused = client.post("/agents/bob/runs/r/cancel", query=twice)

    assert refused.json()["errors"] == [
        {"path": "query.session_id", "message": "must be sent once"}
    ]


@pytest.mark.parametrize(
    ("query", "path"), [("%", "query"), ("session_id=s&tenant=1", "query.tenant")]
)
def test_the_query_of_a_cancellation_has_nothing_else(
    client: Client, query: str, path: str
) -> None:
    refused = client.post(f"/agents/bob/runs/r/cancel?{query}")

    assert refused.status == 422
    assert [fault["path"] for fault in refused.json()["errors"]] == [path]


def test_a_session_is_in_the_query_of_a_cancellation_what_it_is_in_the_body(
    client: Client,
) -> None:
    document = client.get("/openapi.json").json()
    cancel = document["paths"]["/agents/{agent_id}/runs/{run_id}/cancel"]["post"]
    (in_query,) = [field["schema"] for field in cancel["parameters"] if field["in"] == "query"]
    in_body = document["components"]["schemas"]["CancelForm"]["properties"]["session_id"]

    assert in_query["maxLength"] == in_body["maxLength"]
    assert in_query["pattern"] == in_body["pattern"]


def test_the_runs_of_an_agent_are_rows_with_their_output(client: Client) -> None:
    done = run(client, session_id="s")

    (row,) = client.get(PATH, query={"session_id": "s"}).json()

    assert (row["run_id"], row["run_input"], row["content"]) == (done["run_id"], "x", ADA)
    assert row["created_at"].endswith("Z")
    assert row["input_media"] == {"images": [], "videos": [], "audios": [], "files": []}
    assert (row["session_id"], row["input"]) == ("s", {"input_content": "x"})


# --- requirements ------------------------------------------------------------------------------


def answer(client: Client, path: str, begun: dict[str, Any], requirements: Any) -> Any:
    form = {"requirements": json.dumps(requirements), "stream": False}
    return client.post(f"{path}/{begun['run_id']}/continue", form=form)


@pytest.mark.parametrize("path", ["/agents/bob/runs", "/teams/desk/runs"])
def test_requirements_are_answered_one_after_the_other(client: Client, path: str) -> None:
    begun = paused(client, path)
    (needed,) = begun["requirements"]

    second = answer(client, path, begun, [{**needed, "confirmation": True}]).json()
    (needed,) = second["requirements"]
    done = answer(client, path, begun, [{**needed, "external_execution_result": "paid"}]).json()

    assert needed["tool_execution"]["tool_name"] == "pay"
    assert done["status"] == "COMPLETED"


def test_a_requirement_is_rejected_with_a_note(client: Client) -> None:
    begun = paused(client)
    (needed,) = begun["requirements"]
    rejected = {**needed, "confirmation": False, "confirmation_note": "too dear"}

    second = answer(client, "/agents/bob/runs", begun, [rejected]).json()

    assert second["tools"][0]["result"].endswith(": too dear")


def test_what_the_call_of_a_requirement_says_counts_too(client: Client) -> None:
    begun = paused(client)
    (needed,) = begun["requirements"]
    confirmed = {**needed["tool_execution"], "confirmed": True}
    sent = {**needed, "confirmation": None, "tool_execution": confirmed}

    assert answer(client, "/agents/bob/runs", begun, [sent]).status == 200


@pytest.mark.parametrize(
    ("form", "status", "detail"),
    [
        ({"requirements": "{"}, 400, "Invalid JSON in requirements field"),
        ({"requirements": "{}"}, 400, "Invalid JSON in requirements field"),
        ({"tools": "{"}, 400, "Invalid JSON in tools field"),
        (
            {"requirements": "[1]"},
            400,
            "Invalid structure or content for requirements: item 0 is no object",
        ),
        (
            {"requirements": '[{"tool_execution": 1}]'},
            400,
            "Invalid structure or content for requirements: item 0 has no tool_call_id",
        ),
    ],
)
def test_requirements_that_are_none_are_refused(
    client: Client, form: dict[str, str], status: int, detail: str
) -> None:
    refused = send(client, Action.CONTINUE, **form)

    assert (refused.status, refused.json()["detail"]) == (status, detail)


def test_requirements_are_not_allowed_together_with_tools(client: Client) -> None:
    both = json.dumps([{"tool_call_id": "x"}])

    refused = send(client, Action.CONTINUE, tools=both, requirements=both)

    assert refused.json()["errors"] == [
        {"path": "body.requirements", "message": "is not allowed together with `tools`"}
    ]


@pytest.mark.parametrize("requirements", ["answered", "", "[ ]"])
@pytest.mark.parametrize("tools", ["answered", "", "[ ]", "absent"])
def test_the_document_says_when_tools_and_requirements_are_allowed_together(
    client: Client, tools: str, requirements: str
) -> None:
    begun = paused(client)
    (needed,) = begun["requirements"]
    call = needed["tool_execution"]
    shown = {"tools": {**call, "confirmed": True}, "requirements": {**needed, "confirmation": True}}
    asked = {"tools": tools, "requirements": requirements}
    form = {
        "stream": "false",
        **{
            name: f" [\n{json.dumps(shown[name])}]" if how == "answered" else how
            for name, how in asked.items()
            if how != "absent"
        },
    }
    whole: dict[str, Any] = {
        name: json.loads(text) if text else None for name, text in form.items()
    }

    taken = client.post(f"/agents/bob/runs/{begun['run_id']}/continue", form=form).status == 200

    assert taken is ([tools, requirements] != ["answered", "answered"])
    assert satisfies(client, "Body_continue_agent_run", form) is taken
    assert satisfies(client, "ContinueRequest", whole) is taken


def test_a_run_is_not_continued_where_nobody_could_wait_for_it(client: Client) -> None:
    begun = paused(client)
    platform: Any = client.platform
    slots = platform.context.shares.followers
    slots.take("eve", slots.capacity)
    answer = client.post(f"/agents/bob/runs/{begun['run_id']}/continue", form={"tools": "[]"})

    assert answer.status == 429
    read = client.get(f"/agents/bob/runs/{begun['run_id']}").json()
    assert read["status"] == "PAUSED"
