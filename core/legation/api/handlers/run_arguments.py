"""The arguments of a run: all that clients of AgentOS 2.5.6 to 2.9 send, and what becomes of each.

`ARGUMENTS` is the one table of them.  A request is parsed by it, the OpenAPI document describes
what it takes, and the page for people who come from AgentOS shows it.  A name that is not in it is
unknown, and refused as such: a misspelt argument must not pass.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from functools import partial
from typing import Annotated, Any, ClassVar, Final, Self, TypeAlias

from ...http.bodies.forms import Form
from ...http.bodies.json_text import JsonObject, JsonValue
from ...http.bodies.reader import Reader, Upload
from ...http.refusals import BadRequest, Invalid
from ...runs.output import MEDIA
from ...tools.structured import check_schema
from ...values import define, frozen
from ..chosen_ids import CHOSEN_ID, CHOSEN_SESSION, read_chosen_id, read_chosen_session
from ..fields import MOST, declare
from .media import MOST_FILES, NO_MEDIA, Media, UnsupportedFile, add_uploads, take_media_list

__all__ = [
    "ARGUMENTS",
    "Action",
    "Argument",
    "CancelForm",
    "CancelQuery",
    "ContinueForm",
    "ForkForm",
    "Kind",
    "ResumeForm",
    "RunForm",
    "StartForm",
    "Treatment",
    "arguments_of",
    "describe_rules",
]

_Schema: TypeAlias = Mapping[str, Any]

_MESSAGE_LENGTH: Final = 1 << 20


class Action(StrEnum):
    """A request about a run that has arguments."""

    START = "start"
    CONTINUE = "continue"
    FORK = "fork"
    CANCEL = "cancel"
    RESUME = "resume"


class Treatment(StrEnum):
    """The treatment of an argument."""

    HONOURED = "honoured"
    ACCEPTED = "taken without effect"
    REFUSED = "refused"


@frozen
class Kind:
    """The type of an argument.

    Attributes:
        schema: Of a member of a JSON body.
        read: Takes one that was sent.
        absent: The value of one that was not sent, or null.
        form: The schema of a field of a form, where `schema` does not lead to it.
    """

    schema: _Schema
    read: Callable[[Reader, str], Any]
    absent: Any = None
    form: _Schema | None = None


@frozen
class Argument:
    """One argument.

    Attributes:
        name: As clients send it.
        actions: The requests that know it.
        meaning: What it does; of one that is refused, why, and what to do instead.
        kind: Its type; None where its value is not looked at.
        treatment: What becomes of it.
        since: The first version of AgentOS whose clients send it.
        required: It has to be sent.
        harmless: Values of one that is refused which ask for nothing, in lower case.
    """

    name: str
    actions: tuple[Action, ...]
    meaning: str
    kind: Kind | None = None
    treatment: Treatment = Treatment.HONOURED
    since: str = "2.5.6"
    required: bool = False
    harmless: tuple[str, ...] = ()


# --- types -----------------------------------------------------------------------------------


# What `Reader.boolean` takes beside JSON's own, in any case.
_WORDS: Final = (
    "[Tt]([Rr][Uu][Ee])?|[Yy]([Ee][Ss])?|[Oo][Nn]|1"
    "|[Ff]([Aa][Ll][Ss][Ee])?|[Nn][Oo]?|[Oo][Ff][Ff]|0"
)
_WORD: Final[_Schema] = {"type": "string", "pattern": f"^({_WORDS})$"}
_WORD_OR_EMPTY: Final[_Schema] = {"type": "string", "pattern": f"^({_WORDS})?$"}
_BOOLEAN: Final[_Schema] = {"type": "boolean"}
_BIT: Final[_Schema] = {"type": "integer", "minimum": 0, "maximum": 1}


def _truth(*, default: bool) -> Kind:
    return Kind(
        {"anyOf": [_BOOLEAN, _BIT, _WORD], "default": default},
        Reader.boolean,
        absent=default,
        form={"anyOf": [_BOOLEAN, _WORD_OR_EMPTY], "default": default},
    )


def _output_schema(read: Reader, name: str) -> JsonObject | None:
    """Return the schema of the answer, out of the wrapper that OpenAI's interface puts it in."""
    schema = _unwrap_schema(read.json_object(name))
    if schema is not None and (fault := check_schema(schema)) is not None:
        read.fault(name, fault)
    return schema


