"""A round of a process that is frozen between its requests: work is done once, or released."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any, Final

import pytest
from attrs import evolve

from legation import Agent, Database, Model, Platform, Team
from legation.channels.replies import Reply, encode_reply
from legation.effects import Fetch, FetchReply, Interruptible, Transact, Unreachable
from legation.lifecycle.bounded_round import RoundReport
from legation.store.failures import Busy, CommitLost, StoreFailure, Unavailable
from legation.store.inbox import INBOX
from legation.store.leased_queue import ClaimItems, ForgetItems, ListLeases, NextDue
from legation.store.nodes import Beat
from legation.store.outbox import OUTBOX, NewReply
from legation.store.run_keeping import FindNeglected
from legation_testing import Client, Crashed, Task, crash_everywhere, fail_everywhere

from ...providers.deliveries import channels, platform, standard, whatsapp
from ...providers.strict import StandardReceiver, WhatsAppApi, now_us
from ...put_replies import PutReplies

NOTHING: Final = RoundReport(messages=0, replies=0, runs=0, released=0, failed=(), next_us=None)
MAIN: Final = {"db_id": "main"}
LEASE: Final = 30.0
TICK_US: Final = 10_546_875
"""At multiples of it the days of SQLite's clock, a float, are exact."""


def hosting(delay: float = 0.0, **configuration: Any) -> Callable[[], Platform]:
    """Return what makes a platform whose channels are answered from two databases.

    The agents take `delay` seconds for a word.
    """
    whatsapp_channel = channels("http://127.0.0.1:9", "concierge")[0]
    standard_channel = channels("http://127.0.0.1:9", "clerk")[3]
    settings: dict[str, Any] = {
        "models": [Model("slow", "echo", delay_seconds=delay)],
        "agents": [
            Agent(id="concierge", model="slow"),
            Agent(id="clerk", model="slow", database="second"),
        ],
        "channels": [whatsapp_channel, standard_channel],
        **configuration,
    }
    return lambda: platform(**settings)


class Providers:
    """The network: one strict provider for each channel."""

    def __init__(self) -> None:
        self.whatsapp = WhatsAppApi()
        self.standard = StandardReceiver()
        self.down = False

    def __call__(self, fetch: Fetch) -> FetchReply | Unreachable:
        if self.down:
            return Unreachable("connect")
        return (self.standard if fetch.url.endswith("/replies") else self.whatsapp)(fetch)

    @property
    def texts(self) -> list[str]:
        """What people have read, through both."""
        return [m.text for m in (*self.whatsapp.seen, *self.standard.seen)]


@pytest.fixture
def providers() -> Providers:
    return Providers()


def frozen(made: Callable[[], Platform], providers: Any = None, **options: Any) -> Client:
    """Return a process without jobs: nothing goes on between two calls of the test."""
    fetch = providers or Providers()
    start_us = now_us() // TICK_US * TICK_US
    return Client(made, fetch=fetch, jobs=False, start_us=start_us, **options)


def deliver(c: Client, *texts: tuple[str, str, str]) -> None:
    """Deliver to the channel of the first database."""
    sent = whatsapp(*texts)
    c.post(sent.target, headers=sent.headers, body=sent.body).expect_success()


def deliver_second(c: Client, sender: str, name: str, words: str) -> None:
    """Deliver to the channel of the second database."""
    sent = standard(sender, name, words, c.clock.now_us)
    c.post(sent.target, headers=sent.headers, body=sent.body).expect_success()


def go_round(c: Client, limit: int = 100, seconds: float = 20.0) -> RoundReport:
    assert isinstance(c.platform, Platform)
    return c.simulation.run(c.platform.round(limit, seconds), "round", node=c.node)


def start_round(c: Client, limit: int, seconds: float) -> Task[RoundReport]:
    assert isinstance(c.platform, Platform)
    return c.simulation.start(c.platform.round(limit, seconds), node=c.node)


