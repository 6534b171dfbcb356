"""The decision of the product against one written down apart from it, cell by cell.

Every cell is one request with a real token through the whole door of a platform, over a real
SQLite; each transaction is rolled back, so that no cell knows of another.  The same modules run
under the purity watch in their own tests; these many cells run without it.
"""

from __future__ import annotations

import json
import random
import sqlite3
import time
from collections import Counter
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from itertools import combinations, product
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote

import pytest
from attrs import define, evolve, field, frozen
from cryptography.hazmat.primitives.asymmetric import ed25519
from hypothesis import given, settings
from hypothesis import strategies as st

from legation import Channel, Database, Platform
from legation.access.decide import Allow, AllowOnly, Deny, Principal, decide
from legation.access.scopes import Scoped
from legation.api.route import Route
from legation.api.routes import ROUTES
from legation.effects import (
    Concurrently,
    Effect,
    HoldName,
    Interruptible,
    Log,
    NameHeld,
    Now,
    Program,
    RandomBytes,
    ReadBody,
    ThisNode,
    Transact,
)
from legation.http.messages import Answer, Headers, Request, Response, Streamed
from legation.shares.limits import PlatformLimits
from legation.store.failures import StatementFailed, StoreFailure
from legation.store.units import Dialect, Undo, Unit
from legation_testing import NEW_YEAR_2026, Client

from ...access_oracle import (
    ADMIN,
    ID,
    OPERATIONS,
    PUBLIC,
    SEVERAL,
    Asker,
    Question,
    owner_of_a_run,
    owner_of_a_session,
    verdict,
    visible_ids,
)
from ...callers import CHAT, Issuer, demo
from ...statements import one_by_one

pytestmark = pytest.mark.enumeration

ISSUER: Final = Issuer(ed25519.Ed25519PrivateKey.generate())
ALPHABET: Final = (
    "agents:read",
    "agents:run",
    "agents:write",
    "agents:alpha:read",
    "agents:alpha:run",
    "agents:beta:read",
    "agents:beta:run",
    "agents:ghost:run",
    "agents:*:read",
    "agents:*:run",
    "teams:read",
    "teams:run",
    "teams:crew:read",
    "teams:crew:run",
    "teams:alpha:read",
    "teams:*:run",
    "sessions:read",
    "sessions:write",
    "sessions:delete",
    "sessions:*:read",
    "sessions:s-ada:read",
    "databases:read",
    "databases:main:read",
    "databases:*:read",
    "databases:migrate",
    "databases:main:migrate",
    "databases:all:migrate",
    "databases:*:migrate",
    "config:read",
    "config:write",
    "system:read",
    "channels:read",
    "channels:write",
    "channels:chat:read",
    "audit:read",
    "users:read",
    "users:erase",
    "memories:read",
    "traces:write",
    ADMIN,
    "agent_os:admin",
    # What looks like a scope and is none.
    "agents::read",
    "agents::run",
    "agents:*",
    "agents:*:*",
    "*",
    "*:*",
    "*:read",
    "*:*:run",
    "AGENTS:READ",
    "agents:READ",
    "agents:ALPHA:run",
    "agents:read ",
    " agents:read",
    "agents:read agents:run",
    "agents:read,agents:run",
    "agents:alpha:x:run",
    "agents:alpha:beta:read",
    "agents:a:b:read",
    "agents:%61lpha:run",
    "agents:alpha%2F:run",
    "agents:..:read",
    "\uff41gents:read",
    "agents",
    "agents:",
    ":read",
    ":",
    "",
    "platform:admin:",
    "platform:*",
    "admin",
)
TWO: Final = (Database("main", "sqlite://"), Database("second", "sqlite://"))
UNRATED: Final = PlatformLimits(requests_per_second=0)
DESK: Final = Channel(
    id="desk",
    kind="slack",
    agent="beta",
    signing_secret_env="CHAT_APP_SECRET",
    bot_token_env="CHAT_ACCESS_TOKEN",
)
SERVED: Final = frozenset((route.method, route.template) for route in ROUTES)
METHODS: Final = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "TRACE", "BREW")
BODIES: Final[Mapping[str, tuple[bytes, bytes]]] = {
    "/agents/{agent_id}/runs": (
        b"application/x-www-form-urlencoded",
        b"message=hi&background=true&session_id=s-new",
    ),
    "/teams/{team_id}/runs": (
        b"application/x-www-form-urlencoded",
        b"message=hi&background=true&session_id=s-new",
    ),
    "/sessions": (b"application/json", b'{"session_ids": ["s-new"], "session_types": ["agent"]}'),
    "/sessions/{session_id}": (b"application/json", b'{"session_name": "new"}'),
    "/sessions/{session_id}/rename": (b"application/json", b'{"session_name": "new"}'),
    "/access/explain": (b"application/json", b'{"method": "GET", "path": "/agents"}'),
    "/approvals/{approval_id}/resolve": (b"application/json", b'{"status": "approved"}'),
    "/channels/{channel}/discard": (b"application/json", b'{"all": true}'),
    "/channels/{channel}/test": (b"application/json", b'{"recipient": "49"}'),
    "/channels/{channel}/send": (b"application/json", b'{"recipient": "group", "text": "hi"}'),
    "/me/explain": (b"application/json", b'{"method": "GET", "path": "/agents"}'),
}
QUERIES: Final[Mapping[str, str]] = {
    "/agents/{agent_id}/runs": "?session_id=s-ada",
    "/teams/{team_id}/runs": "?session_id=s-ada-crew",
    "/databases/{db_id}/migrate": "?dry_run=true",
    "/databases/all/migrate": "?dry_run=true",
    "/users/{user_id}": "?dry_run=true",
}


