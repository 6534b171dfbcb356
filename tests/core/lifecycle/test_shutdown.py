"""The end of a process: what it held is finished, or another node has it at once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from legation import Agent, Model, Platform
from legation.effects import FetchReply, Log, Sleep, Transact, Unreachable
from legation.lifecycle.shutdown import Shutdown
from legation.messaging.leases import WorkerLeases
from legation.store.failures import Busy
from legation.store.inbox import INBOX
from legation.store.leased_queue import ClaimItems, ItemKey, Lease, ReleaseLeases
from legation.store.run_keeping import ClaimWaiting, ReleaseRun
from legation_testing import Client, Delayed, play

from ...providers.deliveries import MAIN, platform, whatsapp
from ...providers.strict import WhatsAppApi


def hosting(delay: float) -> Callable[[], Platform]:
    """Return what makes a platform whose agent takes `delay` seconds for an answer."""
    return lambda: platform(
        models=[Model("slow", "echo", delay_seconds=delay)],
        agents=[Agent(id="concierge", model="slow")],
    )


def deliver(c: Client, *texts: tuple[str, str, str]) -> None:
    sent = whatsapp(*texts)
    c.post(sent.target, headers=sent.headers, body=sent.body).expect_success()


def close(c: Client, patience_seconds: float) -> None:
    """Drain the process of `c` and end it."""
    assert isinstance(c.platform, Platform)
    c.simulation.run(c.platform.shutdown(patience_seconds), node=c.node)
    c.simulation.crash(c.node)


def texts(provider: WhatsAppApi) -> list[str]:
    return [message.text for message in provider.seen]


def statuses(c: Client, session: str) -> list[tuple[str, Any]]:
    runs = c.get(f"/sessions/{session}/runs", query=MAIN).json()
    return [(run["status"], run["run_input"]) for run in runs]


# --- messages ----------------------------------------------------------------------------------


def test_a_message_under_work_is_answered_within_the_patience() -> None:
    provider = WhatsAppApi()
    with Client(hosting(0.5), fetch=provider) as c, c.peer(hosting(0.5)) as other:
        deliver(c, ("4911", "a", "hi"))
        c.advance(0.1)
        close(c, 5.0)
        other.advance(2.0)

        assert texts(provider) == ["hi"]
        assert statuses(other, "whatsapp:4911") == [("COMPLETED", "hi")]


def test_what_is_not_answered_by_then_another_node_answers_at_once() -> None:
    """Without giving it back, the sender's lane would be closed for the 30 s of the lease."""
    provider = WhatsAppApi()
    with Client(hosting(60.0), fetch=provider) as c, c.peer(hosting(0.0)) as other:
        deliver(c, ("4911", "a", "hi"))
        c.advance(1.0)
        close(c, 1.0)
        deliver(other, ("4911", "b", "next"))
        other.advance(2.0)

        assert texts(provider) == ["hi", "next"]


def test_nothing_that_waits_is_claimed_by_a_node_that_drains() -> None:
    provider = WhatsAppApi()
    with Client(hosting(3.0), fetch=provider) as c:
        deliver(c, ("4911", "a", "one"))
        c.settle()
        assert isinstance(c.platform, Platform)
        ending = c.simulation.start(c.platform.shutdown(20.0), "closing", node=c.node)
        c.settle()
        deliver(c, ("4922", "b", "two"))
        c.advance(10.0)

        assert ending.done
        assert c.get("/channels").json()[0]["messages"]["ready"] == 1
        assert texts(provider) == []
        assert c.get("/channels").json()[0]["replies"]["ready"] == 1


def test_a_reply_that_was_being_sent_is_sent_again_under_its_key() -> None:
    provider = WhatsAppApi()
    stuck = True

    def network(fetch: Any) -> Any:
        return Delayed(25.0, Unreachable("timeout")) if stuck else provider(fetch)

    with Client(hosting(0.0), fetch=network) as c, c.peer(hosting(0.0)) as other:
        deliver(c, ("4911", "a", "hi"))
        c.advance(1.0)
        stuck = False
        close(c, 0.0)
        other.advance(1.0)

        assert [(m.text, m.key) for m in provider.seen] == [("hi", "reply-a")]


def test_a_claim_that_is_answered_late_is_given_back_too() -> None:
    hosted = hosting(0.0)()
    worker = WorkerLeases(hosted.context, "main", claims=1)
    lease = Lease(INBOX, ItemKey("whatsapp", "a"), "n", 1)
    program = Shutdown(hosted.context, (worker,)).program(0.0, 0.0, lambda: False)

    assert program.send(None) == Sleep(0.05)
    worker.claims = 0
    worker.enter(lease)
    assert program.send(None) == Transact("main", ReleaseLeases((lease,)))
    with pytest.raises(StopIteration):
        program.send(1)
    assert not worker.busy


def test_work_that_is_let_go_meanwhile_is_waited_for_no_longer() -> None:
    hosted = hosting(0.0)()
    worker = WorkerLeases(hosted.context, "main", claims=1)
    play(_until_free(hosted, worker), [(Sleep(0.05), None), (Sleep(0.05), None)])


def _until_free(hosted: Platform, worker: WorkerLeases) -> Any:
    program = Shutdown(hosted.context, (worker,)).program(10.0, 0.0, lambda: False)
    yield program.send(None)
    yield program.send(None)
    worker.claims = 0
    yield from program


# --- runs --------------------------------------------------------------------------------------


