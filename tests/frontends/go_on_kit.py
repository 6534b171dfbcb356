"""A world that counts, for runs that go on after a crash: what they host, and how they are asked.

The model does what its script says, by what it was told, so that a run comes to the same end
whenever it is broken off.  Tools, the model and the people who answer count what is asked of them:
that cannot be undone, whatever becomes of the nodes.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Collection, Container, Iterator, Mapping, Sequence
from typing import Any, Final, TypeAlias

from attrs import define, evolve, field, frozen

from legation import Agent, Platform, Team
from legation.config import Again, InDoubt, Mode
from legation.models.conversation import Prompt, ToolCall, Usage
from legation.tools import tool
from legation.tools.accepted import is_array, is_object
from legation_testing import Client, Says, ScriptedModel, Simulation, call
from legation_testing.clock import Clock
from legation_testing.databases import MEMORY, Databases
from legation_testing.exchange import Exchange

from ..two_databases import IN_MEMORY

__all__ = ["BY_HAND", "CASES", "Case", "Ground", "Outcome", "World", "case", "finish", "judge"]

_NEVER: Final = ("book", "permit", "function")
DELEGATE: Final = "delegate_task_to_member"
BY_HAND: Final = "done by hand"
"""The outcome that a person states of a call in doubt."""

FINAL: Final = ("COMPLETED", "ERROR", "CANCELLED")
SHAPE: Final = {
    "type": "object",
    "properties": {"room": {"type": "integer"}},
    "required": ["room"],
    "additionalProperties": False,
}
_UUID: Final = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_UNKNOWN: Final = "whether it was carried out is not known"
_LIVE_SECONDS: Final = 90.0
_ROUND_SECONDS: Final = 1.0


def _book(place: str) -> ToolCall:
    return _named(place, "book", what=place)


def _named(place: str, name: str, **arguments: Any) -> ToolCall:
    return evolve(call(name, **arguments), id=f"id-{place}")


def _ask(place: str, member: str) -> ToolCall:
    return _named(place, DELEGATE, member_id=member, task=f"task of {place}")


_DONE: Final = Says(("all ", "done"), after_seconds=0.5, between_seconds=0.25)

SCRIPTS: Final[Mapping[str, tuple[Any, ...]]] = {
    "solo": (
        Says(("I ", "book"), calls=[_book("s1")], after_seconds=0.5),
        [_named("s2", "look", what="s2"), _named("s3", "pay", what="s3")],
        _DONE,
    ),
    "side": (
        [_book("m1"), _named("m2", "look", what="m2"), _named("m3", "pay", what="m3")],
        _DONE,
    ),
    "a": ([_book("a1")], "a is done"),
    "b": ([_named("b1", "look", what="b1"), _named("b2", "pay", what="b2")], "b is done"),
    "shaped": ([_book("o1")], "seven", '{"room": 7}'),
    "careful": (
        [
            _named("p1", "permit", what="p1"),
            _named("p2", "outside", what="p2"),
            _named("p3", "look", what="p3"),
        ],
        [_book("p4")],
        _DONE,
    ),
    "coordinate": ([_ask("t1", "a"), _ask("t2", "b")], [_book("t3")], "the team is done"),
    "route": ([_ask("r1", "a")],),
    "collaborate": ((), "the team is done"),  # its members were asked before it was
    "outer": ([_ask("n1", "inner")], "the outer one is done"),
    "inner": ([_ask("i1", "a"), _ask("i2", "b")], "the inner one is done"),
    "circle": ([_ask("c1", "collaborate")], "the circle is done"),
    "asking": ([_ask("w1", "careful"), _ask("w2", "a")], "those who ask are done"),
}
"""By the instructions of whom the model answers for: a step for each of its answers."""


@frozen
class Case:
    """A run to break off: of what, how it is asked for, and what becomes of a doubt.

    Attributes:
        answer: How a person answers a doubt: `confirm`, `reject`, or with a `result`.
    """

    name: str
    component: str = "solo"
    in_doubt: InDoubt | None = "tell"
    answer: str = "confirm"
    stream: bool = False
    background: bool = False

    @property
    def kind(self) -> str:
        """The path of its kind."""
        return "teams" if self.component in _TEAMS else "agents"

    def may_end(self, doubted: Container[str], unsure: Collection[str]) -> bool:
        """Return whether a doubt ends the run, as it is declared or as a person said."""
        if self.component == "function":
            return self.in_doubt != "ask" or (self.answer == "reject" and "call_1" in doubted)
        return self.in_doubt == "end" and len(unsure) > 0

    @property
    def path(self) -> str:
        """The path of its runs."""
        return f"/{self.kind}/{self.component}/runs"


_TEAMS: Final[Mapping[str, tuple[Mode, tuple[str, ...]]]] = {
    "coordinate": ("coordinate", ("a", "b")),
    "route": ("route", ("a",)),
    "collaborate": ("collaborate", ("a", "b")),
    "inner": ("coordinate", ("a", "b")),
    "outer": ("coordinate", ("inner",)),
    "circle": ("coordinate", ("collaborate",)),
    "asking": ("coordinate", ("careful", "a")),
}
_HOSTS: Final[Mapping[str, tuple[str, ...]]] = {
    "outer": ("outer", "inner", "a", "b"),
    "circle": ("circle", "collaborate", "a", "b"),
    "asking": ("asking", "careful", "a"),
}
"""What is hosted for a component, beside itself."""

CASES: Final = (
    Case("joined"),
    Case("streamed", stream=True),
    Case("in the background", background=True),
    Case("side by side", "side"),
    Case("a team that coordinates", "coordinate"),
    Case("a team that routes", "route"),
    Case("a team that collaborates", "collaborate"),
    Case("a team of teams", "outer"),
    Case("a team of a team that collaborates", "circle"),
    Case("paused and continued", "careful"),
    Case("a member paused and continued", "asking"),
    Case("structured output", "shaped"),
    Case("a function", "function", "ask"),
    Case("a function that may be called again", "again", None),
)


def case(name: str, **changes: Any) -> Case:
    """Return a case by its name, with changes."""
    return evolve(next(one for one in CASES if one.name == name), **changes)


class Ground:
    """Databases in memory that are migrated once, and are as new for each trial."""

    def __init__(self) -> None:
        """Open and migrate them."""
        names = {database.id: MEMORY for database in IN_MEMORY}
        self.databases = Databases(names, _ignore, Clock())
        with Simulation(databases=self.databases) as world:
            world.run(Platform(databases=IN_MEMORY).startup(), body=None)
        self.databases.keep()

    def client(self, platform: Callable[[], Platform], **options: Any) -> Client:
        """Return a client of a fresh process, which is open already."""
        self.databases.rewind()
        simulation = Simulation(databases=self.databases, **options)
        client = Client(platform, simulation=simulation)
        client.open()
        client.settle()
        return client

    def select(self, statement: str, *values: Any) -> list[tuple[Any, ...]]:
        """Return rows of the database of the agents."""
        return self.databases.connection("main").execute(statement, values).fetchall()

    def close(self) -> None:
        """Let go of them."""
        self.databases.close()


@define(eq=False)
class World:
    """What was asked of the outside, and by whom.

    Attributes:
        called: How often a tool was carried out, by its name and the place in the script.
        keys: The idempotency keys that came, by the place in the script.
        asked: How often the model was asked, by whose turn it was and how far that had come.
        doubted: The calls that people were asked about as in doubt.
        confirmed: How often a person had a call made again, by its place in the script.
        seen: The events that a client got before it was cut off.
        unsure: The places of calls without an outcome when a node went away, that count twice.
    """

    case: Case
    ground: Ground
    called: Counter[tuple[str, str]] = field(factory=Counter[tuple[str, str]])
    keys: dict[str, set[str]] = field(factory=dict[str, set[str]])
    asked: Counter[tuple[str, ...]] = field(factory=Counter[tuple[str, ...]])
    doubted: set[str] = field(factory=set[str])
    confirmed: Counter[str] = field(factory=Counter[str])
    seen: list[tuple[str | None, str]] = field(factory=list[tuple[str | None, str]])
    unsure: set[str] = field(factory=set[str])

    # What is hosted

    def platform(self) -> Platform:
        """Return what a node hosts for the case, with nothing in its memory."""
        hosted = _HOSTS.get(self.case.component)
        if hosted is None:
            hosted = (self.case.component, *_TEAMS.get(self.case.component, ("route", ()))[1])
        model = ScriptedModel([self._answer] * 1_000)
        return Platform(
            databases=IN_MEMORY,
            agents=[self._agent(name, model) for name in hosted if name not in _TEAMS],
            teams=[self._team(name, model) for name in hosted if name in _TEAMS],
        )

    def _agent(self, name: str, model: ScriptedModel) -> Agent:
        in_doubt = self.case.in_doubt
        if name in ("function", "again"):
            again: Again = "safe" if name == "again" else "never"
            return Agent(id=name, run=self._function, again=again, in_doubt=in_doubt)
        schema = SHAPE if name == "shaped" else None
        return Agent(
            id=name,
            model=model,
            instructions=name,
            tools=self._tools(),
            in_doubt=in_doubt,
            output_schema=schema,
        )

    def _team(self, name: str, model: ScriptedModel) -> Team:
        mode, members = _TEAMS[name]
        tools = self._tools() if name == "coordinate" else []
        return Team(
            id=name,
            mode=mode,
            members=members,
            model=model,
            instructions=name,
            tools=tools,
            in_doubt=self.case.in_doubt,
        )

    def _tools(self) -> list[Any]:
        def book(what: str) -> str:
            """Book a room, which counts twice."""
            return self._call("book", what)

        @tool(again="safe")
        def look(what: str) -> str:
            """Look, which changes nothing."""
            return self._call("look", what)

        @tool(again="key")
        def pay(what: str, idempotency_key: str) -> str:
            """Pay, once for each key."""
            self.keys.setdefault(what, set()).add(idempotency_key)
            return self._call("pay", what)

        @tool(requires_confirmation=True)
        def permit(what: str) -> str:
            """Do what a person allows."""
            return self._call("permit", what)

        @tool(external_execution=True)
        def outside(what: str) -> str:
            """Be done by the client."""
            raise NotImplementedError

        return [book, look, pay, permit, outside]

    def _call(self, name: str, what: str) -> str:
        self.called[name, what] += 1
        return f"{name} {what}"

    def _function(self, message: str) -> Iterator[str] | Any:
        self.called["function", "f"] += 1

        async def pieces() -> Any:
            yield "one "
            yield "two"

        return pieces()

    def _answer(self, prompt: Prompt) -> Any:
        who = next(m.content for m in prompt.messages if m.role == "system")
        task = next(m.content for m in prompt.messages if m.role == "user")
        number = sum(message.role == "assistant" for message in prompt.messages)
        self.asked[who, task, str(len(prompt.messages))] += 1
        says = SCRIPTS[who][number]
        if is_array(says):
            says = Says(calls=says)
        if isinstance(says, str):
            says = Says(says)
        return evolve(says, usage=Usage(10, 2))

    # Who asks

    def ask(self, client: Client) -> None:
        """Ask for the run, and have it taken to its end."""
        self._begin(client)
        self.live(client)

    def note_crash(self) -> None:
        """Note what is not known, now that a node has gone away."""
        for place, asked in self.ground.select(
            "select place, asked from steps where outcome is null"
        ):
            if asked in _NEVER:
                self.unsure.add(place)

    def live(self, client: Client) -> None:
        """Have the run taken to its end, from wherever it is: ask, wait, and answer for people."""
        started = client.clock.elapsed
        while (standing := self.find()) is None or standing[1] not in FINAL:
            assert client.clock.elapsed - started < _LIVE_SECONDS, f"no end in sight: {standing}"
            if standing is None:
                self._begin(client)
            elif standing[1] == "PAUSED":
                self._continue(client, standing[0])
            else:
                client.advance(_ROUND_SECONDS)

    def find(self) -> tuple[str, str] | None:
        """Return the id of the run, and its status; None where there is none.

        Not over HTTP: every answer is held against the OpenAPI document, which takes longer than
        all else.
        """
        rows = self.ground.select("select run_id, status from runs where parent_run_id is null")
        assert len(rows) < 2, "it was begun twice"
        return next(iter(rows), None)

    def read(self, client: Client) -> dict[str, Any]:
        """Return the run as a client reads it."""
        run_id, _ = self.find() or ("", "")
        run: dict[str, Any] = client.get(f"{self.case.path}/{run_id}?session_id=s").json()
        return run

    def events(self) -> list[Event]:
        """Return the events of the run, as they are stored."""
        run_id, _ = self.find() or ("", "")
        rows = self.ground.select("select seq, name, data from events where run_id = ?", run_id)
        return [(f"{run_id}:{seq}", name, json.loads(data)) for seq, name, data in sorted(rows)]

    def _begin(self, client: Client) -> None:
        form: dict[str, Any] = {"message": "go", "session_id": "s", "stream": self.case.stream}
        if self.case.background:
            form |= {"background": True}
        self.follow(client.begin("POST", self.case.path, form=form))

    def follow(self, exchange: Exchange) -> None:
        """Read to the end, and keep the events as far as they come."""
        try:
            assert exchange.response().status in (200, 202, 409)
        finally:
            if self.case.stream:
                self.seen += [(event.id, event.data) for event in exchange.events()]

    def _continue(self, client: Client, run_id: str) -> None:
        run = self.read(client)
        tools = [self.reply(needed["tool_execution"]) for needed in run["requirements"]]
        form = {"tools": json.dumps(tools), "stream": self.case.stream}
        path = f"{self.case.path}/{run_id}/continue"
        self.follow(client.begin("POST", path, form=form))

    def reply(self, execution: dict[str, Any]) -> dict[str, Any]:
        """Return what a person says about a call."""
        if execution.get("in_doubt"):
            return {**execution, **self._resolve(execution)}
        if execution["external_execution_required"]:
            return {**execution, "result": f"outside {execution['tool_args']['what']}"}
        return {**execution, "confirmed": True}

    def _resolve(self, execution: Mapping[str, Any]) -> Mapping[str, Any]:
        assert execution["tool_name"] in (*_NEVER, "_function"), "nobody has to be asked"
        self.doubted.add(execution["tool_call_id"])
        if self.case.answer == "result":
            return {"result": BY_HAND if execution["tool_args"] else "one two"}
        if self.case.answer == "reject":
            return {"confirmed": False, "confirmation_note": "let it be"}
        self.confirmed[execution["tool_args"].get("what", "f")] += 1
        return {"confirmed": True}


# What came of it


def judge(
    world: World, client: Client, whole: Outcome, crashes: int, *, exact: bool = True
) -> None:
    """Find that a run came to the end of one that was not broken off, and did nothing twice.

    `exact`: every call that was not known at a crash is in doubt, and not only none else.
    """
    run, events = world.read(client), world.events()
    ground = world.ground
    names = Counter(name for _, name, _ in events)
    _check_calls(world, crashes)
    _check_log(world, events, crashes)
    if world.case.stream:
        _check_follower(world, client, events)
    if run["status"] == "ERROR" and world.case.may_end(world.doubted, world.unsure):
        assert events[-1][2]["error_type"] == "interrupted", events[-1]
        return
    assert run["status"] == "COMPLETED", run["status"]
    if world.case.component != "function":
        doubts = len(world.doubted | find_doubts(run))
        assert doubts == len(world.unsure) or (doubts < len(world.unsure) and not exact)
    assert names["RunPaused"] + names["TeamRunPaused"] >= whole.pauses
    doubted = frozenset(world.doubted)
    expected = dict(whole.run)
    if world.case.component == "function":  # a call of it is shown where it was in doubt
        run.pop("tools")
        expected.pop("tools")
    difference = find_difference(simplify(run, doubted), simplify(expected, doubted))
    assert not difference, difference
    assert ground.select("select place from steps where outcome is null") == []
    members = ground.select("select status from runs where parent_run_id is not null")
    assert set(members) <= {("COMPLETED",)}
    assert len(members) == whole.members
    worked = run["metrics"]["duration"]
    # A last answer is no step: of a member that was over, its time is not known any more.
    least = whole.seconds if world.case.kind == "agents" else 0.0
    assert least - 0.001 <= worked <= client.clock.elapsed + 0.001


def _check_calls(world: World, crashes: int) -> None:
    """Find that the world was asked for nothing too often."""
    for (name, what), times in world.called.items():
        never = name in _NEVER and world.case.component != "again"
        allowed = 1 + (world.confirmed[what] if never else crashes)
        assert times <= allowed, f"{name} of {what} was carried out {times} times"
    assert all(len(keys) == 1 for keys in world.keys.values()), world.keys
    assert max(world.asked.values(), default=0) <= 1 + crashes, world.asked


def _check_log(world: World, events: Sequence[Event], crashes: int) -> None:
    """Find that the log has each event once, in order, and no gap."""
    run_id = events[0][2]["run_id"]
    assert [number for number, _, _ in events] == [
        f"{run_id}:{number}" for number in range(1, len(events) + 1)
    ]
    starts = Counter(f["run_id"] for _, name, f in events if name.endswith("RunStarted"))
    assert set(starts.values()) == {1}, starts
    begun, ended = _count_calls(events, "Started"), _count_calls(events, "Completed")
    assert max(begun.values(), default=1) == 1, begun
    assert max(ended.values(), default=1) == 1, ended
    if events[-1][1].endswith("RunCompleted"):
        by_people = {
            (tool.get("member_run_id") or fields["run_id"], tool["tool_call_id"])
            for _, name, fields in events
            if name.endswith("RunContinued")
            for tool in fields.get("tools", ())
        }
        assert ended.keys() <= begun.keys() <= ended.keys() | by_people
    asked = Counter(
        (f["run_id"], f["message_id"]) for _, name, f in events if name.endswith("RequestStarted")
    )
    assert max(asked.values(), default=1) <= 1 + crashes
    seen: set[tuple[str, str]] = set()
    for _, name, fields in events:
        if name.endswith("RequestStarted"):
            key = (fields["run_id"], fields["message_id"])
            assert key not in seen or fields["again"] is True
            seen.add(key)
    if world.case.stream and events[-1][1].endswith("RunCompleted"):
        assert _join_pieces(events, run_id) == events[-1][2]["content"]


def _count_calls(events: Sequence[Event], how: str) -> Counter[tuple[str, str]]:
    return Counter(
        (fields["run_id"], fields["tool"]["tool_call_id"])
        for _, name, fields in events
        if name.endswith(f"ToolCall{how}")
    )


def _join_pieces(events: Sequence[Event], run_id: str) -> str:
    """Return the last answer as who joins pieces has it, and begins anew where a model does."""
    text = ""
    for _, name, fields in events:
        if fields["run_id"] == run_id:
            text = "" if name.endswith("ModelRequestStarted") else text
            text += (fields.get("content") or "") if name.endswith("RunContent") else ""
    return text


def _check_follower(world: World, client: Client, events: Sequence[Event]) -> None:
    """Find that who was cut off saw the log, and is given the rest of it."""
    run_id = events[0][2]["run_id"]
    stored = {number: fields for number, _, fields in events}
    seen = [(number, data) for number, data in world.seen if number in stored]
    assert all(stored[number] == json.loads(data) for number, data in seen if number)
    last = {"last-event-id": seen[-1][0] or ""} if seen else {}
    rest = client.get(f"{world.case.path}/{run_id}/events", headers=last).events()
    numbers = [number for number, _, _ in events]
    behind = numbers.index(seen[-1][0] or "") + 1 if seen else 0
    assert [event.id for event in rest] == numbers[behind:]


Event: TypeAlias = tuple[str, str, dict[str, Any]]
"""The id, the name and the fields."""


@frozen
class Outcome:
    """How a run ends that is not broken off: itself, and how much there was of it."""

    run: Mapping[str, Any]
    seconds: float
    members: int
    pauses: int


def finish(one: Case, ground: Ground) -> Outcome:
    """Return what comes of a case without a crash."""
    world = World(one, ground)
    client = ground.client(world.platform)
    try:
        world.ask(client)
        run = world.read(client)
        names = Counter(name for _, name, _ in world.events())
        ((members,),) = ground.select("select count(*) from runs where parent_run_id is not null")
        pauses = names["RunPaused"] + names["TeamRunPaused"]
        outcome = Outcome(run, run["metrics"]["duration"], members, pauses)
        judge(world, client, outcome, 0)
    finally:
        client.close()
    return outcome


_TIMES: Final = (
    "created_at",
    "duration",
    "end_time",
    "metrics",
    "start_time",
    "time_to_first_token",
    "updated_at",
)
_OF_DOUBT: Final = ("confirmed", "confirmation_note", "in_doubt", "requires_confirmation")


def simplify(run: Mapping[str, Any], doubted: frozenset[str]) -> Any:
    """Return a run without its times, without the names of runs, and without its doubts."""
    numbers: dict[str, str] = {}

    def number(match: re.Match[str]) -> str:
        return numbers.setdefault(match[0], f"run {len(numbers)}")

    text = _UUID.sub(number, json.dumps(_strip(run, doubted), sort_keys=True))
    return json.loads(text)


def _ignore(level: str, event: str, fields: Mapping[str, Any]) -> None:
    """Leave out what the driver says."""


def find_doubts(value: Any) -> set[str]:
    """Return the calls in a run, and in those of its members, whose outcome is not known."""
    if is_array(value):
        return {call for one in value for call in find_doubts(one)}
    if not is_object(value):
        return set()
    found = {call for one in value.values() for call in find_doubts(one)}
    if _UNKNOWN in str(value.get("result")) and "tool_call_id" in value:
        assert value["tool_name"] in _NEVER, "it may be called again"
        found.add(value["tool_call_id"])
    return found


def find_difference(one: Any, other: Any, path: str = "") -> str:
    """Return where two values differ first; nothing where they do not."""
    if one == other:
        return ""
    if is_object(one) and is_object(other) and one.keys() == other.keys():
        return next(
            find_difference(one[n], other[n], f"{path}.{n}") for n in one if one[n] != other[n]
        )
    if is_array(one) and is_array(other) and len(one) == len(other):
        pairs = enumerate(zip(one, other, strict=True))
        return next(find_difference(a, b, f"{path}[{n}]") for n, (a, b) in pairs if a != b)
    return f"{path}: {one!r}, not {other!r}"


def _strip(value: Any, doubted: frozenset[str]) -> Any:
    if is_array(value):
        return [_strip(one, doubted) for one in value]
    if not is_object(value):
        return value
    kept = {name: _strip(one, doubted) for name, one in value.items() if name not in _TIMES}
    if "input_tokens" in (value.get("metrics") or ()):
        kept["tokens"] = value["metrics"]["total_tokens"]
    if (called := value.get("tool_call_id")) is None:
        return kept
    text = str(value.get("result", value.get("content")))
    if called in doubted:
        kept = {name: one for name, one in kept.items() if name not in _OF_DOUBT}
    if _UNKNOWN in text or text == BY_HAND:
        kept |= {"tool_call_error": False}
        for name in ("result", "content"):
            if name in kept:
                kept[name] = f"{value['tool_name']} {value['tool_args']['what']}"
    return kept