def _unwrap_schema(sent: JsonObject | None) -> JsonObject | None:
    match sent:
        case {"type": "json_schema", "json_schema": {"schema": dict() as schema}}:
            return schema
        case {"type": "json_object"}:
            return {"type": "object"}
        case _:
            return sent


def _describe_text(form: str, example: str) -> _Schema:
    return {"type": "string", "format": form, "examples": [example]}


def _make_answers(shape: str) -> Kind:
    schema = {"type": "array", "items": {"$ref": f"#/components/schemas/{shape}"}}
    form = _describe_text("json-answers", "[]")
    return Kind(schema, Reader.json_list, absent=(), form=form)


_OBJECT: Final[_Schema] = {"type": "object", "additionalProperties": True}
_OBJECTS: Final[_Schema] = {"type": "array", "items": _OBJECT}
_MESSAGE: Final = Kind(
    {
        "type": "string",
        "minLength": 1,
        "maxLength": _MESSAGE_LENGTH,
        "examples": ["What can you do?"],
    },
    partial(Reader.text, required=True, max_length=_MESSAGE_LENGTH),
)
_NEW_SESSION: Final = Kind(CHOSEN_SESSION, read_chosen_session, absent="")
_ID: Final = Kind(CHOSEN_ID, read_chosen_id)
_JSON_OBJECT: Final = Kind(_OBJECT, Reader.json_object)
_ANSWER_SCHEMA: Final = Kind(
    {
        "type": "object",
        "properties": {"type": {"enum": ["object", "json_schema", "json_object"]}},
        "required": ["type"],
        "additionalProperties": True,
    },
    _output_schema,
    form=_describe_text("json-schema", ""),
)
_FILES: Final = Kind({**_OBJECTS, "maxItems": MOST_FILES}, take_media_list, absent=())
_CALLS: Final = _make_answers("ToolAnswer")
_REQUIREMENTS: Final = _make_answers("RequirementAnswer")
_AT: Final = Kind(
    {"type": "string", "maxLength": 512, "examples": ["2.1"]},
    partial(Reader.text, or_none=True, max_length=512),
)
_OTHER_MESSAGE: Final = Kind(
    {"type": "string", "maxLength": _MESSAGE_LENGTH, "examples": ["What can you do?"]},
    partial(Reader.text, or_none=True, max_length=_MESSAGE_LENGTH),
)
_OUTCOME: Final = Kind(
    {"examples": ["booked"]}, Reader.value, form={"type": "string", "examples": [""]}
)
_COUNT: Final = Kind(
    {"type": "integer", "minimum": 0, "maximum": 1_000_000},
    partial(Reader.integer, minimum=0, maximum=1_000_000),
)
_INDEX: Final = Kind(
    {"type": "integer", "minimum": -1, "maximum": MOST, "default": -1},
    partial(Reader.integer, minimum=-1),
    absent=-1,
)


# --- the table -------------------------------------------------------------------------------

_START: Final = (Action.START,)
_CONTINUE: Final = (Action.CONTINUE,)
_BOTH: Final = (Action.START, Action.CONTINUE)
_FORK: Final = (Action.FORK,)
_LATER: Final = (Action.CONTINUE, Action.CANCEL, Action.RESUME)
_GIVEN: Final = (
    "{} for the run, each with a `url`, which may hold the file itself (`data:…;base64,…`), or with"
    " `content` in base64 and its `mime_type`"
)


_IN_BOTH: Final = "The session that the run is of; also in the query, and then it has to be of both"


def _honour(
    name: str, actions: tuple[Action, ...], kind: Kind, meaning: str, **more: Any
) -> Argument:
    return Argument(name, actions, meaning, kind, **more)