def waits(c: Client, channel: int = 0) -> tuple[int, int, int, int]:
    """Return the numbers of messages ready and in work, and those of replies."""
    row = c.get("/channels").json()[channel]
    return tuple(row[kind][n] for kind in ("messages", "replies") for n in ("ready", "in_work"))


def begin(c: Client, message: str, session: str = "s") -> str:
    form = {"message": message, "session_id": session, "background": True}
    run_id: str = c.post("/agents/concierge/runs", form=form).expect_success().json()["run_id"]
    return run_id


def statuses(c: Client, session: str = "s") -> list[str]:
    runs = c.get(f"/sessions/{session}/runs", query=MAIN).json()
    return [run["status"] for run in runs]


def units(c: Client, kind: type[Any]) -> list[Any]:
    found: list[Any] = [getattr(p.effect, "unit", None) for p in c.effects]
    return [unit for unit in found if isinstance(unit, kind)]


def of(kind: type[Any], queue: Any = None) -> Callable[[Any], bool]:
    def which(effect: Any) -> bool:
        unit: Any = getattr(effect, "unit", None)
        return isinstance(unit, kind) and (queue is None or unit.queue is queue)

    return which


# --- messages and replies ------------------------------------------------------------------------


def test_an_acknowledged_message_waits_while_nothing_runs_and_one_round_answers_it(
    providers: Providers,
) -> None:
    with frozen(hosting(), providers) as c:
        deliver(c, ("4911", "a", "hi"))
        c.advance(3600)
        assert (providers.texts, waits(c)) == ([], (1, 0, 0, 0))

        first, second = go_round(c), go_round(c)

        assert first == evolve(NOTHING, messages=1, replies=1)
        assert second == NOTHING
        assert providers.texts == ["hi"]


def test_one_round_answers_two_senders_of_two_channels_in_two_databases(
    providers: Providers,
) -> None:
    with frozen(hosting(), providers) as c:
        deliver(c, ("4911", "a", "one"), ("4922", "b", "two"), ("4911", "c", "three"))
        for sender, name, words in (
            ("ada", "d", "four"),
            ("eve", "e", "five"),
            ("ada", "f", "six"),
        ):
            deliver_second(c, sender, name, words)

        assert go_round(c) == evolve(NOTHING, messages=6, replies=6)
        seen = Counter((m.recipient, m.text) for m in providers.whatsapp.seen)
        assert seen == {("4911", "one"): 1, ("4922", "two"): 1, ("4911", "three"): 1}
        assert sorted(m.text for m in providers.standard.seen) == ["five", "four", "six"]
        assert providers.whatsapp.refused == providers.standard.refused == []


@pytest.mark.parametrize("limit", [0, 1, 10, 40])
def test_no_more_messages_are_taken_up_than_the_limit_says(
    limit: int, providers: Providers
) -> None:
    with frozen(hosting(), providers) as c:
        deliver(c, *((f"49{i}", f"m{i}", "hi") for i in range(1000)))

        report = go_round(c, limit)

        assert report == evolve(NOTHING, messages=limit, replies=limit, next_us=0)
        assert len(providers.texts) == limit
        assert waits(c) == (1000 - limit, 0, 0, 0)


def put_replies(c: Client, number: int) -> None:
    replies = [
        NewReply(f"r{i}", f"49{i}", encode_reply(Reply(f"r{i}", f"49{i}", "old")))
        for i in range(number)
    ]

    def program() -> Any:
        yield from Transact("main", PutReplies("whatsapp", tuple(replies), c.clock.now_us))

    c.simulation.run(program())


def test_replies_that_wait_count_too_and_go_before_messages(providers: Providers) -> None:
    with frozen(hosting(), providers) as c:
        put_replies(c, 30)
        deliver(c, *((f"48{i}", f"m{i}", "new") for i in range(30)))

        reports = [go_round(c, 20) for _ in range(3)]

        done = [(report.messages, report.replies) for report in reports]
        assert done == [(0, 20), (10, 20), (20, 20)]
        assert providers.texts == ["old"] * 30 + ["new"] * 30


