"""Dead letters through the platform's door: retried, discarded, in bulk; and a test message."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import pytest

from legation import Agent, Database
from legation.effects import Fetch, FetchReply
from legation.store.audit import Audited
from legation.store.failures import CommitLost, Unavailable
from legation_testing import Client, ClientResponse

from ....callers import CHAT, Issuer, demo
from ....providers.deliveries import platform, whatsapp
from ....providers.strict import WhatsAppApi

ISSUER: Final = Issuer()
CHANNEL: Final = "/channels/whatsapp"
ALL: Final[dict[str, Any]] = {"what": "replies"}


class Network:
    """A provider that refuses until it is mended."""

    def __init__(self) -> None:
        self.provider, self.broken = WhatsAppApi(), True

    def __call__(self, fetch: Fetch) -> FetchReply:
        if self.broken:
            return FetchReply(400, {}, b'{"error": {"code": 100}}')
        return self.provider(fetch)

    @property
    def texts(self) -> list[str]:
        return sorted(message.text for message in self.provider.seen)


@pytest.fixture
def network() -> Network:
    return Network()


@pytest.fixture
def client(network: Network) -> Iterator[Client]:
    """Seven replies are dead."""
    with Client(platform, fetch=network) as client:
        for number in range(7):
            sent = whatsapp((f"49{number}", f"m{number}", f"hi {number}"))
            client.post(sent.target, headers=sent.headers, body=sent.body).expect_success()
        client.settle()
        yield client


def post(client: Client, path: str, **body: Any) -> ClientResponse:
    return client.post(f"{CHANNEL}{path}", json=body)


def dead(client: Client) -> list[str]:
    page = client.get(f"{CHANNEL}/replies?limit=200").json()["data"]
    return sorted(row["id"] for row in page)


def test_all_dead_replies_are_sent_when_an_operator_asks(client: Client, network: Network) -> None:
    network.broken = False
    told = post(client, "/retry", **ALL).expect_success().json()
    client.settle()

    ids = [f"reply-m{number}" for number in range(7)]
    assert told == {"what": "replies", "retried": 7, "left": 0, "ids": ids}
    assert network.texts == [f"hi {number}" for number in range(7)]
    assert dead(client) == []
    assert post(client, "/retry", **ALL).json()["retried"] == 0


def test_no_more_are_touched_than_asked_for_and_what_is_left_is_said(client: Client) -> None:
    told = post(client, "/retry", **ALL, limit=3).expect_success().json()

    assert [told["retried"], told["left"]] == [3, 4]
    assert told["ids"] == ["reply-m0", "reply-m1", "reply-m2"]


def test_letters_are_chosen_by_their_ids_their_error_and_their_time(client: Client) -> None:
    def found(**more: Any) -> int:
        return int(post(client, "/discard", **ALL, limit=1, **more).json()["discarded"])

    assert found(ids=["reply-m1", "no-such"]) == 1
    assert found(ids=["reply-m1"]) == 0
    assert found(error="code 100") == 1
    assert found(error="code 1000") == 0
    assert found(since=1_767_225_600) == 1
    assert found(until=1_767_225_600) == 0
    assert found(all=True) == 1
    assert len(dead(client)) == 3


def test_everything_is_discarded_only_where_that_is_said(client: Client) -> None:
    refused = post(client, "/discard", **ALL)
    assert refused.status == 422
    assert refused.json()["errors"][0]["path"] == "body.all"
    assert len(dead(client)) == 7

    told = post(client, "/discard", **ALL, all=True).expect_success().json()
    assert [told["discarded"], told["left"]] == [7, 0]
    assert dead(client) == []


def test_a_message_is_not_a_reply(client: Client) -> None:
    told = post(client, "/discard", all=True).expect_success().json()

    assert told == {"what": "messages", "discarded": 0, "left": 0, "ids": []}
    assert len(dead(client)) == 7


@pytest.mark.parametrize(
    "body",
    [
        {"ids": []},
        {"ids": "m"},
        {"ids": [1]},
        {"ids": ["x"] * 1_001},
        {"limit": 0},
        {"limit": 1_001},
        {"what": "drafts"},
        {"since": -1},
        {"error": "x" * 201},
        {"everything": True},
    ],
    ids=str,
)
@pytest.mark.parametrize("path", ["/retry", "/discard"])
def test_a_choice_that_makes_no_sense_is_refused(
    client: Client, path: str, body: dict[str, Any]
) -> None:
    assert post(client, path, **{"all": True, **body} if path == "/discard" else body).status == 422
    assert len(dead(client)) == 7


@pytest.mark.parametrize("all_", [1, 0, "yes", 1.0, [True]], ids=str)
def test_nothing_is_discarded_by_a_number_or_a_word(client: Client, all_: Any) -> None:
    assert post(client, "/discard", all=all_, error="").status == 422
    assert len(dead(client)) == 7


HOSTILE: Final = ["' or 1=1 --", "%", "\u0000", "\u202e", "x" * 10_000, "<script>"]


def test_ids_are_only_ids(client: Client) -> None:
    named = [one for one in HOSTILE if "\0" not in one] * 100

    assert post(client, "/discard", **ALL, ids=named).json()["discarded"] == 0
    assert len(dead(client)) == 7


# --- one reply ---------------------------------------------------------------------------------


def test_one_reply_is_sent_again(client: Client, network: Network) -> None:
    network.broken = False
    told = client.post(f"{CHANNEL}/replies/reply-m3/retry").expect_success().json()
    client.settle()

    assert told == {"id": "reply-m3", "state": "ready"}
    assert network.texts == ["hi 3"]
    again = client.post(f"{CHANNEL}/replies/reply-m3/retry")
    assert again.status == 409
    assert len(dead(client)) == 6


@pytest.mark.parametrize("reply", ["no-such", "m3", "%27%20or%201=1"])
def test_a_reply_that_is_not_there_is_not_found(client: Client, reply: str) -> None:
    assert client.post(f"{CHANNEL}/replies/{reply}/retry").status == 404
    assert client.post("/channels/slack/replies/reply-m3/retry").status == 404
    assert client.post("/channels/no-such/replies/reply-m3/retry").status == 404


# --- a test ------------------------------------------------------------------------------------


def test_a_test_message_goes_the_way_of_every_reply(client: Client, network: Network) -> None:
    network.broken = False
    told = post(client, "/test", recipient="4999").expect_success()
    assert told.status == 202
    client.settle()

    assert network.texts == ["A test message of Legation."]
    (row,) = client.get(f"{CHANNEL}/replies?state=sent").json()["data"]
    assert [row["id"], row["recipient"]] == [told.json()["id"], "4999"]


def test_a_test_message_that_is_asked_for_twice_under_one_key_is_one(client: Client) -> None:
    headers = (("idempotency-key", "k"),)
    told = [
        client.post(f"{CHANNEL}/test", json={"recipient": "4999"}, headers=headers).json()
        for _ in range(2)
    ]

    assert told[0] == told[1]


@pytest.mark.parametrize("recipient", ["", None, "x" * 257, "a\nb", 5])
def test_a_recipient_is_one_line(client: Client, recipient: Any) -> None:
    assert post(client, "/test", recipient=recipient).status == 422


# --- crashes, callers, databases ---------------------------------------------------------------


@pytest.mark.parametrize("path", ["/retry", "/discard"])
def test_a_crash_at_a_bulk_operation_is_all_or_nothing(client: Client, path: str) -> None:
    body = {**ALL, "all": True} if path == "/discard" else ALL
    client.fail_at(Audited, Unavailable())
    assert post(client, path, **body).status == 503
    assert len(dead(client)) == 7

    client.fail_at(Audited, CommitLost("the answer was lost"))
    assert post(client, path, **body).status == 503
    assert post(client, path, **body).status == 200


WRITES: Final[dict[str, Any]] = {
    "/retry": {},
    "/discard": {"all": True},
    "/test": {"recipient": "49"},
    "/replies/x/retry": None,
}


@pytest.mark.parametrize("path", WRITES)
def test_who_may_not_write_to_the_channel_changes_nothing(path: str) -> None:
    with Client(demo(ISSUER)) as client:

        def status(*scopes: str) -> int:
            token = ISSUER.token(*scopes)
            return client.post(f"/channels/chat{path}", json=WRITES[path], token=token).status

        assert status("channels:read") == status("channels:other:write") == 403
        assert status() == 403
        allowed = {"/test": 202, "/replies/x/retry": 404}.get(path, 200)
        assert status("channels:write") == status("channels:chat:write") == allowed


def test_a_change_is_in_the_trail_with_it() -> None:
    with Client(demo(ISSUER), token=ISSUER.token("platform:admin")) as client:
        made = client.post("/channels/chat/test", json={"recipient": "a-phone-number"})
        made.expect_success()
        rows = client.get("/audit?operation=send_channel_test").json()["data"]

        assert [(row["resource"], row["status"]) for row in rows] == [("chat", 202)]
        assert "a-phone-number" not in client.get("/audit").text


def test_each_channel_has_its_letters_in_its_own_database() -> None:
    databases = [Database("main", "sqlite://"), Database("second", "sqlite://")]
    agents = (Agent("alpha", database="second"), Agent("beta", database="main"))
    with Client(demo(None, databases=databases, agents=agents, channels=(CHAT,))) as client:
        key = client.post("/channels/chat/test", json={"recipient": "49"}).json()["id"]
        assert client.get("/channels").json()[0]["db_id"] == "second"
        rows = client.get("/channels/chat/replies?state=ready").json()["data"]

    assert [row["id"] for row in rows] == [key]
