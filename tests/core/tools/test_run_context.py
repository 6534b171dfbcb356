from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated, Any, get_args

import pytest
from attrs.exceptions import FrozenAttributeError

from legation import FromModel, Run, RunFile, ToolError, tool
from legation.tools import ToolFault
from legation.tools.run_context import RESERVED, name_fault, without_mark


def test_a_run_can_be_made_in_a_test_with_what_matters_there() -> None:
    file = RunFile("a.txt", "text/plain", b"a")
    run: Run = Run(user_id="ada", state={"cart": ["tea"]}, files=(file,))

    run.state["cart"].append("milk")
    run.state = {**run.state, "step": 2}

    assert run.state == {"cart": ["tea", "milk"], "step": 2}
    assert (run.dependencies, run.metadata, run.claims) == ({}, {}, {})
    assert run.now == datetime(1970, 1, 1, tzinfo=UTC)
    assert Run().state is not Run().state


@pytest.mark.parametrize("name", ["user_id", "session_id", "dependencies", "claims", "now"])
def test_nothing_but_the_state_may_be_changed(name: str) -> None:
    with pytest.raises(FrozenAttributeError):
        setattr(Run(), name, "eve")


def test_representation_shows_no_secret() -> None:
    run: Run[Any, Any] = Run(
        user_id="ada", dependencies={"key": "s3cret"}, claims={"c": "s3cret"}, state={"s": "s3cret"}
    )

    assert "ada" in repr(run)
    assert "s3cret" not in repr(run)


@pytest.mark.parametrize("name", [*RESERVED, "userId", "UserID", "_user_id", "sessionId", "RUN"])
def test_reserved_name_is_the_callers(name: str) -> None:
    sentence = name_fault(name, str)

    assert sentence is not None
    assert "Annotated[…, FromModel]" in sentence
    assert name_fault(name, Annotated[str, "whose", FromModel]) is None
    assert name_fault(name, Annotated[str, FromModel()]) is None


@pytest.mark.parametrize("name", ["user", "order_id", "runs", "metadata_of", "rerun", "sessions"])
def test_other_names_are_free(name: str) -> None:
    assert name_fault(name, str) is None


def test_mark_is_taken_off_before_the_hint_is_read() -> None:
    assert without_mark(Annotated[str, FromModel]) is str
    assert get_args(without_mark(Annotated[str, "whose", FromModel])) == (str, "whose")
    assert without_mark(Annotated[str, "whose"]) == Annotated[str, "whose"]


def test_fault_says_what_to_write() -> None:
    def orders(user_id: str, session_state: dict[str, Any], run: str) -> str:
        raise ToolError

    with pytest.raises(ToolFault) as caught:
        tool(orders)

    assert str(caught.value) == (
        "tool 'orders': parameter 'user_id' is the caller's, not the model's: add a parameter"
        " `run: Run` and read `run.user_id`, or write Annotated[…, FromModel] where the model is to"
        " choose it; parameter 'session_state' is the caller's, not the model's: add a parameter"
        " `run: Run` and read `run.state`, or write Annotated[…, FromModel] where the model is to"
        " choose it; parameter 'run' is given by the platform: annotate it with `Run`, or write"
        " Annotated[…, FromModel] where the model is to choose it"
    )