def test_a_reply_that_cannot_be_sent_is_due_again_when_the_report_says(
    providers: Providers,
) -> None:
    providers.down = True
    with frozen(hosting(), providers) as c:
        deliver(c, ("4911", "a", "hi"))
        failed = go_round(c)
        providers.down = False

        assert (failed.messages, failed.replies, providers.texts) == (1, 1, [])
        assert failed.next_us is not None
        assert failed.next_us > c.clock.now_us
        assert go_round(c) == evolve(NOTHING, next_us=failed.next_us)
        c.advance((failed.next_us - c.clock.now_us) / 1_000_000)
        assert go_round(c) == evolve(NOTHING, replies=1)
        assert providers.texts == ["hi"]


def test_no_message_is_taken_up_where_replies_cannot_be_claimed(providers: Providers) -> None:
    with frozen(hosting(), providers) as c:
        deliver(c, ("4911", "a", "hi"))
        deliver_second(c, "ada", "b", "there")
        claims = of(ClaimItems, OUTBOX)
        c.fail_at(lambda e: claims(e) and e.database == "main", Busy("x"), times=None)

        assert go_round(c) == evolve(NOTHING, messages=1, replies=1, failed=("main",), next_us=0)
        assert (waits(c), providers.texts) == ((1, 0, 0, 0), ["there"])


def test_leases_are_extended_while_a_message_is_answered(providers: Providers) -> None:
    with frozen(hosting(100.0), providers) as c, c.peer(hosting()) as other:
        deliver(c, ("4911", "a", "hi"))
        working = start_round(c, 9, 500.0)
        c.advance(50)
        assert go_round(other).messages == 0
        c.advance(60)

        assert working.done
        assert providers.texts == ["hi"]
        assert len(units(c, ListLeases)) >= 10


# --- time ----------------------------------------------------------------------------------------


def test_what_is_under_work_when_the_time_is_over_is_released(providers: Providers) -> None:
    with frozen(hosting(60.0), providers) as c, c.peer(hosting()) as other:
        deliver(c, ("4911", "a", "hi there"), ("4911", "b", "next"))
        begun = c.clock.now_us

        report = go_round(c, seconds=10.0)

        assert (report.messages, report.replies, report.released) == (1, 0, 2)
        assert c.clock.now_us - begun < 12_000_000
        assert waits(other) == (2, 0, 0, 0)
        assert "RUNNING" not in statuses(other, "whatsapp:4911")
        assert go_round(other).replies == 2
        assert providers.texts == ["hi there", "next"]


def test_nothing_is_taken_up_in_the_second_half_of_the_time(providers: Providers) -> None:
    with frozen(hosting(6.0), providers) as c:
        deliver(c, *(("4911", name, "hi") for name in "abc"))

        report = go_round(c, seconds=10.0)

        assert report == evolve(NOTHING, messages=1, replies=1, next_us=0)
        assert waits(c) == (2, 0, 0, 0)


def test_a_round_without_time_begins_nothing(providers: Providers) -> None:
    with frozen(hosting(), providers) as c:
        deliver(c, ("4911", "a", "hi"))

        assert go_round(c, seconds=0.0) == evolve(NOTHING, next_us=0)


def test_a_clock_that_is_set_back_ends_the_round(providers: Providers) -> None:
    with frozen(hosting(60.0), providers) as c:
        deliver(c, ("4911", "a", "hi"))
        working = start_round(c, 9, 500.0)
        c.advance(5)
        c.clock.set_forward(-3600)
        c.advance(3)

        assert working.result().released == 2


# --- runs ----------------------------------------------------------------------------------------


def test_the_round_waits_for_runs_that_requests_of_the_process_began() -> None:
    with frozen(hosting(5.0)) as c:
        begin(c, "hi")
        assert statuses(c) == ["RUNNING"]

        assert go_round(c) == NOTHING
        assert statuses(c) == ["COMPLETED"]