@pytest.fixture(autouse=True)
def hermetic() -> None:
    """Take the place of the watch, under which the many cells would take minutes."""


# --- a world in which nothing lasts -------------------------------------------------------------


@define(eq=False)
class Rehearsal:
    """Answers requests on prepared databases; whatever a transaction writes is rolled back."""

    databases: Mapping[str, sqlite3.Connection]
    logged: Log | None = None

    def answer(self, platform: Platform, request: Request, body: bytes = b"") -> Answer:
        answer: Answer = self.run(platform.answer(request), body)
        return answer

    def run(self, program: Program[Any], body: bytes = b"") -> Any:
        reply: Any = None
        while True:
            try:
                failed = isinstance(reply, StoreFailure)
                effect = program.throw(reply) if failed else program.send(reply)
            except StopIteration as stop:
                return stop.value
            reply = self._reply(effect, body)

    def _reply(self, effect: Effect, body: bytes) -> Any:
        match effect:
            case Now():
                return NEW_YEAR_2026
            case RandomBytes(size):
                return bytes(size)
            case ThisNode():
                return "rehearsal"
            case HoldName():
                return NameHeld()
            case ReadBody():
                return body
            case Transact(database, unit):
                return self._rehearse(self.databases[database], unit)
            case Interruptible(program=program):
                return self._within(program, body)
            case Concurrently(programs=programs):
                return tuple(self.run(program, body) for program in programs)
            case Log():
                self.logged = effect
                return None
            case _:
                return None

    def _within(self, program: Program[Any], body: bytes) -> Any:
        try:
            return self.run(program, body)
        except StoreFailure as failure:
            return failure

    def _rehearse(self, connection: sqlite3.Connection, unit: Unit[Any]) -> Any:
        connection.execute("begin")
        try:
            statements = one_by_one(unit.statements(Dialect.SQLITE))
            rows: Any = None
            while True:
                try:
                    statement = statements.send(rows)
                except StopIteration as stop:
                    value: Any = stop.value
                    return value.result if isinstance(value, Undo) else value  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]
                text = statement.text(Dialect.SQLITE)
                rows = connection.execute(text, dict(statement.parameters)).fetchall()
        except sqlite3.Error as error:
            return StatementFailed(str(error))
        finally:
            self._before_rollback(connection, unit)
            connection.execute("rollback")

    def _before_rollback(self, connection: sqlite3.Connection, unit: Unit[Any]) -> None:
        """Look at what the transaction wrote, where that is asked for."""


@frozen
class Place:
    """A request's path, and what stands behind the ids in it."""

    route: Route
    ids: Mapping[str, str]
    owners: Mapping[str, str | None]
    hosted: bool
    sessions: Mapping[str, str]

    @property
    def target(self) -> str:
        path = self.route.template
        for name, value in self.ids.items():
            path = path.replace("{" + name + "}", value)
        query = "?db_id=main" if path.startswith("/sessions") else ""
        return path + QUERIES.get(self.route.template, query)


@define(eq=False)
class World:
    platform: Platform
    rehearsal: Rehearsal
    places: list[Place] = field(factory=list[Place])


def prepared(folder: Path) -> dict[str, str]:
    """Let ada and eve run alpha and the crew for real; return the ids of their runs."""
    with Client(demo(None, databases=TWO), folder=folder) as client:
        runs: dict[str, str] = {}
        for user in ("ada", "eve"):
            for kind, name, session in (
                ("agents", "alpha", f"s-{user}"),
                ("teams", "crew", f"s-{user}-crew"),
            ):
                form = {"message": "hi", "stream": False, "session_id": session, "user_id": user}
                told = client.post(f"/{kind}/{name}/runs", form=form).expect_success().json()
                runs[session] = told["run_id"]
        return runs


HOSTED: Final[Mapping[str, tuple[tuple[str, bool], ...]]] = {
    "agent_id": (("alpha", True), ("beta", True), ("ghost", False), ("a%3Ab", False)),
    "team_id": (("crew", True), ("alpha", False)),
    "db_id": (("main", True), ("second", True), ("ghost", False)),
    "channel": (("chat", True), ("desk", True), ("ghost", False)),
    "message_id": (("1", False),),
    "message_index": (("1", True),),
    "reply_id": (("1", False),),
    "approval_id": (("no-such.1", False),),
    "user_id": (("ada", True), ("ada%7Cx", True)),
    "digest": (("0", False),),
    "part": (("ghost.js", False),),
    "name": (("ghost.css", False),),
}