def _accept(name: str, actions: tuple[Action, ...], reason: str, since: str = "2.5.6") -> Argument:
    return Argument(name, actions, reason, treatment=Treatment.ACCEPTED, since=since)


def _refuse(name: str, actions: tuple[Action, ...], reason: str, **more: Any) -> Argument:
    return Argument(name, actions, reason, treatment=Treatment.REFUSED, **more)


_ONE_WAY: Final = "a paused run goes on where it paused; fork the run instead"

ARGUMENTS: Final = (
    _honour("message", _START, _MESSAGE, "What the agent or team is asked", required=True),
    _honour(
        "at",
        _FORK,
        _AT,
        "The place where the fork begins: an answer of the model, such as 2, or a call, such as"
        " 2.1; or the id of an event. Without it the fork begins anew",
    ),
    _honour("message", _FORK, _OTHER_MESSAGE, "In place of the message; not together with `at`"),
    _honour(
        "outcome",
        _FORK,
        _OUTCOME,
        "What came of the call at `at`, in place of making it: a text, or any other value of JSON",
    ),
    _honour("stream", (*_BOTH, *_FORK), _truth(default=True), "Answer with events"),
    _honour("background", (*_START, *_FORK), _truth(default=False), "Answer 202 at once"),
    _honour(
        "session_id", _START, _NEW_SESSION, "The session to go on with; empty or absent begins one"
    ),
    _honour(
        "session_id",
        _FORK,
        _NEW_SESSION,
        "The session whose history the fork is told; empty or absent begins one, with copies of"
        " the runs before",
    ),
    _honour("session_id", (Action.CONTINUE, Action.RESUME), _ID, "The session that the run is of"),
    _honour("session_id", (Action.CANCEL,), _ID, _IN_BOTH),
    _honour("user_id", _START, _ID, "Whose; counts for administrators alone"),
    _honour("session_state", _START, _JSON_OBJECT, "Merged into the state of the session"),
    _honour("dependencies", _START, _JSON_OBJECT, "Handed to tools and to hosted functions"),
    _honour("metadata", _START, _JSON_OBJECT, "Kept with the run, and shown with it"),
    _honour(
        "output_schema",
        _START,
        _ANSWER_SCHEMA,
        "JSON schema that the answer is to satisfy (draft 2020-12, without `pattern`, and `$ref`"
        " only to its own `$defs`), also in the wrapper"
        ' `{"type": "json_schema", "json_schema": {"schema": …}}`',
    ),
    _honour(
        "use_json_schema",
        _START,
        _truth(default=False),
        "The `content_type` of a structured answer is `dict`, not the title of its schema",
    ),
    _honour(
        "add_history_to_context",
        _START,
        _truth(default=True),
        "False: the model reads nothing of the session before, and no summary of it",
    ),
    _honour(
        "num_history_runs",
        _START,
        _COUNT,
        "How many earlier runs of the session the model reads: no more than `history_runs` of the"
        " agent",
    ),
    *(_honour(kind, _START, _FILES, _GIVEN.format(kind.capitalize())) for kind in MEDIA),
    _honour("input_files", _START, _FILES, "The same as `files`", since="2.8"),
    _honour(
        "tools",
        _CONTINUE,
        _CALLS,
        "The calls that wait, as they were shown, each with `confirmed` (and `confirmation_note`)"
        " or `result`; none at all rejects what was to be confirmed. A call that is `in_doubt`"
        " takes either: `confirmed` true has it called again, `result` is what came of it",
    ),
    _honour(
        "requirements",
        _CONTINUE,
        _REQUIREMENTS,
        "The requirements of the run, each with `confirmation` (and `confirmation_note`) or"
        " `external_execution_result`, in the place of `tools`: one of the two has items. A call"
        " that is `in_doubt` takes either",
        since="2.6",
    ),
    _honour(
        "last_event_index", (Action.RESUME,), _INDEX, "The last event received, counted from 0"
    ),
    _accept("user_id", _LATER, "a run has one owner, whom its id leads to"),
    _accept("monitor", _START, "runs are monitored by the operator"),
    _accept("version", _START, "an agent has one version"),
    _accept("stream_events", _BOTH, "a stream always has all events"),
    _accept("background", _CONTINUE, "a run goes on when its client leaves", "2.6"),
    _accept("background_tasks", _BOTH, "gateways send it; it means something to their process"),
    _accept("retries", _START, "a model is asked again as the platform says"),
    _accept("debug_mode", _BOTH, "logging is the operator's"),
    _accept("add_dependencies_to_context", _START, "a model does not see them"),
    _accept("add_session_state_to_context", _START, "a model does not see it"),
    _refuse(
        "knowledge_filters",
        _BOTH,
        "there is no knowledge to be filtered; give the agent a tool that searches",
    ),
    _refuse("run_id", _START, "the id of a run is given here; send `Idempotency-Key` to retry"),
    _refuse("yield_run_output", _BOTH, "the last event of a stream holds the answer"),
    _refuse("factory_input", _START, "agents are made when the platform starts", since="2.6"),
    _refuse("dependencies", _CONTINUE, "a run keeps those that it began with"),
    _refuse("metadata", _CONTINUE, "a run keeps what it began with"),
    _refuse("input", _CONTINUE, _ONE_WAY, since="2.7"),
    _refuse("continue_from", _CONTINUE, _ONE_WAY, since="2.7", harmless=("end",)),
    _refuse("fork", _CONTINUE, _ONE_WAY, since="2.7", harmless=("false",)),
    _refuse("regenerate", _CONTINUE, _ONE_WAY, since="2.7", harmless=("false",)),
    _refuse("replace_original", _CONTINUE, _ONE_WAY, since="2.7"),
    _refuse("additional_instructions", _CONTINUE, _ONE_WAY, since="2.7"),
)  # fmt: skip
"""Every argument, those that are honoured first."""