def test_a_run_of_the_process_that_takes_longer_is_left_to_go_on_with_a_lease() -> None:
    with frozen(hosting(100.0)) as c:
        begin(c, "hi")
        for _ in range(3):
            report = go_round(c, seconds=10.0)
            assert (report.released, statuses(c)) == (0, ["RUNNING"])
            assert report.next_us is not None
            assert report.next_us > c.clock.now_us
            c.clock.set_forward(LEASE + 1)  # frozen: the lease passes and nothing runs
        c.advance(100)

        assert go_round(c) == NOTHING
        assert statuses(c) == ["COMPLETED"]
        assert len(units(c, Beat)) >= 3


def test_a_run_in_which_nothing_has_happened_goes_on_one_round_after_its_node_was_killed() -> None:
    with frozen(hosting(5.0)) as rehearsal:
        begin(rehearsal, "hi")
        rehearsal.settle()
        asked = [p.effect for p in rehearsal.effects]
        at = [isinstance(effect, Interruptible) and bool(effect.label) for effect in asked]
    with frozen(hosting(5.0)) as c:
        c.crash_at(1 + at.index(True) - len(c.effects))
        with pytest.raises(Crashed):
            begin(c, "hi")
            c.settle()
        c.restart()

        assert go_round(c) == evolve(NOTHING, runs=1)
        assert statuses(c) == ["COMPLETED"]


def test_a_run_of_a_node_that_is_known_by_its_silence_goes_on_after_a_lease_of_rounds() -> None:
    with frozen(hosting(1000.0)) as c:
        c.node.place = ""
        c.advance(LEASE / 6)
        go_round(c)
        begin(c, "hi")
        c.crash()
        died_us = c.clock.now_us
        c.restart()
        reports: list[RoundReport] = []
        while not (reports and reports[-1].runs):
            c.advance(LEASE / 6)
            reports.append(go_round(c, seconds=1.0))

        seconds = (c.clock.now_us - died_us) / 1_000_000
        assert LEASE <= seconds <= LEASE * 4 / 3
        for report in reports[:-1]:
            assert report.next_us is not None
            assert died_us < report.next_us <= c.clock.now_us
        assert statuses(c) == ["PENDING"]


def test_a_run_that_is_under_work_when_the_time_is_over_waits_for_the_next_round() -> None:
    with frozen(hosting(60.0)) as c:
        begin(c, "one")
        begin(c, "two")
        c.crash()
        c.restart()

        report = go_round(c, seconds=8.0)

        assert (report.runs, report.released) == (1, 1)
        assert statuses(c) == ["PENDING", "PENDING"]


def test_a_run_of_which_somebody_knows_goes_on_in_the_round_after_its_node_was_killed() -> None:
    with frozen(hosting(15.0)) as c:
        form = {"message": "one two three four", "session_id": "s", "stream": True}
        c.begin("POST", "/agents/concierge/runs", form=form)
        c.advance(8)
        begin(c, "next")
        c.crash()
        c.restart()

        assert go_round(c, seconds=60.0) == evolve(NOTHING, runs=2)
        assert statuses(c) == ["COMPLETED", "COMPLETED"]


def test_a_team_whose_members_work_side_by_side_goes_on_where_no_channel_is() -> None:
    third = [Database(name, "sqlite://") for name in ("main", "second", "third")]
    team = Team(id="desk", mode="collaborate", members=["concierge", "clerk"], database="third")
    with frozen(hosting(1.0, databases=third, teams=[team])) as c:
        form = {"message": "hi", "session_id": "s", "background": True}
        for _ in range(2):
            c.post("/teams/desk/runs", form=form).expect_success()
        c.crash()
        c.restart()

        assert go_round(c) == evolve(NOTHING, runs=2)
        runs = c.get("/teams/desk/runs", query={"session_id": "s"}).json()
        assert [run["status"] for run in runs] == ["COMPLETED", "COMPLETED"]