PARAMETER: Final = {
    "agents": "agent_id",
    "teams": "team_id",
    "databases": "db_id",
    "channels": "channel",
}


def places(runs: Mapping[str, str]) -> Iterator[Place]:
    for route in ROUTES:
        names = [part[1:-1] for part in route.template.split("/") if part.startswith("{")]
        suffix = "-crew" if "team_id" in names else ""
        owned = [name for name in names if name in ("session_id", "run_id")]
        first = [name for name in names if name not in owned]
        for named, there in HOSTED[first[0]] if first else [("", True)]:
            # Buttons are pressed in Slack alone.
            hosted = there and not (route.template.endswith("/interactions") and named == "chat")
            ids = {first[0]: named} if first else {}
            ids |= {name: HOSTED[name][0][0] for name in first[1:]}
            found = hosted and all(HOSTED[name][0][1] for name in first[1:])
            for owner in ("ada", "eve", None) if owned else (None,):
                session = f"s-{owner}{suffix}"
                own = {"session_id": session, "run_id": runs.get(session, "no-such-run")}
                # A run of alpha is no run of another agent.
                theirs = named in ("alpha", "crew", "")
                owners = dict.fromkeys(owned, owner if theirs else None)
                sessions = dict.fromkeys(owned, session)
                full = ids | {name: own[name] for name in owned}
                yield Place(route, full, owners, found, sessions)


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Generator[World]:
    folder = tmp_path_factory.mktemp("oracle")
    runs = prepared(folder)
    paths = {name: folder / f"{name}.db" for name in ("main", "second")}
    opened = {name: sqlite3.connect(path, isolation_level=None) for name, path in paths.items()}
    platform = demo(ISSUER, databases=TWO, limits=UNRATED, channels=(CHAT, DESK))
    made = World(platform, Rehearsal(opened), list(places(runs)))
    made.rehearsal.run(made.platform.startup())
    yield made
    for connection in opened.values():
        connection.close()


def bearer(scopes: Iterable[str], subject: str | None, session: str | None = None) -> Headers:
    token = ISSUER.token(*scopes, sub=subject, session_id=session, exp=None)
    return ((b"host", b"legation.test"), (b"authorization", b"Bearer " + token.encode()))


def told(answer: Answer) -> str:
    """Return what `answer` says, in the words of the oracle."""
    names = dict(answer.headers)
    if answer.status == 401:
        assert names[b"www-authenticate"].startswith(b"Bearer")
        return "401"
    if answer.status == 403:
        challenge = names.get(b"www-authenticate", b"")
        return "403" if b'error="insufficient_scope"' in challenge else "signature"
    if answer.status in (404, 405):
        return str(answer.status)
    return "answered"


def listed(answer: Answer) -> frozenset[str]:
    assert isinstance(answer, Response)
    return frozenset(item["id"] for item in json.loads(answer.body))


def _served(method: str, template: str) -> bool:
    """Tell whether an operation is served; the oracle knows those that will be, too."""
    return ("GET" if method == "HEAD" else method, template) in SERVED


def _no_method(template: str, scopes: frozenset[str] | None) -> str:
    return "401" if scopes is None and template not in PUBLIC else "405"


def compare(
    world: World,
    place: Place,
    method: str,
    headers: Headers,
    scopes: frozenset[str] | None,
    subject: str | None,
    session: str | None = None,
) -> str:
    """Ask the product and the oracle the same, and return what both say."""
    content_type, body = BODIES.get(place.route.template, (b"", b""))
    sent: Headers = ((b"content-type", content_type),) if body else ()
    request = Request(method, place.target, (*headers, *sent))
    answer = world.rehearsal.answer(world.platform, request, body)
    ids = {name: unquote(value) for name, value in place.ids.items()}
    template = place.route.template
    question = Question(
        method,
        template,
        scopes,
        subject,
        ids,
        place.owners,
        place.hosted,
        session,
        place.sessions,
        forged=scopes is None and bool(headers),
    )
    served = _served(method, template)
    expected = verdict(question) if served else _no_method(template, scopes)
    assert answer.status < 500, (method, place.target, scopes, world.rehearsal.logged)
    said = told(answer)
    where = (method, place.target, scopes, subject, session, place.owners)
    if expected == "listed" and method == "GET":
        operation = OPERATIONS[(method, place.route.template)]
        hosted = {name for name, there in HOSTED[PARAMETER[operation.resource]] if there}
        assert listed(answer) == visible_ids(operation, scopes or ()) & hosted, where
    assert said == ("answered" if expected == "listed" else expected), (expected, said, where)
    return expected


def subsets(size: int) -> Iterator[frozenset[str]]:
    for length in range(size + 1):
        for chosen in combinations(ALPHABET, length):
            yield frozenset(chosen)


# --- the comparison -----------------------------------------------------------------------------