def begin(c: Client, message: str) -> str:
    form = {"message": message, "session_id": "s", "background": True}
    run_id: str = c.post("/agents/concierge/runs", form=form).json()["run_id"]
    return run_id


def test_a_run_ends_within_the_patience_and_the_next_of_its_session_is_for_another_node() -> None:
    with Client(hosting(1.0)) as c, c.peer(hosting(0.0)) as other:
        begin(c, "one")
        begin(c, "two")
        c.advance(0.1)
        close(c, 10.0)
        other.advance(1.1)

        assert statuses(other, "s") == [("COMPLETED", "one"), ("COMPLETED", "two")]


def test_a_run_that_is_broken_off_goes_on_elsewhere_and_who_follows_is_told() -> None:
    with Client(hosting(9.0)) as c, c.peer(hosting(0.0)) as other:
        form = {"message": "one two three four", "session_id": "s", "stream": True}
        followed = c.begin("POST", "/agents/concierge/runs", form=form)
        c.advance(1.5)
        close(c, 1.0)
        last = followed.events()[-1].id

        assert f"Last-Event-ID {last}\n".encode() in followed.received
        other.advance(1.1)
        assert statuses(other, "s") == [("COMPLETED", "one two three four")]


def test_a_run_in_which_nothing_happened_waits_again_for_any_node() -> None:
    """It is claimed here, and the process ends before it is begun."""
    with Client(hosting(0.0)) as c, c.peer(hosting(0.0)) as other:
        assert isinstance(c.platform, Platform)
        c.platform.context.draining = c.platform.context.ending = True
        begin(c, "one")
        c.settle()
        assert statuses(c, "s") == [("PENDING", "one")]
        other.advance(1.1)

        assert statuses(other, "s") == [("COMPLETED", "one")]


def test_a_run_that_cannot_be_given_back_is_executed_all_the_same() -> None:
    with Client(hosting(0.0)) as c:
        assert isinstance(c.platform, Platform)
        c.platform.context.draining = c.platform.context.ending = True
        c.fail_at(_failing(ReleaseRun), Busy("x"), times=None)
        begin(c, "one")
        c.advance(1.0)

        assert statuses(c, "s") == [("COMPLETED", "one")]


def test_waiting_runs_are_not_claimed_by_a_node_that_drains() -> None:
    with Client(hosting(0.0)) as c:
        assert isinstance(c.platform, Platform)
        c.platform.context.draining = True
        c.advance(5.0)

        claims = (ClaimWaiting, ClaimItems)
        assert not [p for p in c.effects if isinstance(getattr(p.effect, "unit", None), claims)]


def test_a_process_that_starts_again_claims_again() -> None:
    hosted = hosting(0.0)()
    with Client(lambda: hosted) as c:
        close(c, 0.0)
        assert hosted.context.draining
        assert hosted.context.ending
        c.restart()
        assert c.run("concierge", "hi")["content"] == "hi"


def test_a_process_that_drains_is_not_ready() -> None:
    with Client(hosting(0.0)) as c:
        assert c.get("/ready").json()["status"] == "ready"
        assert isinstance(c.platform, Platform)
        c.platform.context.draining = True
        answer = c.get("/ready")

        assert (answer.status, answer.json()["status"]) == (503, "draining")


# --- trouble -----------------------------------------------------------------------------------


def test_a_database_that_does_not_answer_keeps_its_leases_and_the_process_ends() -> None:
    with Client(hosting(30.0), fetch=lambda _: FetchReply(200, {}, b"{}")) as c:
        deliver(c, ("4911", "a", "hi there"))
        c.advance(1.0)
        c.fail_at(_failing(ReleaseLeases), Busy("x"), times=None)
        close(c, 0.0)

        told = [log for log in c.logs if log.event == "shutdown_incomplete"]
        fields = (("runs", 0), ("messages", 1), ("replies", 0))
        assert told == [Log("warning", "shutdown_incomplete", fields)]


def test_a_release_that_fails_once_is_tried_again() -> None:
    provider = WhatsAppApi()
    with Client(hosting(30.0), fetch=provider) as c, c.peer(hosting(0.0)) as other:
        deliver(c, ("4911", "a", "hi"))
        c.advance(1.0)
        c.fail_at(_failing(ReleaseLeases), Busy("x"))
        close(c, 0.0)
        other.advance(2.0)

        assert texts(provider) == ["hi"]


def _failing(kind: type[Any]) -> Callable[[Any], bool]:
    return lambda effect: isinstance(getattr(effect, "unit", None), kind)


# --- how long a lease is -----------------------------------------------------------------------


def test_a_killed_node_is_taken_for_dead_after_the_configured_lease() -> None:
    provider = WhatsAppApi()

    def patient(delay: float) -> Callable[[], Platform]:
        return lambda: platform(
            models=[Model("slow", "echo", delay_seconds=delay)],
            agents=[Agent(id="concierge", model="slow")],
            lease_seconds=6.0,
        )

    with Client(patient(60.0), fetch=provider) as c, c.peer(patient(0.0)) as other:
        deliver(c, ("4911", "a", "hi"))
        begin(c, "one")
        c.simulation.nodes[0].place = ""  # nobody sees it die
        c.advance(20.0)  # it is kept as long as its node lives
        assert statuses(other, "s") == [("RUNNING", "one")]
        c.crash()
        other.advance(3.0)
        assert statuses(other, "s") == [("RUNNING", "one")]
        other.advance(6.0)

        assert statuses(other, "s") == [("COMPLETED", "one")]
        assert texts(provider) == ["hi"]
