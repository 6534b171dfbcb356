"""The trail as a stream: exported whole or in part, verified elsewhere and here, cut in time."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, Final

import pytest
from attrs import evolve, frozen
from cryptography.hazmat.primitives.asymmetric import ed25519

from legation import Audit, AuditKey, Database, PlatformLimits
from legation.access.authenticator import open_authenticator
from legation.access.token_watch import TokenWatch, watch_token
from legation.api.handlers.audit_export import (
    Check,
    export_trail,
    verdict_json,
    verify_trails,
)
from legation.effects import Emit, Now, Program, Sleep, Transact
from legation.http.messages import Request
from legation.store.audit import AppendAudit, OldPlace, OldRows, ReadOldRows, ReadPages
from legation.store.audit_entries import PRUNED, Anchor, AuditEntry, OldRow, hash_row
from legation.store.audit_export import Exported, ExportVerdict, ExportVerifier
from legation.store.audit_heads import ReadHeads
from legation.store.audit_pages import Head, KeyRing, Page, SigningKey, seal_page
from legation.store.audit_parts import ChainPart, ReadParts
from legation.store.audit_verify import Broken, Intact, Verifier
from legation.store.failures import Unavailable
from legation.store.units import Unit
from legation_testing import Client
from legation_testing.exchange import BadResponse

from ....callers import ENVIRON, NOW, Issuer, demo

ISSUER: Final = Issuer(ed25519.Ed25519PrivateKey.generate())
DATABASES: Final = (Database("main", "sqlite://"), Database("second", "sqlite://"))
READER: Final = ISSUER.token("audit:read", sub="auditor")
ADA: Final = ISSUER.token("agents:alpha:run", "sessions:read", sub="ada")
SECRET: Final = "s9Xw3vQ7kLzB1nH5rT8yC2mF6jD4gP0a"
KEY: Final = SigningKey("2026", SECRET.encode())
RING: Final = KeyRing((KEY,))
ENTRY: Final = AuditEntry(5, "r", "ada", None, "op", "a/b", "allow", "", 200, "")


def client_of(databases: Any = DATABASES, **options: Any) -> Client:
    audit = Audit(keys=[AuditKey("2026", secret_env="AUDIT_KEY")])
    environ = {**ENVIRON, "AUDIT_KEY": SECRET}
    return Client(demo(ISSUER, databases=databases, audit=audit, environ=environ, **options))


@pytest.fixture
def client() -> Iterator[Client]:
    with client_of() as client:
        yield client


def ask(effect: Transact[Any]) -> Program[Any]:
    return (yield from effect)


def keep(client: Client, unit: Unit[Any], database: str = "main") -> None:
    client.simulation.run(ask(Transact(database, unit)))


def fill(client: Client, count: int = 5, database: str = "main", writer: str = "other") -> None:
    for number in range(count):
        entry = evolve(ENTRY, at_us=number * 10_000_000, request_id=f"r{number}")
        keep(client, AppendAudit(writer, (entry,), KEY), database)


def lines(client: Client, path: str, **query: Any) -> list[dict[str, Any]]:
    client.settle()
    answer = client.get(path, query=query, token=READER).expect_success()
    assert answer.header("content-type") == "application/x-ndjson"
    assert answer.text.endswith("\n")
    return [json.loads(line) for line in answer.text.splitlines()]


def exported(client: Client, **query: Any) -> bytes:
    client.settle()
    return client.get("/audit/export", query=query, token=READER).expect_success().body


def verify(content: bytes, keys: KeyRing = RING) -> ExportVerdict:
    verifier = ExportVerifier(keys=keys)
    for line in content.splitlines(keepends=True):
        if (wrong := verifier.take(line)) is not None:
            return wrong
    return verifier.end()


# --- The export ----------------------------------------------------------------------------------


def test_an_export_is_verified_with_nothing_but_the_key(client: Client) -> None:
    client.post("/agents/alpha/runs", form={"message": "hi", "stream": "false"}, token=ADA)
    client.get("/sessions?db_id=main", token=ADA)
    client.get("/databases", token=ADA)
    answer = exported(client, db_id="main")

    verdict = verify(answer)
    assert isinstance(verdict, Intact)
    assert verdict.proven
    assert (verdict.entries, verdict.signed) == (4, 1)
    assert b"other" not in exported(client, db_id="second")


def test_an_export_is_a_file_to_save(client: Client) -> None:
    answer = client.get("/audit/export?db_id=second", token=READER)

    assert answer.header("content-disposition") == 'attachment; filename="audit-second.ndjson"'
    first, last = lines(client, "/audit/export", db_id="second")
    assert (first["platform"], first["database"]) == ("legation", "second")
    assert first["at"] == "2026-01-01T00:00:00.000000Z"
    assert (last["kind"], last["rows"], last["key"]) == ("heads", 0, "2026")


def test_of_several_databases_one_is_named(client: Client) -> None:
    for query, said in (({}, "is needed; there are: main, second"), ({"db_id": "third"}, "names")):
        refused = client.get("/audit/export", query=query, token=READER)
        assert refused.status == 422
        assert said in refused.text
    with client_of(databases=DATABASES[:1]) as alone:
        assert alone.get("/audit/export", token=READER).status == 200


def test_a_part_has_the_pages_of_its_time(client: Client) -> None:
    fill(client)
    fill(client, 2, writer="early")
    part = exported(client, db_id="main", since=15, until="1970-01-01T00:00:40Z")

    verdict = verify(part)
    assert isinstance(verdict, Intact)
    assert verdict.proven
    assert [(one["writer"], one["last"]) for one in map(json.loads, part.splitlines()[1:-1])] == [
        ("signed/other", 3),
        ("signed/other", 4),
    ]


def test_whoever_may_not_read_the_trail_gets_none(client: Client) -> None:
    for path in ("/audit/export?db_id=main", "/audit/verify"):
        assert client.get(path, token=ADA).status == 403
        assert client.get(path).status == 401


def test_both_are_audited(client: Client) -> None:
    exported(client, db_id="main")
    lines(client, "/audit/verify")
    client.settle()
    listed = client.get("/audit?subject=auditor", token=READER).json()["data"]

    assert {row["operation"] for row in listed} >= {"export_audit", "verify_audit"}


def test_where_the_database_fails_the_client_sees_that_it_is_not_whole(client: Client) -> None:
    client.fail_at(ReadPages, Unavailable(), times=None)
    for path in ("/audit/export?db_id=main", "/audit/verify"):
        with pytest.raises(BadResponse, match="not whole"):
            client.get(path, token=READER)


def test_both_have_a_place_among_the_streams_of_their_caller() -> None:
    token = ISSUER.token("audit:read", "runs:read", sub="auditor")
    with client_of(limits=PlatformLimits(streams=1)) as client:
        first = client.begin("GET", "/runs/events", token=token)
        client.settle()
        for path in ("/audit/export?db_id=main", "/audit/verify"):
            assert client.get(path, token=token).status == 429
        first.disconnect()


# --- The verification ----------------------------------------------------------------------------


def test_a_verdict_comes_for_each_database(client: Client) -> None:
    fill(client)
    fill(client, 2, "second")
    found = lines(client, "/audit/verify")

    progress = [line for line in found if line["kind"] == "progress"]
    assert progress[0] == {"kind": "progress", "database": "main", "rows": 0}
    first, second = [line for line in found if line["kind"] == "verdict"]
    assert (first["database"], first["intact"], first["proven"]) == ("main", True, True)
    assert first["rows"] in (5, 6)  # that of the request itself may be there already
    assert (second["database"], second["rows"], second["signed"]) == ("second", 2, 1)
    assert second["heads"][0].startswith("signed/other:2:")


def test_an_edit_is_found(client: Client) -> None:
    forged = seal_page(Head("signed/other", 5, "0" * 64), (ENTRY,), KEY)
    fill(client)
    keep(client, _Insert(forged))
    (verdict,) = [line for line in lines(client, "/audit/verify", db_id="main") if "broken" in line]

    assert verdict["broken"] == {
        "writer": "signed/other",
        "seq": 6,
        "reason": "what is before it is another than when it was written",
    }
    assert (verdict["intact"], verdict["proven"]) == (False, False)


class _Insert(Unit[None]):
    """Put a page into the table, as whoever can write to the database does."""

    def __init__(self, page: Page) -> None:
        self.page = page

    def statements(self, dialect: Any) -> Any:
        from legation.store.audit import _insert

        yield _insert(dialect, self.page, None)


def test_heads_and_findings_are_given(client: Client) -> None:
    fill(client)
    (verdict,) = lines(client, "/audit/verify", db_id="main")[-1:]
    (head,) = [one for one in verdict["heads"] if one.startswith("signed/other:")]
    again = lines(client, "/audit/verify", db_id="main", head=head)[-1]
    assert again["proven"]
    other = f"{head[:-64]}{'f' * 64}"
    broken = lines(client, "/audit/verify", db_id="main", head=[head, other])[-1]
    assert broken["broken"]["reason"] == "it is another one than when the head was exported"


def test_a_chain_without_a_key_is_to_be_acknowledged(client: Client) -> None:
    keep(client, AppendAudit("old", (ENTRY,), None))
    found = lines(client, "/audit/verify", db_id="main")[-1]
    (finding,) = found["findings"]
    assert (found["proven"], finding["doubt"]) == (False, "no_key")
    assert found["chained"] == 1

    again = lines(client, "/audit/verify", db_id="main", acknowledge=finding["head"])[-1]
    assert (again["proven"], again["findings"]) == (True, [])


@pytest.mark.parametrize(
    ("query", "path"),
    [
        ({"db_id": "third"}, "query.db_id"),
        ({"head": "x"}, "query.head"),
        ({"head": f"w:1:{'f' * 64}"}, "query.db_id"),
        ({"acknowledge": "w:x:"}, "query.acknowledge"),
        ({"head": [f"w:{n}:{'f' * 64}" for n in range(101)]}, "query.head"),
    ],
    ids=["database", "head", "several", "acknowledge", "many"],
)
def test_a_bad_query_is_refused(client: Client, query: dict[str, Any], path: str) -> None:
    refused = client.get("/audit/verify", query=query, token=READER)

    assert refused.status == 422
    assert path in {error["path"] for error in refused.json()["errors"]}


# --- As programs ---------------------------------------------------------------------------------


def chain(writer: str, count: int, size: int = 1) -> list[Page]:
    end, pages = Head(f"signed/{writer}", 0, ""), list[Page]()
    for number in range(count):
        entries = tuple(evolve(ENTRY, request_id=f"{number}/{one}") for one in range(size))
        pages.append(seal_page(end, entries, KEY))
        end = pages[-1].head
    return pages


def old_rows(writer: str, *times: int) -> tuple[OldRow, ...]:
    rows, previous = list[OldRow](), ""
    for seq, at_us in enumerate(times, 1):
        entry = evolve(ENTRY, at_us=at_us)
        rows.append(OldRow(writer, seq, previous, hash_row(previous, writer, seq, entry), entry))
        previous = rows[-1].hash
    return tuple(rows)


@frozen
class Stored:
    """A database with a trail, which answers the units that read it."""

    pages: tuple[Page, ...] = ()
    rows: tuple[OldRow, ...] = ()

    def answer(self, unit: Any) -> Any:
        match unit:
            case ReadHeads():
                return ()
            case ReadOldRows():
                behind = [one for one in self.rows if (one.writer, one.seq) > place_of(unit)]
                some = tuple(behind[: unit.size])
                last = some[-1] if len(some) == unit.size else None
                return OldRows(some, None if last is None else OldPlace(0, last.writer, last.seq))
            case ReadPages():
                place = (unit.writer, unit.last)
                return tuple(p for p in self.pages if (p.writer, p.last) > place)[: unit.size]
            case ReadParts():
                writers = sorted({page.writer for page in self.pages})
                known = [name for name in writers if name > unit.after]
                return tuple(ChainPart(name, 1, 10**6) for name in known[: unit.size])
            case _:
                raise NotImplementedError(unit)


def place_of(unit: ReadOldRows) -> tuple[str, int]:
    return unit.place.writer, unit.place.seq


def drive(program: Program[Any], stored: Stored, step_us: int = 0) -> tuple[Any, list[Any]]:
    """Return what `program` returns, and its effects; each look at the clock takes `step_us`."""
    effects, now_us, answer = list[Any](), NOW * 1_000_000, None
    while True:
        try:
            effect: Any = program.send(answer)
        except StopIteration as stop:
            return stop.value, effects
        effects.append(effect)
        answer = None
        if isinstance(effect, Now):
            answer = now_us
            now_us += step_us
        elif hasattr(effect, "unit"):
            answer = stored.answer(effect.unit)


def content(effects: list[Any]) -> bytes:
    return b"".join(one.data for one in effects if isinstance(one, Emit))


def test_a_great_trail_is_exported_a_few_pages_at_a_time() -> None:
    pages = tuple(chain("n", 150, size=100))
    done, effects = drive(export_trail("front", "main", KEY), Stored(pages))

    assert done == Exported(15_000, 150, 1)
    assert isinstance(verify(content(effects)), Intact)
    assert max(len(one.data) for one in effects if isinstance(one, Emit)) <= 64 << 10
    between = [one for one in effects if not isinstance(one, Emit | Now)]
    sizes = [one.unit.size for one in between if hasattr(one, "unit")]
    assert sizes == [1, 1000, 64, 64, 64]
    assert sum(isinstance(one, Sleep) for one in between) >= 150 * 100 // 600


def test_rows_that_were_not_moved_come_first() -> None:
    rows = (*old_rows("a:1", *range(1500)), *old_rows("b", 1, 2))
    done, effects = drive(export_trail("front", "main", KEY), Stored(tuple(chain("n", 2)), rows))

    assert done == Exported(1504, 2, 3)
    verdict = verify(content(effects))
    assert isinstance(verdict, Intact)
    assert (verdict.entries, verdict.old_rows) == (1504, 1502)


def test_a_part_reads_chain_after_chain() -> None:
    pages = tuple(sorted((p for n in range(1003) for p in chain(f"{n:04}", 1)), key=str))
    rows = old_rows("a", 1, 9, 40)
    program = export_trail("front", "main", KEY, 5, 20)
    done, effects = drive(program, Stored(pages, rows))

    assert done == Exported(1004, 1003, 1004)
    verdict = verify(content(effects))
    assert isinstance(verdict, Intact)
    assert verdict.proven
    assert json.loads(content(effects).splitlines()[0])["until"] == "1970-01-01T00:00:00.000020Z"


def test_a_part_ends_where_its_last_page_does() -> None:
    @frozen
    class Short(Stored):
        def answer(self, unit: Any) -> Any:
            if isinstance(unit, ReadParts):
                return (ChainPart("signed/n", 2, 3),)
            return super().answer(unit)

    stored = Short((*chain("n", 5), *chain("o", 1)))
    for until in (None, 10):
        done, _ = drive(export_trail("front", "main", KEY, 1, until), stored)
        assert done == Exported(2, 2, 1)


def token_until(seconds: int) -> TokenWatch:
    """Return the watch of a token that ends so many seconds from now, with the leeway."""
    authenticator, _ = open_authenticator(
        ISSUER.authorization(), "legation", None, None, needed=True
    )
    token = ISSUER.token("audit:read", sub="auditor", exp=NOW + seconds - 10)
    header = ((b"authorization", f"Bearer {token}".encode()),)
    return watch_token(authenticator, Request("GET", "/", header), (NOW - 3000) * 1_000_000)


def test_the_end_of_the_token_ends_an_export() -> None:
    pages = tuple(chain("n", 150, size=100))
    program = export_trail("front", "main", KEY, watch=token_until(5))
    done, effects = drive(program, Stored(pages), step_us=1_000_000)

    assert done is None
    *some, last = content(effects).splitlines()
    assert 1 < len(some) < 150
    assert json.loads(last)["kind"] == "token_expired"
    assert set(json.loads(last)) == {"kind", "detail", "error_code"}
    assert not isinstance(verify(content(effects)), Intact)


def test_the_end_of_the_token_ends_an_export_in_every_part_of_it() -> None:
    parts: list[tuple[Stored, dict[str, int], int]] = [
        (Stored(rows=old_rows("a", 1, 2)), {}, 3_600_000_000),
        (Stored(tuple(chain("n", 2))), {}, 1_100_000_000),
        (Stored(tuple(chain("n", 2))), {"since_us": 1}, 1_100_000_000),
    ]
    for stored, part, late in parts:
        program = export_trail("front", "main", KEY, watch=token_until(2000), **part)
        done, effects = drive(program, stored, late)
        assert done is None
        assert json.loads(content(effects).splitlines()[-1])["kind"] == "token_expired"


def test_a_token_that_lasts_ends_nothing() -> None:
    program = export_trail("front", "main", KEY, watch=token_until(5))

    assert drive(program, Stored(tuple(chain("n", 2))))[0] == Exported(2, 2, 1)


def test_the_end_of_the_token_ends_a_verification() -> None:
    check = Check("main", Verifier(keys=RING), token_until(5))
    pages = tuple(chain("n", 150, size=100))
    done, effects = drive(verify_trails([check]), Stored(pages), step_us=500_000)

    assert done is None
    kinds = [json.loads(line)["kind"] for line in content(effects).splitlines()]
    assert kinds[-1] == "token_expired"
    assert {*kinds[:-1]} == {"progress"}


def test_progress_is_told_twice_a_second_at_most() -> None:
    pages = tuple(chain("n", 150, size=100))
    for step_us, least, most in ((0, 1, 1), (500_000, 20, 30), (-1, 20, 30)):
        check = Check("main", Verifier(keys=RING), None)
        done, effects = drive(verify_trails([check]), Stored(pages), step_us)
        told = [json.loads(line) for line in content(effects).splitlines()]
        assert done is True
        assert least <= len(told) - 1 <= most
        assert told[-1]["rows"] == 15_000
        assert [one["rows"] for one in told[:-1]] == sorted(one["rows"] for one in told[:-1])


def test_a_broken_trail_is_read_no_further() -> None:
    first, second, *others = chain("n", 150, size=100)
    stored = Stored((first, evolve(second, root="0" * 64), *others))
    done, effects = drive(verify_trails([Check("main", Verifier(keys=RING), None)]), stored)

    assert done is True
    assert sum(isinstance(one, Transact) for one in effects) == 2
    assert json.loads(content(effects).splitlines()[-1])["broken"]["seq"] == 200


# --- The verdict ---------------------------------------------------------------------------------


def test_a_verdict_says_what_was_pruned_and_by_whom() -> None:
    cut = Head("signed/gone", 4, "f" * 64)
    anchor = Anchor(cut.writer, cut.seq, cut.hash, 4)
    entry = evolve(ENTRY, operation=PRUNED, resource=anchor.resource, subject="local:root")
    pages = [seal_page(Head("signed/p", 0, ""), (entry,), KEY)]
    verifier = Verifier([cut], RING)
    assert verifier.take(pages) is None
    found = verdict_json("main", verifier.end())

    assert found["prunes"] == [
        {
            "at": "1970-01-01T00:00:00Z",
            "by": "local:root",
            "cut": str(cut),
            "rows": 4,
            "signed": True,
            "head": str(pages[0].head),
            "excuses": [str(cut)],
        }
    ]
    assert (found["pruned"], found["proven"], found["pages"], found["old_rows"]) == (4, True, 1, 0)
    assert verdict_json("main", Broken("w", 1, "why")) == {
        "database": "main",
        "intact": False,
        "proven": False,
        "broken": {"writer": "w", "seq": 1, "reason": "why"},
    }
