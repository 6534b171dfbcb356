from __future__ import annotations

from base64 import b64encode
from datetime import UTC, datetime
from typing import Any

import pytest

from legation import Run, RunFile
from legation.runs.given import Given
from legation.store.run_rows import ClaimedRun
from legation.tools import ContextParameter, Misfit
from legation.tools.context_parameter import read_context

RUN = ClaimedRun("ada", "s", "r", "agent", "a", "{}", 0, 1)
PLAIN = ContextParameter("run")
MOMENT = datetime(2026, 1, 1, 9, 30, 0, 500_000, tzinfo=UTC)


def context(asked: dict[str, Any], owner: str = "ada", state: Any = None) -> Run[Any, Any]:
    run = ClaimedRun(owner, "s", "r", "agent", "a", "{}", 0, 1)
    now_us = round(MOMENT.timestamp() * 1_000_000)
    made = Given(asked).context(PLAIN, run, state or {}, now_us)
    assert isinstance(made, Run)
    return made


def test_all_that_came_with_the_run_is_in_its_context() -> None:
    made = context(
        {"dependencies": {"d": 2}, "metadata": {"m": 3}, "claims": {"tenant": "acme"}},
        state={"step": 1},
    )

    assert (made.user_id, made.session_id, made.run_id, made.agent) == ("ada", "s", "r", "a")
    assert (made.dependencies, made.metadata, made.state) == ({"d": 2}, {"m": 3}, {"step": 1})
    assert made.claims == {"tenant": "acme"}
    assert made.now == MOMENT
    assert made.files == ()


@pytest.mark.parametrize(
    ("owner", "name"),
    [
        ("ada", "ada"),
        ("", None),
        ("~nobody:r", None),
        ("~~nobody:r", "~~nobody:r"),
        ("~~ada", "~ada"),
        ("~channel:chat:49", "~channel:chat:49"),
    ],
)
def test_user_is_the_owner_of_the_run(owner: str, name: str | None) -> None:
    assert context({}, owner).user_id == name


def test_each_function_has_copies_of_its_own() -> None:
    given = Given({"dependencies": {"a": []}, "metadata": {"b": []}, "claims": {"c": []}})
    for _ in range(2):
        made = given.context(PLAIN, RUN, {"d": []}, 0)
        assert isinstance(made, Run)
        found: list[Any] = [made.dependencies["a"], made.metadata["b"], made.claims["c"]]
        found.append(made.state["d"])
        assert found == [[]] * 4
        for one in found:
            one.append("changed")


def test_files_are_decoded_once() -> None:
    files = [
        {
            "filename": "a.pdf",
            "mime_type": "application/pdf",
            "content": b64encode(b"%PDF").decode(),
        },
        {"name": "b.txt", "content": "no base64 ä"},
        {"url": "https://example.com/c"},
    ]
    audio = [{"filename": "a.ogg", "mime_type": "audio/ogg", "content": "T2dn"}]
    given = Given({"audio": audio, "files": files})

    assert given.files == (
        RunFile("a.pdf", "application/pdf", b"%PDF"),
        RunFile("b.txt", "", "no base64 ä".encode()),
        RunFile("file", "", b""),
        RunFile("a.ogg", "audio/ogg", b"Ogg"),
    )
    assert given.files is given.files


def test_what_does_not_fit_is_said_once() -> None:
    wanted = read_context("run", Run[dict[str, int], dict[str, str]])
    assert wanted is not None

    assert Given({"dependencies": {"a": "x"}}).context(wanted, RUN, {}, 0) == Misfit(
        "dependencies.a must be an integer"
    )
    assert Given().context(wanted, RUN, {"b": 1}, 0) == Misfit("state.b must be a string")