@pytest.mark.parametrize("limit", [1, 2, 3])
def test_runs_beyond_the_limit_wait(limit: int) -> None:
    with frozen(hosting(1.0)) as c:
        for number in range(5):
            begin(c, f"{number}")
        c.crash()
        c.restart()

        assert go_round(c, limit) == evolve(NOTHING, runs=limit, next_us=0)
        assert statuses(c) == ["COMPLETED"] * limit + ["PENDING"] * (5 - limit)


def test_ending_runs_counts_against_the_limit_as_well() -> None:
    with frozen(hosting(60.0)) as c:
        c.node.place = ""
        runs: list[str] = []
        for session in "abc":
            runs.append(begin(c, "one two three", session))
        c.advance(8)
        c.crash()
        c.restart()
        for run_id in runs:
            c.post(f"/agents/concierge/runs/{run_id}/cancel").expect_success()
        reports: list[RoundReport] = []
        while sum(report.runs for report in reports) < 3:
            c.advance(LEASE / 6)
            reports.append(go_round(c, 2, seconds=1.0))

        assert [report.runs for report in reports if report.runs] == [2, 1]
        assert [statuses(c, session) for session in "abc"] == [["CANCELLED"]] * 3


def test_runs_that_go_on_count_against_the_limit_as_well() -> None:
    with frozen(hosting(15.0)) as c:
        for session in "abc":
            form = {"message": "one two three", "session_id": session, "stream": True}
            c.begin("POST", "/agents/concierge/runs", form=form)
        c.advance(8)
        c.crash()
        c.restart()

        reports = [go_round(c, 2, seconds=60.0) for _ in range(2)]
        assert [report.runs for report in reports] == [2, 1]
        assert [statuses(c, session) for session in "abc"] == [["COMPLETED"]] * 3


# --- beside others -------------------------------------------------------------------------------


def test_rounds_side_by_side_answer_each_message_once(providers: Providers) -> None:
    with frozen(hosting(2.0), providers) as c, c.peer(hosting(2.0)) as other:
        deliver(c, *((f"49{i}", f"m{i}", "hi") for i in range(40)))
        rounds = [start_round(client, 30, 60.0) for client in (c, c, other)]
        c.advance(30)

        reports = [task.result() for task in rounds]
        assert sum(report.messages for report in reports) == 40
        assert sorted(m.key for m in providers.whatsapp.seen) == sorted(
            f"reply-m{i}" for i in range(40)
        )


def test_a_round_beside_the_jobs_of_its_process_does_nothing_twice(providers: Providers) -> None:
    with Client(hosting(2.0), fetch=providers) as c:
        deliver(c, *((f"49{i}", f"m{i}", "hi") for i in range(30)))
        go_round(c)
        c.advance(10)

        assert len(providers.texts) == 30


def test_a_round_that_is_cut_does_not_break_off_what_requests_began(providers: Providers) -> None:
    with frozen(hosting(20.0), providers) as c:
        asked = c.begin("POST", "/agents/concierge/runs", form={"message": "hi", "stream": False})
        deliver(c, ("4911", "a", "hi"))

        assert go_round(c, seconds=5.0).released == 2
        assert asked.response().json()["status"] == "COMPLETED"


def test_the_end_of_the_process_releases_what_a_closed_round_had_under_work(
    providers: Providers,
) -> None:
    with frozen(hosting(60.0), providers) as c, c.peer(hosting()) as other:
        assert isinstance(c.platform, Platform)
        deliver(c, ("4911", "a", "hi"))
        closed = c.simulation.start(c.platform.round(), node=c.node)
        c.advance(1)
        c.simulation.cancel(closed)
        assert waits(other) == (1, 1, 0, 0)

        c.simulation.run(c.platform.shutdown(0.0), node=c.node)

        assert waits(other) == (1, 0, 0, 0)
        assert go_round(other).replies == 1
        assert providers.texts == ["hi"]


def test_a_process_that_ends_lets_a_round_begin_nothing(providers: Providers) -> None:
    with frozen(hosting(), providers) as c:
        assert isinstance(c.platform, Platform)
        deliver(c, ("4911", "a", "hi"))
        c.simulation.run(c.platform.shutdown(0.0), node=c.node)

        assert go_round(c) == evolve(NOTHING, next_us=0)


