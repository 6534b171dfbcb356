"""The result of a run, typed: what a client reads as JSON, with names that an editor knows.

A result is still the mapping that came over the wire: `run["content"]` is `run.content`, and a
member that has no name here is there all the same.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Literal, Self, TypeAlias, TypedDict, TypeVar

from attrs import field, fields, frozen

__all__ = [
    "RunFields",
    "RunMetrics",
    "RunRequirement",
    "RunResult",
    "RunStatus",
    "ToolExecution",
    "read_members",
]

T = TypeVar("T")

RunStatus: TypeAlias = Literal["PENDING", "RUNNING", "PAUSED", "COMPLETED", "ERROR", "CANCELLED"]
"""The states of a run, as clients see them."""


class RunFields(TypedDict, total=False):
    """The fields of a run, beside its message; what is not text is sent as JSON.

    Attributes:
        session_id: The session to go on with; a new one begins without it.
        user_id: Whose run it is; it counts for administrators alone.
        session_state: Merged into the state of the session.
        dependencies: Handed to tools and to functions.
        metadata: Stored with the run, and shown with it.
        output_schema: The JSON schema of the answer, in place of the agent's own.
        use_json_schema: The `content_type` of a structured answer is then `dict`.
        images: Each with a `url`, which may hold the file, or with its `content` in base64.
        audio: As images.
        videos: As images.
        files: As images.
        background: Answer at once, with the id of the run.
    """

    session_id: str
    user_id: str
    session_state: Mapping[str, Any]
    dependencies: Mapping[str, Any]
    metadata: Mapping[str, Any]
    output_schema: Mapping[str, Any]
    use_json_schema: bool
    images: Sequence[Mapping[str, Any]]
    audio: Sequence[Mapping[str, Any]]
    videos: Sequence[Mapping[str, Any]]
    files: Sequence[Mapping[str, Any]]
    background: bool


def read_members(cls: type[Any], members: Mapping[str, Any]) -> dict[str, Any]:
    """Return what `cls` is made with: of `members` those that are its fields."""
    names = [attribute.name for attribute in fields(cls)]
    return {name: members[name] for name in names if name in members}


@frozen(kw_only=True)
class RunMetrics:
    """The cost of a run: tokens as the provider counts them, and seconds.

    Attributes:
        input_tokens: Tokens of the requests to the model.
        output_tokens: Tokens of its answers.
        total_tokens: The sum of both.
        reasoning_tokens: Tokens of its reasoning, among those of the answers.
        cache_read_tokens: Tokens that the provider read from its cache.
        cache_write_tokens: Tokens that it wrote to its cache.
        cost: US dollars, with those of the members of a team, where the prices are known.
        time_to_first_token: Seconds until the first piece of an answer, if it was streamed.
        duration: Seconds of the whole run.
    """

    input_tokens: int = 0
    output_tokens: int = 0
    total_tokens: int = 0
    reasoning_tokens: int = 0
    cache_read_tokens: int = 0
    cache_write_tokens: int = 0
    cost: float | None = None
    time_to_first_token: float | None = None
    duration: float | None = None

    @classmethod
    def of(cls, members: Mapping[str, Any]) -> Self:
        """Return the metrics that `members` are, as JSON has them."""
        return cls(**read_members(cls, members))


@frozen(kw_only=True)
class ToolExecution:
    """A call of a tool, as a run and its events show it.

    Attributes:
        tool_call_id: Its id, as the model gave it.
        tool_name: The tool.
        tool_args: The arguments.
        result: What the model read of it; None before it was made.
        tool_call_error: Whether it failed; None before it was made.
        requires_confirmation: Whether a person has to be asked; None where the tool does not ask.
        confirmed: What a person said.
        confirmation_note: And why.
        external_execution_required: Whether the client has to execute it; None where not.
        in_doubt: Whether a crash took its outcome away, and a person is asked about that.
        child_run_id: The run of the member that it was delegated to.
        member_run_id: The run of the member that wants it.
    """

    tool_call_id: str
    tool_name: str
    tool_args: Mapping[str, Any]
    result: str | None = None
    tool_call_error: bool | None = None
    requires_confirmation: bool | None = None
    confirmed: bool | None = None
    confirmation_note: str | None = None
    external_execution_required: bool | None = None
    in_doubt: bool = False
    child_run_id: str | None = None
    member_run_id: str | None = None

    @classmethod
    def of(cls, members: Mapping[str, Any]) -> Self:
        """Return the call that `members` are, as JSON has them."""
        return cls(**read_members(cls, members))


def _execution(members: Mapping[str, Any]) -> ToolExecution:
    return ToolExecution.of(members)


@frozen(kw_only=True)
class RunRequirement:
    """A call that waits for a person, or for the client; `go_on` of the client answers it.

    Attributes:
        id: The id of the requirement.
        tool_execution: The call.
        member_agent_id: The member of the team that wants it.
        member_run_id: The run of that member.
    """

    id: str
    tool_execution: ToolExecution = field(converter=_execution)
    member_agent_id: str | None = None
    member_run_id: str | None = None

    @classmethod
    def of(cls, members: Mapping[str, Any]) -> Self:
        """Return the requirement that `members` are, as JSON has them."""
        return cls(**read_members(cls, members))


@frozen(eq=False, repr=False)
class RunResult(Mapping[str, Any]):
    """A run as the client got it.  It is the mapping of JSON, and has a name for each member."""

    _members: Mapping[str, Any]
    _read: Callable[[Any], Any] | None = None

    def __getitem__(self, name: str) -> Any:
        return self._members[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._members)

    def __len__(self) -> int:
        return len(self._members)

    def __repr__(self) -> str:
        who = self.team_id if self.agent_id is None else self.agent_id
        failed = "" if self.error_type is None else f", error_type={self.error_type!r}"
        content = self.get("content")
        return f"RunResult({who!r}, status={self.status!r}, content={content!r}{failed})"

    @property
    def run_id(self) -> str:
        """Its id."""
        return self._text("run_id")

    @property
    def session_id(self) -> str:
        """The id of its session."""
        return self._text("session_id")

    @property
    def agent_id(self) -> str | None:
        """The agent that answered; None of a team's run."""
        return self._text_or_none("agent_id")

    @property
    def team_id(self) -> str | None:
        """The team that answered; None of an agent's run."""
        return self._text_or_none("team_id")

    @property
    def user_id(self) -> str | None:
        """Whose it is."""
        return self._text_or_none("user_id")

    @property
    def status(self) -> RunStatus:
        """The status that it came to."""
        status: RunStatus = self._members["status"]
        return status

    @property
    def content(self) -> Any:
        """The answer: text, or the value of a structured one; of another end, a sentence."""
        return self._members.get("content")

    @property
    def answer(self) -> Any:
        """The answer as an instance of the agent's `output_schema`, which is a class.

        Raises:
            TypeError: There is no such class.
            ValueError: The answer is no instance of it.
        """
        if self._read is None:
            raise TypeError("the agent has no class as output_schema: read `content`")
        return self._read(self.content)

    def answer_as(self, cls: type[T]) -> T:
        """Return `answer`, of which a type checker then knows the class.

        Raises:
            TypeError: It is an instance of another class.
            ValueError: The answer is no instance of it.
        """
        answer = self.answer
        if not isinstance(answer, cls):
            raise TypeError(f"the answer is a {type(answer).__name__}, not a {cls.__name__}")
        return answer

    @property
    def reasoning_content(self) -> str | None:
        """The thoughts of the model that were seen."""
        return self._text_or_none("reasoning_content")

    @property
    def state(self) -> Mapping[str, Any]:
        """The state of the session: `session_state`."""
        return self._mapping("session_state")

    @property
    def metadata(self) -> Mapping[str, Any]:
        """The `metadata` that was sent."""
        return self._mapping("metadata")

    @property
    def metrics(self) -> RunMetrics:
        """The metrics of the run."""
        return RunMetrics.of(self._mapping("metrics"))

    @property
    def tools(self) -> tuple[ToolExecution, ...]:
        """The calls of tools, in their order."""
        return tuple(map(ToolExecution.of, self._list("tools")))

    @property
    def requirements(self) -> tuple[RunRequirement, ...]:
        """The calls that it waits for."""
        return tuple(map(RunRequirement.of, self._list("requirements")))

    @property
    def member_responses(self) -> tuple[RunResult, ...]:
        """The runs of a team's members."""
        return tuple(RunResult(members) for members in self._list("member_responses"))

    @property
    def error_type(self) -> str | None:
        """The kind of the error, for programs; None of a run that did not fail."""
        return self._text_or_none("error_type")

    @property
    def incident(self) -> str | None:
        """The id under which the log has what went wrong."""
        return self._text_or_none("incident")

    def _text(self, name: str) -> str:
        text: str = self._members[name]
        return text

    def _text_or_none(self, name: str) -> str | None:
        text: str | None = self._members.get(name)
        return text

    def _mapping(self, name: str) -> Mapping[str, Any]:
        found: Mapping[str, Any] = self._members.get(name) or {}
        return found

    def _list(self, name: str) -> Sequence[Mapping[str, Any]]:
        found: Sequence[Mapping[str, Any]] = self._members.get(name) or ()
        return found
