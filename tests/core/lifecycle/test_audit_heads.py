"""Heads on their way out: the new ones alone, to each place, again where that failed."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable
from typing import Any, Final

import pytest

from legation import Agent, Audit, Database, Platform
from legation.channels.signatures import Verified, standard_v1
from legation.effects import (
    CallFunction,
    Fetch,
    FetchReply,
    Log,
    Now,
    Raised,
    Returned,
    Sleep,
    ThisNode,
    TimedOut,
    Transact,
    Unreachable,
)
from legation.lifecycle.audit_heads import (
    FileWriter,
    HeadsToFile,
    HeadsToLog,
    HeadsToWebhook,
    SendHeads,
    heads_jobs,
)
from legation.store.audit_heads import ChainHead, ReadHeads
from legation.store.audit_pages import Head
from legation.store.failures import Unavailable
from legation_testing import Client, play

from ...two_databases import IN_MEMORY

HOUR: Final = 3_600_000_000
NOW: Final = 1_767_225_600_000_000  # 2026-01-01
KEY: Final = bytes(range(32))
HOOK: Final = base64.b64encode(KEY).decode()


def chain(writer: str, seq: int, at_us: int = NOW, digit: str = "a") -> ChainHead:
    return ChainHead(Head(writer, seq, digit * 64), at_us)


def context_of(**audit: Any) -> Any:
    platform = Platform(
        id="front",
        agents=[Agent("a")],
        databases=[Database("main", "sqlite://"), Database("second", "sqlite://")],
        audit=Audit(**audit),
        environ={"HOOK": HOOK},
    )
    return platform.context


CONTEXT: Final = context_of()


def job(place: Any = None, seconds: float = 60.0) -> SendHeads:
    return SendHeads("main", place or HeadsToLog(), seconds, CONTEXT)


def looked(*batches: Iterable[ChainHead], now_us: int = NOW, node: str = "n") -> list[Any]:
    """Return the script of a look: one answer for each batch, which are a thousand long."""
    script: list[Any] = [(ThisNode(), node), (Now(), now_us)]
    after = ""
    for batch in batches:
        found = tuple(batch)
        script.append((Transact("main", ReadHeads(after, 1000)), found))
        after = found[-1].head.writer if found else ""
    return script


def line(*heads: ChainHead) -> tuple[Log, None]:
    said = " ".join(str(one.head) for one in heads)
    return Log("info", "audit_heads", (("database", "main"), ("heads", said))), None


def failed(reason: str, target: str) -> tuple[Log, None]:
    fields = (("database", "main"), ("reason", reason), ("target", target))
    return Log("warning", "audit_heads_failed", fields), None


# --- which are new -------------------------------------------------------------------------------


def test_only_chains_that_moved_are_sent() -> None:
    made, a, b = job(), chain("chained/a", 1), chain("chained/b", 7)
    play(made.round(), [*looked([a, b]), line(a, b)])
    play(made.round(), looked([a, b]))
    moved = chain("chained/b", 8)
    play(made.round(), [*looked([a, moved]), line(moved)])
    new = chain("chained/c", 1, at_us=0)  # moved there from old rows
    play(made.round(), [*looked([a, moved, new]), line(new)])


def test_a_chain_that_was_written_anew_is_sent_again() -> None:
    made, before, after = job(), chain("c", 3), chain("c", 3, digit="b")
    play(made.round(), [*looked([before]), line(before)])
    play(made.round(), [*looked([after]), line(after)])
    shorter = chain("c", 2)
    play(made.round(), [*looked([shorter]), line(shorter)])


def test_a_process_that_begins_takes_rested_chains_for_sent_but_its_own() -> None:
    made = job()
    rested, fresh = chain("chained/old/1", 4, NOW - HOUR), chain("chained/x", 2, NOW - HOUR + 1)
    own, other = chain("signed/n/77", 9, NOW - HOUR), chain("signed/nn", 9, NOW - HOUR)
    play(made.round(), [*looked([rested, fresh, own, other]), line(fresh, own)])
    moved = chain("chained/old/1", 5, NOW - HOUR)
    play(made.round(), [*looked([moved, fresh, own, other]), line(moved)])


def test_a_process_that_crashed_leaves_its_heads_to_the_next_one() -> None:
    unsent = chain("signed/crashed", 12, NOW - 1)
    play(job().round(), [*looked([unsent], node="next"), line(unsent)])


def test_a_chain_that_was_pruned_is_forgotten() -> None:
    made, a, b = job(), chain("a", 1), chain("b", 1)
    play(made.round(), [*looked([a, b]), line(a, b)])
    play(made.round(), looked([a]))
    assert made.sent.last == {"a": a.head}
    play(made.round(), looked([]))
    assert made.sent.last == {}


def test_thousands_of_chains_are_looked_at_a_thousand_at_a_time() -> None:
    chains = [chain(f"c{number:04}", 1) for number in range(2500)]
    made = job()
    batches = [chains[:1000], chains[1000:2000], chains[2000:]]
    script = looked(chains[:1000])
    for number, batch in enumerate(batches):
        if number:
            after = batches[number - 1][-1].head.writer
            script.append((Transact("main", ReadHeads(after, 1000)), tuple(batch)))
        script += [line(*batch[start : start + 50]) for start in range(0, len(batch), 50)]

    assert play(made.round(), script) is False
    assert len(made.sent.last) == 2500
    lines = [str(dict(one[0].fields)["heads"]) for one in script if isinstance(one[0], Log)]
    assert max(map(len, lines)) < 4096


# --- to a file -----------------------------------------------------------------------------------


def append(path: str, line: bytes) -> None:
    raise AssertionError("is called by no program")


def to_file(found: ChainHead) -> CallFunction:
    text = (
        '{"platform":"front","database":"main","at":"2026-01-01T00:00:00Z",'
        f'"heads":["{found.head}"]}}\n'
    )
    return CallFunction(append, {"path": "/var/heads", "line": text.encode()}, 10.0)


def test_a_file_gets_a_line_of_json() -> None:
    made, one = job(HeadsToFile("/var/heads", FileWriter(append))), chain("c", 1)

    play(made.round(), [*looked([one]), (to_file(one), Returned(None))])
    play(made.round(), looked([one]))


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (Raised(OSError(28, "No space left on device")), "No space left on device"),
        (Raised(PermissionError(13, "Permission denied")), "Permission denied"),
        (Raised(ValueError("embedded null byte")), "ValueError"),
        (TimedOut(), "it took too long"),
    ],
    ids=["full", "unwritable", "null", "slow"],
)
def test_a_file_that_fails_gets_the_newest_heads_later(answer: Any, reason: str) -> None:
    made, one, two = (
        job(HeadsToFile("/var/heads", FileWriter(append))),
        chain("c", 1),
        chain("c", 2),
    )
    script = [*looked([one]), (to_file(one), answer)]
    play(made.round(), [*script, failed(reason, "heads_file")])
    assert made.pause == Sleep(30.0)
    play(made.round(), script)  # it is said once

    play(made.round(), [*looked([two]), (to_file(two), Returned(None))])
    assert made.pause == Sleep(60.0)
    play(made.round(), looked([two]))


def test_a_host_without_files_says_so() -> None:
    made, one = job(HeadsToFile("/var/heads", FileWriter())), chain("c", 1)

    play(made.round(), [*looked([one]), failed("this host writes no files", "heads_file")])


def test_a_short_pause_stays_short_after_a_failure() -> None:
    made = job(HeadsToFile("/var/heads", FileWriter()), seconds=5.0)
    made.sent.trouble = "full"

    assert made.pause == Sleep(5.0)


# --- to a webhook --------------------------------------------------------------------------------


def requests(made: SendHeads, found: ChainHead, answer: Any, *more: Any) -> Fetch:
    """Play a look that sends `found`, and return the request."""
    program, sent = made.round(), list[Fetch]()
    script = iter([*looked([found]), (Now(), NOW + 1), (None, answer), *more])
    effect = next(program)
    try:
        while True:
            wanted, reply = next(script)
            if wanted is None:
                assert isinstance(effect, Fetch)
                sent.append(effect)
            else:
                assert effect == wanted
            effect = program.send(reply)
    except StopIteration:
        assert next(script, None) is None
        (request,) = sent
        return request


def ok(status: int = 204) -> FetchReply:
    return FetchReply(status, {}, b"")


def test_a_webhook_is_signed_as_standard_webhooks_asks() -> None:
    context = context_of(heads_url="https://siem.test/in?x=1", heads_secret_env="HOOK")
    made, one = job(HeadsToWebhook("https://siem.test/in?x=1", context)), chain("c", 1)

    request = requests(made, one, ok())

    assert (request.method, request.url) == ("POST", "https://siem.test/in?x=1")
    headers = tuple((name.encode(), value.encode()) for name, value in request.headers)
    assert isinstance(standard_v1(headers, request.body, (KEY,), NOW + 1), Verified)
    assert json.loads(request.body) == {
        "type": "audit.heads",
        "timestamp": "2026-01-01T00:00:00Z",
        "data": {
            "platform": "front",
            "database": "main",
            "at": "2026-01-01T00:00:00Z",
            "heads": [str(one.head)],
        },
    }
    assert "siem" not in repr(made)


def test_a_webhook_without_a_secret_is_not_signed() -> None:
    made = job(HeadsToWebhook("https://siem.test", CONTEXT))

    request = requests(made, chain("c", 1), ok(200))

    assert [name for name, _ in request.headers] == [
        "content-type",
        "webhook-id",
        "webhook-timestamp",
    ]


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (Unreachable("connect"), "not reached: connect"),
        (ok(500), "answered 500"),
        (ok(302), "answered 302"),
        (ok(410), "answered 410"),
    ],
    ids=["connect", "500", "302", "410"],
)
def test_a_webhook_that_fails_is_tried_again(answer: Any, reason: str) -> None:
    made, one = job(HeadsToWebhook("https://siem.test", CONTEXT)), chain("c", 1)

    first = requests(made, one, answer, failed(reason, "heads_url"))
    again = requests(made, one, answer)
    other = requests(made, one, ok(404), failed("answered 404", "heads_url"))
    taken = requests(made, one, ok())

    assert first == again == other == taken  # the same id, so that it is taken once
    play(made.round(), looked([one]))


# --- jobs ----------------------------------------------------------------------------------------


def test_there_is_a_job_for_each_place_and_database() -> None:
    assert heads_jobs(CONTEXT, FileWriter()) == ()
    context = context_of(
        heads_log=True, heads_file="/f", heads_url="https://siem.test", heads_seconds=5
    )
    jobs = heads_jobs(context, FileWriter())

    assert [(one.place.name, one.database) for one in jobs] == [
        (name, database)
        for name in ("heads_log", "heads_file", "heads_url")
        for database in ("main", "second")
    ]
    assert {one.seconds for one in jobs} == {5}
    assert len({id(one.sent) for one in jobs}) == 6
    assert jobs[0] != jobs[1]


def test_a_database_that_fails_is_in_the_log() -> None:
    fields = (("database", "main"), ("error", "here"))
    line = Log("warning", "audit_heads_failed", (*fields, ("target", "heads_log")))
    assert job().log_trouble("warning", fields) == line
    with pytest.raises(Unavailable):
        play(job().round(), failing())


def test_at_the_end_a_database_that_is_gone_is_not_waited_for() -> None:
    assert play(job().end(), failing()) is None
    one = chain("c", 1)
    assert play(job().end(), [*looked([one]), line(one)]) is None


def failing() -> list[Any]:
    asked = Transact("main", ReadHeads("", 1000))
    return [(ThisNode(), "n"), (Now(), NOW), (asked, Unavailable("gone"))]


# --- In a process --------------------------------------------------------------------------------


def of_heads(client: Client) -> list[str]:
    """Return the databases of the lines with heads."""
    return [str(dict(log.fields)["database"]) for log in client.logs if log.event == "audit_heads"]


def change(client: Client, database: str) -> None:
    client.post(f"/sessions?db_id={database}", json={"session_name": "s"}).expect_success()


def platform_of(**audit: Any) -> Platform:
    return Platform(
        agents=[Agent("a"), Agent("b", database="second")],
        audit=Audit(**audit),
        databases=IN_MEMORY,
    )


def test_a_process_sends_heads_by_itself_and_at_its_end() -> None:
    with Client(platform_of(heads_log=True, heads_file="/heads", heads_seconds=5)) as client:
        platform: Any = client.platform
        lines: list[tuple[str, bytes]] = []

        def append(path: str, line: bytes) -> None:
            lines.append((path, line))

        platform.append_heads_by(append)
        change(client, "second")
        client.advance(6.0)
        assert of_heads(client) == ["second"]
        assert [path for path, _ in lines] == ["/heads"]
        change(client, "main")
        client.simulation.run(platform.shutdown(0.0), "shutdown", node=client.node)
        assert of_heads(client) == ["second", "main"]
        assert [json.loads(line)["database"] for _, line in lines] == ["second", "main"]


def test_a_round_sends_them_where_the_last_look_was_a_while_ago() -> None:
    with Client(platform_of(heads_log=True, heads_seconds=60), jobs=False) as client:
        platform: Any = client.platform
        for seconds, sent in ((0.0, 1), (30.0, 1), (31.0, 2)):
            client.advance(seconds)
            change(client, "main")
            client.simulation.run(platform.round(), "round", node=client.node)
            assert of_heads(client) == ["main"] * sent


def test_a_round_leaves_out_a_database_that_is_away() -> None:
    with Client(platform_of(heads_log=True), jobs=False) as client:
        platform: Any = client.platform
        change(client, "main")
        change(client, "second")
        client.fail_at(of_second, Unavailable("gone"), times=None)
        client.simulation.run(platform.round(), "round", node=client.node)
        assert of_heads(client) == ["main"]


def of_second(effect: Any) -> bool:
    return isinstance(effect, Transact) and effect.database == "second"