# --- the rest of what jobs do --------------------------------------------------------------------


def test_a_round_forgets_what_is_long_done_and_does_so_again_after_an_hour() -> None:
    with frozen(hosting()) as c:
        counts: list[int] = []
        for seconds in (0, 10, 3600):
            c.clock.set_forward(seconds)
            before = len(units(c, ForgetItems))
            go_round(c)
            counts.append(len(units(c, ForgetItems)) - before)

        assert counts == [4, 0, 4]


def test_forgetting_goes_on_while_there_is_more_and_time() -> None:
    with frozen(hosting()) as c:
        c.fail_at(of(ForgetItems, INBOX), 500, times=3)
        go_round(c)
        assert len(units(c, ForgetItems)) == 10

        c.restart()
        c.fail_at(of(ForgetItems), Busy("x"), times=None)
        assert go_round(c).failed == ("main", "second")
        assert len(units(c, ForgetItems)) == 12
        assert go_round(c, seconds=0.0).failed == ()


def test_a_round_looks_at_the_schemas_and_serves_what_may_be_served(providers: Providers) -> None:
    databases = [Database("main", "sqlite://", auto_migrate=False), Database("second", "sqlite://")]
    with frozen(hosting(databases=databases), providers) as c:
        assert go_round(c) == evolve(NOTHING, failed=("main",))
        c.post("/databases/main/migrate", json={}).expect_success()
        deliver(c, ("4911", "a", "hi"))

        assert go_round(c) == evolve(NOTHING, messages=1, replies=1)


def test_a_database_that_fails_is_named_and_logged_once_and_the_other_is_done(
    providers: Providers,
) -> None:
    with frozen(hosting(3.0), providers) as c:
        deliver_second(c, "ada", "b", "there")

        def of_main(effect: Any) -> bool:
            unit: Any = getattr(effect, "unit", None)
            kinds = (ClaimItems, FindNeglected, NextDue)
            return isinstance(unit, kinds) and effect.database == "main"

        c.fail_at(of_main, Unavailable("gone"), times=None)
        report = go_round(c)

        assert report == evolve(NOTHING, messages=1, replies=1, failed=("main",))
        assert providers.texts == ["there"]
        events = Counter(log.event for log in c.logs if log.level == "warning")
        assert events == {"channel_round_failed": 1, "reaper_round_failed": 1}


def test_rounds_are_traced_as_jobs_are(providers: Providers) -> None:
    with frozen(hosting(), providers) as c:
        assert isinstance(c.platform, Platform)
        recorder = c.platform.record_spans()
        trace = f"00-{'a' * 32}-{'b' * 16}-01"
        sent = whatsapp(("4911", "a", "hi"))
        c.post(sent.target, headers=(*sent.headers, ("traceparent", trace)), body=sent.body)
        go_round(c)

        spans = [span for span in recorder.take(0) if span.trace_id == "a" * 32]
        assert {"invoke_agent concierge"} < {span.name for span in spans}


# --- everywhere ----------------------------------------------------------------------------------


class Webhooks:
    """Messages to two channels of two databases, acknowledged; then a freeze, and one round."""

    batches: Final = ((("4911", "a", "one"), ("4911", "b", "two")), (("4922", "c", "three"),))

    def __init__(self) -> None:
        self.providers = Providers()

    def make(self) -> Client:
        self.providers = Providers()
        return frozen(hosting(), self.providers)

    def deliver(self, c: Client) -> None:
        """Deliver until it is acknowledged, as providers do; meanwhile there may be a round."""
        now_us = c.clock.now_us
        for sent in (
            *(whatsapp(*batch) for batch in self.batches),
            standard("ada", "d", "four", now_us),
        ):
            for _ in range(3):
                if c.post(sent.target, headers=sent.headers, body=sent.body).status == 200:
                    break
                go_round(c)

    def act(self, c: Client) -> None:
        self.deliver(c)
        go_round(c)

    def check(self, c: Client) -> None:
        """Deliver again what was not acknowledged; when leases have passed, one round answers."""
        self.deliver(c)
        c.clock.set_forward(LEASE + 1)
        go_round(c)

        texts = [m.text for m in self.providers.whatsapp.seen]
        assert Counter(texts) == {"one": 1, "two": 1, "three": 1}
        assert texts.index("one") < texts.index("two")
        assert [m.text for m in self.providers.standard.seen] == ["four"]
        assert self.providers.whatsapp.refused == self.providers.standard.refused == []
        assert go_round(c) == NOTHING
        assert (waits(c, 0), waits(c, 1)) == ((0, 0, 0, 0), (0, 0, 0, 0))