def test_every_route_that_is_served_stands_in_the_oracle() -> None:
    assert set(OPERATIONS) >= SERVED, f"unknown to the oracle: {sorted(SERVED - set(OPERATIONS))}"


def test_every_pair_of_scopes_on_every_route(world: World, figures: Callable[[str], None]) -> None:
    started = time.monotonic()
    seen: Counter[str] = Counter()
    for scopes in subsets(2):
        headers = bearer(sorted(scopes), "ada")
        for place in world.places:
            seen[compare(world, place, place.route.method, headers, scopes, "ada")] += 1

    assert sum(seen.values()) == len(world.places) * len(list(subsets(2)))
    assert min(seen[kind] for kind in ("answered", "listed", "403", "404", "signature")) > 100
    figures(
        f"access oracle, sets of up to 2 of {len(ALPHABET)} scopes on {len(world.places)} places"
        f" of {len(ROUTES)} routes, each through the whole door with a real token and SQLite:"
        f" {sum(seen.values()):,} cells in {time.monotonic() - started:.0f} s, all as the oracle"
        f" says ({', '.join(f'{kind} {count:,}' for kind, count in sorted(seen.items()))})"
    )


def test_every_scope_for_callers_with_another_subject_and_none(
    world: World, figures: Callable[[str], None]
) -> None:
    seen: Counter[str] = Counter()
    chance = random.Random(0)
    larger = [frozenset(chance.sample(ALPHABET, size)) for size in (3, 4, 5, 8, 20) * 8]
    with_admin = [frozenset({ADMIN, scope}) for scope in ALPHABET]
    for scopes in (*subsets(1), *larger, *with_admin):
        for subject in ("eve", None, "~nobody:x", "ADA", "root"):
            headers = bearer(sorted(scopes), subject)
            for place in world.places:
                seen[compare(world, place, place.route.method, headers, scopes, subject)] += 1

    figures(f"access oracle, other subjects, larger sets and admin: {sum(seen.values()):,} cells")


def test_every_scope_for_tokens_that_are_for_one_session(
    world: World, figures: Callable[[str], None]
) -> None:
    seen: Counter[str] = Counter()
    everything = frozenset(ALPHABET) - {ADMIN}
    for scopes in (*subsets(1), everything, everything | {ADMIN}):
        for subject in ("ada", "eve", None):
            for session in ("s-ada", "s-ada-crew", "s-eve", "S-ADA", "s-None", "%2e"):
                headers = bearer(sorted(scopes), subject, session)
                for place in world.places:
                    method = place.route.method
                    seen[compare(world, place, method, headers, scopes, subject, session)] += 1

    assert min(seen[kind] for kind in ("answered", "403", "404")) > 100
    figures(f"access oracle, tokens that are for one session: {sum(seen.values()):,} cells")


def test_no_list_holds_more_than_the_session_that_a_token_is_for(world: World) -> None:
    sessions = ("s-ada", "s-ada-crew", "s-eve", "s-eve-crew", "s-None")
    there = {name: name.split("-")[1] for name in sessions[:4]}
    for subject, scopes in (("ada", ()), ("eve", ()), (None, ()), ("root", (ADMIN,))):
        held = ("sessions:read", "agents:run", "teams:run", *scopes)
        for only in sessions:
            headers = bearer(held, subject, only)

            def read(target: str, headers: Headers = headers) -> Any:
                answer = world.rehearsal.answer(world.platform, Request("GET", target, headers))
                assert isinstance(answer, Response)
                return json.loads(answer.body)

            listed = [read(f"/sessions?type={kind}&db_id=main") for kind in ("agent", "team")]
            shown = {item["session_id"] for page in listed for item in page["data"]}
            visible = only in there and (bool(scopes) or there[only] == subject)
            assert shown == ({only} if visible else set())
            assert sum(page["meta"]["total_count"] for page in listed) == len(shown)
            for asked in sessions:
                for target in ("/agents/alpha", "/teams/crew"):
                    runs = read(f"{target}/runs?session_id={asked}")
                    assert {run["session_id"] for run in runs} <= shown


def test_every_method_on_every_path(world: World, figures: Callable[[str], None]) -> None:
    cells = 0
    tokens: tuple[tuple[frozenset[str] | None, Headers], ...] = (
        (None, ()),
        (None, ((b"authorization", b"Bearer a.b.c"),)),
        *(
            (frozenset(scopes), bearer(scopes, "ada"))
            for scopes in ((), (ADMIN,), ("agents:read",))
        ),
    )
    for place in world.places:
        for method in METHODS:
            for scopes, headers in tokens:
                compare(world, place, method, headers, scopes, "ada")
                cells += 1

    figures(f"access oracle, {len(METHODS)} methods, with and without a token: {cells:,} cells")


def test_the_scope_that_a_refusal_names_would_have_been_enough(world: World) -> None:
    for place in world.places:
        request = Request(place.route.method, place.target, bearer((), "ada"))
        answer = world.rehearsal.answer(world.platform, request)
        if told(answer) == "403":
            challenge = dict(answer.headers)[b"www-authenticate"].decode()
            scope = challenge.partition('scope="')[2].rstrip('"')
            method, headers = place.route.method, bearer((scope,), "ada")
            assert compare(world, place, method, headers, frozenset({scope}), "ada") != "403"