_BY_ACTION: Final[Mapping[Action, tuple[Argument, ...]]] = {
    action: tuple(argument for argument in ARGUMENTS if action in argument.actions)
    for action in Action
}

_PLACES: Final[Mapping[Action, Mapping[str, tuple[int, Argument]]]] = {
    action: {argument.name: (place, argument) for place, argument in enumerate(known)}
    for action, known in _BY_ACTION.items()
}
"""The arguments by their names, each with its place in the table."""

_REQUIRED: Final[Mapping[Action, tuple[str, ...]]] = {
    action: tuple(argument.name for argument in known if argument.required)
    for action, known in _BY_ACTION.items()
}

_ABSENT: Final[Mapping[Action, Mapping[str, Any]]] = {
    action: {a.name: a.kind.absent for a in known if a.kind is not None}
    for action, known in _BY_ACTION.items()
}

# What is in a list is in `tools` or in `requirements`: null and an empty list are in neither.
_FILLED_LIST: Final[_Schema] = {"type": "array", "minItems": 1}
_FILLED_TEXT: Final[_Schema] = {"pattern": r"^[ \t\r\n]*\[[ \t\r\n]*[^ \t\r\n\]]"}


def describe_rules(action: Action, *, in_form: bool) -> _Schema:
    """Return what the arguments of `action` have to satisfy together, as JSON Schema."""
    if action is not Action.CONTINUE:
        return {}
    names = ("tools", "requirements")
    filled = _FILLED_TEXT if in_form else _FILLED_LIST
    return {"not": {"required": list(names), "properties": dict.fromkeys(names, filled)}}


def arguments_of(action: Action) -> tuple[Argument, ...]:
    """Return the arguments that `action` knows."""
    return _BY_ACTION[action]


def _read_arguments(read: Reader, action: Action) -> dict[str, Any]:
    """Return the values of the arguments that are honoured; `read` hears of every fault."""
    values, known = dict(_ABSENT[action]), _PLACES[action]
    wanted = {*read.names, *_REQUIRED[action]}
    # In the order of the table: so faults are reported.
    for _, argument in sorted([known[name] for name in wanted if name in known]):
        name = argument.name
        if argument.kind is not None:
            if (value := argument.kind.read(read, name)) is not None:
                values[name] = value
        elif argument.treatment is Treatment.REFUSED:
            read.refuse(name, argument.meaning, argument.harmless)
        else:
            read.ignore(name)
    return values