@pytest.mark.enumeration
def test_a_crash_anywhere_loses_no_message_and_answers_none_twice(
    figures: Callable[[str], None],
) -> None:
    scene = Webhooks()
    tried = crash_everywhere(scene.make, scene.act, scene.check)

    figures(f"rounds: {tried.points} crash points, each message answered once by the next round")
    assert tried.points > 150


@pytest.mark.enumeration
@pytest.mark.parametrize(
    ("failure", "after"),
    [(Busy("x"), False), (Unavailable("x"), False), (CommitLost("x"), True)],
    ids=["busy", "unavailable", "commit lost, done"],
)
def test_a_database_that_fails_anywhere_loses_no_message_and_answers_none_twice(
    failure: StoreFailure, after: bool, figures: Callable[[str], None]
) -> None:
    scene = Webhooks()
    tried = fail_everywhere(
        scene.make, scene.act, scene.check, which=Transact, outcome=failure, after=after
    )

    figures(f"rounds: {tried.points} units failed with {type(failure).__name__}, done={after}")
    assert tried.points > 40


@pytest.mark.enumeration
@pytest.mark.parametrize("answer", [Unreachable("timeout"), FetchReply(500, {}, b"")], ids=repr)
def test_a_provider_that_fails_anywhere_gets_every_reply_once(answer: Any) -> None:
    scene = Webhooks()
    tried = fail_everywhere(
        scene.make, scene.act, scene.check, which=Fetch, outcome=answer, after=True
    )

    assert tried.points == 4


class Runs:
    """A background run and one that waits behind it; then a freeze, and one round."""

    def make(self) -> Client:
        return frozen(hosting())

    def act(self, c: Client) -> None:
        form = {"session_id": "s", "background": True}
        for words in ("one", "two"):
            c.post("/agents/concierge/runs", form={"message": words, **form})
        go_round(c)

    def check(self, c: Client) -> None:
        """After the leases one round ends every run, or goes on with it."""
        c.clock.set_forward(LEASE + 1)
        go_round(c)
        runs = c.get("/agents/concierge/runs", query={"session_id": "s"}).json()
        assert [run["run_input"] for run in runs] in ([], ["one"], ["two"], ["one", "two"])
        assert {run["status"] for run in runs} <= {"COMPLETED", "ERROR"}
        assert [run["status"] for run in runs].count("ERROR") <= 1
        assert go_round(c) == NOTHING


@pytest.mark.enumeration
def test_a_crash_anywhere_leaves_no_run_without_an_end(figures: Callable[[str], None]) -> None:
    scene = Runs()
    tried = crash_everywhere(scene.make, scene.act, scene.check)

    figures(f"rounds: {tried.points} crash points, no run is left without an end")
    assert tried.points > 80


@pytest.mark.enumeration
@pytest.mark.parametrize(
    ("failure", "after"),
    [(Busy("x"), False), (Unavailable("x"), False), (CommitLost("x"), True)],
    ids=["busy", "unavailable", "commit lost, done"],
)
def test_a_database_that_fails_anywhere_leaves_no_run_without_an_end(
    failure: StoreFailure, after: bool
) -> None:
    scene = Runs()
    tried = fail_everywhere(
        scene.make, scene.act, scene.check, which=Transact, outcome=failure, after=after
    )

    assert tried.points > 20