def test_a_list_holds_just_what_the_single_reads_allow(world: World) -> None:
    lists = {"/agents": ("alpha", "beta"), "/teams": ("crew",), "/databases": ("main", "second")}
    for scopes in subsets(1):
        headers = bearer(sorted(scopes), "ada")
        for template, hosted in lists.items():
            answer = world.rehearsal.answer(world.platform, Request("GET", template, headers))
            shown = listed(answer) if answer.status == 200 else frozenset[str]()
            singles = [
                Request("GET", f"{template}/{name}{more}", headers)
                for name in hosted
                for more in ("", "/runs?session_id=x")
            ]
            read = {
                request.target.split("/")[2]
                for request in singles
                if world.rehearsal.answer(world.platform, request).status == 200
            }
            assert shown == read, (scopes, template)


# --- one id of several owners ---------------------------------------------------------------------

OWNERS: Final = ("", "ada", "eve", "root")
NAMED: Final = (None, "ada", "eve", "root", "ghost")
SETS: Final = tuple(chosen for size in range(1, 5) for chosen in combinations(OWNERS, size))
EVERYTHING: Final = tuple(sorted(scope for scope in ALPHABET if scope != ADMIN))
ASKERS: Final[tuple[tuple[Asker, tuple[str, ...] | None], ...]] = (
    *((Asker(sub), EVERYTHING) for sub in ("ada", "eve", None)),
    *((Asker(sub, sees_all=True), (ADMIN,)) for sub in ("ada", "root", "boss", None)),
    (Asker(None, sees_all=True, unguarded=True), None),
)
JSON: Final = b"application/json"
FORM: Final = b"application/x-www-form-urlencoded"
CONTENTS: Final = (
    "select owner, session_id, kind, component_id, name, state, runs, updated_us from sessions",
    "select owner, run_id, session_id, status, input, output, cancel_us from runs",
    "select r.owner, e.run_id, e.seq, e.data from events e join runs r on r.run_id = e.run_id",
)


def contents(connection: sqlite3.Connection) -> dict[str, int]:
    """Return what each owner has, as a number that is another when it changes."""
    found: dict[str, list[Any]] = {}
    for statement in CONTENTS:
        for owner, *columns in connection.execute(f"{statement} order by 1, 2, 3"):
            found.setdefault(owner, []).append(tuple(columns))
    return {owner: hash(tuple(rows)) for owner, rows in found.items()}


@define(eq=False)
class Watching(Rehearsal):
    """Notes whose rows were changed before they are rolled back."""

    before: dict[str, int] = field(factory=dict[str, int])
    changed: set[str] = field(factory=set[str])

    def _before_rollback(self, connection: sqlite3.Connection, unit: Unit[Any]) -> None:
        if unit.writes and connection is self.databases["main"]:
            after = contents(connection)
            owners = self.before.keys() | after.keys()
            self.changed |= {o for o in owners if self.before.get(o) != after.get(o)}


@frozen
class Shared:
    """An id of a session that several owners have, and the run that each has in it."""

    owners: tuple[str, ...]
    kind: str
    runs: Mapping[str, str]

    @property
    def id(self) -> str:
        return f"{self.kind}-" + "-".join(owner or "nobody" for owner in self.owners)

    @property
    def path(self) -> str:
        return {"agent": "/agents/alpha", "team": "/teams/crew"}[self.kind]


def shared(folder: Path) -> list[Shared]:
    """Let every set of owners have a session of one id, of each kind."""
    made: list[Shared] = []
    with Client(demo(None, databases=TWO), folder=folder) as client:
        for owners in SETS:
            for kind in ("agent", "team"):
                session = Shared(owners, kind, {})
                runs: dict[str, str] = {}
                for owner in owners:  # nobody's comes first, while nobody else has the id
                    form = {
                        "message": f"#{owner}#",
                        "stream": False,
                        "session_id": session.id,
                        **({"user_id": owner} if owner else {}),
                    }
                    answer = client.post(f"{session.path}/runs", form=form).expect_success()
                    assert answer.json()["user_id"] == owner
                    runs[owner] = answer.json()["run_id"]
                made.append(evolve(session, runs=runs))
    return made


@frozen
class Cell:
    """One request about a session that several have, and whose data it may touch.

    Attributes:
        meant: The owner that the oracle names; None: none is there for who asks.
        missing: The status where none is.
        reads: The answer holds what that owner has.
        changes: Whether that owner's rows, and no others, are changed; None: at most those.
    """

    method: str
    target: str
    meant: str | None
    missing: int = 404
    reads: bool = False
    changes: bool | None = False
    content: tuple[bytes, bytes] = (b"", b"")