# --- as values ---------------------------------------------------------------------------------

_TOGETHER: Final = "is not allowed together with `tools`"
_NO_ANSWERS: Final = "Invalid JSON in {} field"
NoAnswers: TypeAlias = Annotated[BadRequest, _NO_ANSWERS.format("tools")]


# Made for every run, and never changed: `frozen` would triple what making them costs.
@define
class RunForm:
    """The arguments of a request that are honoured, by their names."""

    action: ClassVar[Action]

    @classmethod
    def read(cls, form: Form) -> Self | BadRequest | Invalid:
        """Return what `form` says, or what is wrong with it."""
        read = form.reader()
        values = cls.take(read)
        faults = read.faults()
        return Invalid(faults) if faults else cls(**values)

    @classmethod
    def take(cls, read: Reader) -> dict[str, Any]:
        """Return the values of its arguments; `read` hears of every fault."""
        return _read_arguments(read, cls.action)


@define
class StartForm(RunForm):
    """A new run; `uploads` are the files of a multipart form."""

    action: ClassVar = Action.START

    message: str
    stream: bool
    background: bool
    session_id: str
    user_id: str | None
    session_state: JsonObject | None
    dependencies: JsonObject | None
    metadata: JsonObject | None
    output_schema: JsonObject | None
    use_json_schema: bool
    add_history_to_context: bool
    num_history_runs: int | None
    images: Sequence[JsonObject]
    videos: Sequence[JsonObject]
    audio: Sequence[JsonObject]
    files: Sequence[JsonObject]
    input_files: Sequence[JsonObject]
    uploads: Sequence[Upload]

    @classmethod
    def take(cls, read: Reader) -> dict[str, Any]:
        """Return the values of its arguments, and the files."""
        return {**_read_arguments(read, cls.action), "uploads": read.uploads("files")}

    def media(self) -> Media | UnsupportedFile:
        """Return the files of the run, by their kind."""
        listed = {
            "images": self.images,
            "videos": self.videos,
            "audio": self.audio,
            "files": [*self.files, *self.input_files],
        }
        if not self.uploads and not any(listed.values()):
            return NO_MEDIA
        return add_uploads(self.uploads, listed)


@define
class ContinueForm(RunForm):
    """The answers of people to a paused run."""

    action: ClassVar = Action.CONTINUE

    stream: bool
    session_id: str | None
    tools: Sequence[JsonValue]
    requirements: Sequence[JsonValue]

    @classmethod
    def read(cls, form: Form) -> Self | NoAnswers | Invalid:
        """Return what `form` says, or what is wrong with it: 400 where answers are no array."""
        read = form.reader()
        values = _read_arguments(read, cls.action)
        unread = {fault.path for fault in read.faults()}
        for name in ("tools", "requirements"):
            if f"body.{name}" in unread:
                return BadRequest(_NO_ANSWERS.format(name))
        if values["tools"] and values["requirements"]:
            read.fault("requirements", _TOGETHER)
        faults = read.faults()
        return Invalid(faults) if faults else cls(**values)


@define
class ForkForm(RunForm):
    """A fork of a run."""

    action: ClassVar = Action.FORK

    at: str | None
    message: str | None
    outcome: JsonValue
    stream: bool
    background: bool
    session_id: str


@frozen
class CancelQuery:
    """The session, which may stand in the query as well."""

    session_id: str | None = declare(_ID.schema, _ID.read, _IN_BOTH)


@define
class CancelForm(RunForm):
    """The choice of the run to cancel."""

    action: ClassVar = Action.CANCEL

    session_id: str | None


@define
class ResumeForm(RunForm):
    """The choice of the run to follow, and of the first event."""

    action: ClassVar = Action.RESUME

    session_id: str | None
    last_event_index: int