def cells_of(one: Shared, asker: Asker, named: str | None) -> Iterator[Cell]:
    """Yield every request that names the session."""
    meant = owner_of_a_session(asker, one.owners, named)
    user = "" if named is None else f"&user_id={named}"
    path, more = f"/sessions/{one.id}", f"?db_id=main{user}"
    rename = (JSON, b'{"session_name": "new"}')
    bulk = {"session_ids": [one.id, one.id], "session_types": [one.kind] * 2}
    yield Cell("GET", path + more, meant, reads=True)
    yield Cell("GET", f"{path}/runs{more}", meant, reads=True)
    yield Cell("PATCH", path + more, meant, reads=True, changes=True, content=rename)
    yield Cell("POST", f"{path}/rename{more}", meant, reads=True, changes=True, content=rename)
    yield Cell("DELETE", path + more, meant, 204, changes=True)
    body = json.dumps(bulk).encode()
    yield Cell("DELETE", f"/sessions{more}", meant, 204, changes=True, content=(JSON, body))
    listing = f"{one.path}/runs?session_id={one.id}{user}"
    yield Cell("GET", listing, meant, 200, reads=True)
    into = owner_of_a_run(asker, one.owners, named)
    form = f"message=hi&background=true&session_id={one.id}{user}".encode()
    started = "~nobody" if into is None else into
    yield Cell("POST", f"{one.path}/runs", started, changes=True, content=(FORM, form))
    for owner, run_id in one.runs.items():
        seen = owner if asker.sees_all or asker.subject == owner else None
        in_it = meant if meant in (owner, SEVERAL) else None
        yield Cell("GET", f"{path}/runs/{run_id}{more}", in_it, reads=True)
        run = f"{one.path}/runs/{run_id}"
        yield Cell("GET", f"{run}?session_id={one.id}{user}", seen, reads=True)
        form = f"session_id={one.id}{user}".encode()
        for action in ("cancel", "continue", "resume"):
            yield Cell("POST", f"{run}/{action}", seen, changes=None, content=(FORM, form))


def held(watching: Watching, platform: Platform, cell: Cell, headers: Headers) -> None:
    """Hold the answer to one cell, and what it changed, against the oracle."""
    content_type, body = cell.content
    sent: Headers = ((b"content-type", content_type),) if body else ()
    watching.changed.clear()
    request = Request(cell.method, cell.target, (*headers, *sent))
    answer = watching.answer(platform, request, body)
    where = (cell, answer.status, watching.changed, watching.logged)
    text = answer.body if isinstance(answer, Response) else b""
    shown = {owner for owner in OWNERS if f"#{owner}#".encode() in text}
    nobodys = {owner for owner in watching.changed if owner.startswith("~nobody:")}
    changed: set[str] = watching.changed - nobodys | ({"~nobody"} if nobodys else set())
    if cell.meant in (None, SEVERAL):
        assert answer.status == (409 if cell.meant else cell.missing), where
        assert (shown, changed) == (set(), set()), where
        return
    assert answer.status < 300 or (cell.changes is None and answer.status == 409), where
    assert shown == ({cell.meant} if cell.reads else set()), where
    assert changed == {cell.meant} if cell.changes else changed <= {cell.meant}, where


def test_no_data_move_between_owners_of_one_session_id(
    tmp_path: Path, figures: Callable[[str], None]
) -> None:
    sessions = shared(tmp_path)
    opened = {
        name: sqlite3.connect(tmp_path / f"{name}.db", isolation_level=None)
        for name in ("main", "second")
    }
    watching = Watching(opened, before=contents(opened["main"]))
    more: dict[str, Any] = {"databases": TWO, "limits": UNRATED}
    guarded, unguarded = demo(ISSUER, **more), demo(None, **more)
    for platform in (guarded, unguarded):
        watching.run(platform.startup())
    counted = 0
    for asker, scopes in ASKERS:
        platform = unguarded if scopes is None else guarded
        headers = () if scopes is None else bearer(scopes, asker.subject)
        for one, named in product(sessions, NAMED):
            for cell in cells_of(one, asker, named):
                held(watching, platform, cell, headers)
                counted += 1
    for connection in opened.values():
        connection.close()

    figures(
        f"access oracle, one session id of up to {len(OWNERS)} owners: {counted:,} cells, in 0 of"
        " them data move between owners"
    )


# --- properties of the decision -----------------------------------------------------------------

PIECES: Final = st.sampled_from(
    ["agents", "teams", "databases", "read", "run", "migrate", "alpha", "beta", "*", "", "admin"]
)
SCOPES: Final = st.lists(PIECES, min_size=1, max_size=4).map(":".join) | st.sampled_from(ALPHABET)
SCOPE_SETS: Final = st.frozensets(SCOPES, max_size=6)
NEEDS: Final = st.sampled_from([route.need for route in ROUTES])
IDS: Final = st.none() | st.sampled_from(["alpha", "beta", "main", "*", "", "a:b"]) | st.text()


def allowed(need: Any, scopes: frozenset[str], named: str | None, admin: str = "") -> Any:
    return decide(need, Principal("ada", scopes, admin_scope=admin), named)


def as_rank(decision: Any) -> tuple[int, frozenset[str]]:
    match decision:
        case Deny():
            return (0, frozenset())
        case AllowOnly(ids=ids):
            return (1, ids)
        case _:
            return (2, frozenset())


@given(NEEDS, SCOPE_SETS, SCOPES, IDS)
def test_another_scope_never_takes_access_away(
    need: Any, scopes: frozenset[str], more: str, named: str | None
) -> None:
    before = as_rank(allowed(need, scopes, named))
    after = as_rank(allowed(need, scopes | {more}, named))

    assert after[0] >= before[0]
    assert after[0] == 2 or after[1] >= before[1]


@given(NEEDS, SCOPE_SETS, IDS)
def test_an_administrator_may_do_everything(
    need: Any, scopes: frozenset[str], named: str | None
) -> None:
    assert isinstance(allowed(need, scopes, named, admin="platform:admin"), Allow)


@given(NEEDS, SCOPE_SETS, IDS)
def test_a_scope_on_one_id_says_nothing_about_another(
    need: Any, scopes: frozenset[str], named: str | None
) -> None:
    if not isinstance(need, Scoped):
        return
    on_alpha = {f"{need.resource}:alpha:{action}" for action in (*need.actions, "other")}
    if named != "alpha" and not need.listing:
        assert allowed(need, scopes | on_alpha, named) == allowed(need, scopes - on_alpha, named)


@given(NEEDS, SCOPE_SETS, IDS)
def test_a_list_never_holds_an_id_that_no_scope_names(
    need: Any, scopes: frozenset[str], named: str | None
) -> None:
    decision = allowed(need, scopes, named)
    if isinstance(decision, AllowOnly):
        assert decision.ids
        assert all(any(f":{name}:" in scope for scope in scopes) for name in decision.ids)
        assert all(ID.fullmatch(name) for name in decision.ids)


# --- what cannot change a decision --------------------------------------------------------------

PROBED: Final = ("/agents/alpha", "/sessions/s-eve?db_id=main", "/databases/main", "/me", "/agents")
FIELDS: Final = (
    (b"host", b"legation.test"),
    (b"x-http-method-override", b"OPTIONS"),
    (b"x-http-method", b"GET"),
    (b"x-method-override", b"HEAD"),
    (b"x-original-url", b"/health"),
    (b"x-rewrite-url", b"/health"),
    (b"x-forwarded-path", b"/health"),
    (b"x-forwarded-prefix", b"/health"),
    (b"x-forwarded-host", b"health"),
    (b"x-forwarded-for", b"127.0.0.1"),
    (b"x-real-ip", b"127.0.0.1"),
    (b"forwarded", b"for=127.0.0.1;host=health"),
    (b"x-user-id", b"eve"),
    (b"x-scopes", b"platform:admin"),
    (b"cookie", b"access_token=platform:admin"),
    (b"upgrade", b"websocket"),
    (b"referer", b"http://localhost:3000/health"),
    (b"origin", b"http://localhost:3000"),
)
HOSTS: Final = (
    b"LEGATION.TEST",
    b"x/health?",
    b"x/health#",
    b"health",
    b"[::1]:80",
    b"localhost/docs",
    b"",
)


def reading(world: World, scopes: tuple[str, ...], target: str, *more: tuple[bytes, bytes]) -> Any:
    answer = world.rehearsal.answer(
        world.platform, Request("GET", target, (*bearer(scopes, "ada")[1:], *more))
    )
    return (answer.status, answer.body if isinstance(answer, Response) else b"")


@pytest.mark.parametrize("target", PROBED)
@pytest.mark.parametrize("scopes", [(), ("agents:read",), ("sessions:read",)])
def test_no_header_but_the_token_changes_a_decision(
    world: World, target: str, scopes: tuple[str, ...]
) -> None:
    plain = reading(world, scopes, target)

    for one in FIELDS:
        assert reading(world, scopes, target, one) == plain
    for host in HOSTS:
        assert reading(world, scopes, target, (b"host", host)) == plain
    assert reading(world, scopes, target, *FIELDS) == plain
    assert reading(world, scopes, target, *reversed(FIELDS)) == plain


@given(st.permutations(FIELDS))
@settings(max_examples=30)
def test_the_order_of_headers_does_not_matter(
    world: World, fields: list[tuple[bytes, bytes]]
) -> None:
    headers = (*bearer(("agents:alpha:read",), "ada"), *fields[:9])
    request = Request("GET", "/agents/alpha", headers)
    turned = evolve(request, headers=tuple(reversed(headers)))

    first = world.rehearsal.answer(world.platform, request)
    assert first == world.rehearsal.answer(world.platform, turned) or b"vary" in dict(first.headers)
    assert first.status == 200


@given(
    st.permutations(
        ["db_id=main", "page=1", "limit=2", "user_id=eve", "sort_order=asc", "type=agent"]
    )
)
@settings(max_examples=30)
def test_neither_does_that_of_the_query_nor_the_user_it_names(
    world: World, parts: list[str]
) -> None:
    status, body = reading(world, ("sessions:read",), "/sessions?" + "&".join(parts))

    assert status == 200
    assert [item["session_id"] for item in json.loads(body)["data"]] == ["s-ada"]


# What a path may look like to somebody else, and is not here: 404 with a token, 401 without.
TRICKS: Final = (
    "//agents/alpha",
    "/agents//alpha",
    "/agents/alpha//",
    "//",
    "/./agents/alpha",
    "/agents/./alpha",
    "/health/../agents/alpha",
    "/health/%2e%2e/agents/alpha",
    "/health/%2E%2e/agents/alpha",
    "/health/..%2fagents/alpha",
    "/%2e/agents/alpha",
    "/agents%2Falpha",
    "/agents%2falpha",
    "/agents/%2falpha",
    "/agents/alpha%2f",
    "/agents/alpha%2f..",
    "/agents\\alpha",
    "/agents%5calpha",
    "/agents;x/alpha",
    "/agents/alpha;x",
    "/agents/alpha;/health",
    "/agents/alpha%3bx",
    "/agents/alpha%00",
    "/agents/alpha%0a",
    "/agents/alpha%0d%0a",
    "/agents/alpha%09",
    "/agents/alpha%7f",
    "/agents/alpha%c2%85",
    "/agents/alpha%",
    "/agents/alpha%4",
    "/agents/alpha%zz",
    "/agents/alpha%ff",
    "/agents/alpha%c0%ae",
    "/AGENTS/alpha",
    "/Agents/alpha",
    "/agents/ALPHA",
    "/agents/alpha.json",
    "/agents/alpha ",
    "/agents/alpha%20",
    "/agents/%61lpha%2520",
    "/agents/alpha/health",
    "/health/agents/alpha",
    "/agents/alpha#/health",
    "/agents/al%C4%B1pha",
    "/agents/alpha/.",
    "/agents/alpha/..",
    "/agents/alpha/%2e%2e/beta",
    "agents/alpha",
    "http://legation.test/agents/alpha",
    "*",
    "",
)
# And what is the same path.
TWINS: Final = ("/agents/alpha/", "/agents/alpha?", "/agents/alpha/?x=1", "/agents/%61lpha")


@pytest.mark.parametrize("target", TRICKS)
def test_no_spelling_of_a_path_leads_around_the_decision(world: World, target: str) -> None:
    def status(*headers: tuple[bytes, bytes]) -> int:
        return world.rehearsal.answer(world.platform, Request("GET", target, headers)).status

    assert status() == 401
    assert status(*bearer(("agents:beta:read",), "ada")) in (403, 404)
    assert status(*bearer((ADMIN,), "ada")) == 404


@pytest.mark.parametrize("target", TWINS)
def test_one_trailing_slash_and_an_escape_are_the_same_path(world: World, target: str) -> None:
    assert reading(world, ("agents:alpha:read",), target)[0] == 200
    assert reading(world, ("agents:beta:read",), target)[0] == 403


@given(
    st.lists(st.sampled_from(["agents", "alpha", "health", "..", "%2e%2e", "", "%2f", ";", "docs"]))
)
def test_without_a_token_nothing_but_the_open_routes_answers(
    world: World, parts: list[str]
) -> None:
    target = "/" + "/".join(parts)
    answer = world.rehearsal.answer(world.platform, Request("GET", target))
    open_paths = {"/" + name for name in ("", "health", "info", "docs", "redoc", "openapi.json")}

    assert answer.status == 401 or target.removesuffix("/") in open_paths | {""}


@given(
    st.lists(st.binary(max_size=60) | st.binary(max_size=60).map(b"Bearer ".__add__), max_size=3)
)
@settings(max_examples=400)
def test_any_bytes_for_authorization_have_a_documented_answer(
    world: World, values: list[bytes]
) -> None:
    headers = tuple((b"authorization", value) for value in values)
    answer = world.rehearsal.answer(world.platform, Request("GET", "/agents/alpha", headers))

    assert answer.status == 401
    assert told(answer) == "401"


@given(st.data())
@settings(max_examples=400)
def test_nor_does_a_token_that_was_changed_at_one_place_open_anything(
    world: World, data: st.DataObject
) -> None:
    token = bytearray(GOOD)
    place = data.draw(st.integers(0, len(token) - 1))
    token[place] = data.draw(st.integers(0, 255).filter(lambda byte: byte != token[place]))
    headers = ((b"authorization", b"Bearer " + bytes(token)),)
    answer = world.rehearsal.answer(world.platform, Request("GET", "/agents/alpha", headers))

    assert answer.status == 401


GOOD: Final = ISSUER.token("agents:read").encode()


def test_no_streamed_answer_is_made_for_head(world: World) -> None:
    for place in world.places:
        headers = bearer((ADMIN,), "ada")
        answer = world.rehearsal.answer(world.platform, Request("HEAD", place.target, headers))
        assert not isinstance(answer, Streamed)
        assert answer.body == b""
