"""Runs go on after their node was killed or drained: none is lost, and no call is made twice.

Real processes, a model behind a socket, and tools that count in a file what they have done.

They are run on the newest Python alone: `test_runs_kill` kills a server on the oldest.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Final

import pytest

from ..providers.deliveries import whatsapp
from ..providers.errand_model import PLACES, WORDS
from ..providers.server import listening
from ..providers.strict import WhatsAppApi
from .cluster_kit import NIGHTLY, await_true, send
from .errands_kit import DRAIN_SECONDS, Site, begin_clients, rows, site

pytestmark = pytest.mark.newest

RUNS: Final = 200 if NIGHTLY else 16
RESTARTS: Final = 20 if NIGHTLY else 2
AT_ONCE: Final = 25 if NIGHTLY else 8
LEASE: Final = 30.0
"""Seconds: nobody waits for the lease of a process that is gone."""
NEVER: Final = {place for place, name in PLACES.items() if name == "note"}
REPLY: Final = "".join(WORDS).strip()
KINDS: Final = ("sqlite", "sqlite, 2 workers", "postgresql, 2 nodes")
CASES: Final = [(kind, way) for kind in KINDS for way in ("killed", "drained")]
SMALL: Final = [(KINDS[0], "killed"), (KINDS[-1], "killed"), (KINDS[-1], "drained")]


@pytest.fixture
def url(request: pytest.FixtureRequest, tmp_path: Path, kind: str) -> str:
    """The URL of the database of a kind."""
    if kind.startswith("postgresql"):
        found: str = request.getfixturevalue("postgres")
        return found
    return f"sqlite:///{tmp_path}/main.db"


class Desk:
    """A channel whose messages are errands; each has a sender of its own."""

    def __init__(self, place: Site, api: WhatsAppApi) -> None:
        self.place = place
        self.api = api
        self.sent = 0

    def send(self) -> None:
        """Deliver a message, and wait until its first call has begun."""
        self.sent += 1
        name = f"channel{self.sent}"
        message = whatsapp((f"49{self.sent}", name, name))
        assert send(self.place.ports[self.sent % len(self.place.ports)], message) == 200
        await_true(lambda: self.place.model.asked[name, 1])

    def check(self) -> None:
        """Check that each message is answered once."""
        senders = [f"49{number}" for number in range(1, self.sent + 1)]
        await_true(lambda: {message.recipient for message in self.api.seen} == {*senders})
        answers = sorted((message.recipient, message.text.strip()) for message in self.api.seen)
        assert answers == sorted((sender, REPLY) for sender in senders)


def go_away(place: Site, kind: str, way: str, number: int) -> None:
    """Let a node, or one of its workers, go away, and another one begin."""
    if way == "drained":
        place.drain(number % len(place.nodes))
    elif kind.endswith("workers") and number % 2:
        place.kill_worker(0)
    else:
        place.kill(number % len(place.nodes))


def check_calls(place: Site) -> int:
    """Check what was carried out; return how many calls."""
    times = Counter((line.errand, line.place) for line in place.lines)
    keys = {(line.errand, line.place, line.key) for line in place.lines if line.name == "book"}
    assert [call for call, number in times.items() if call[1] in NEVER and number > 1] == []
    assert len(keys) == len({call[:2] for call in keys})
    assert "-" not in {key for _, _, key in keys}
    return times.total()


def check_model(place: Site) -> int:
    """Check that it was asked once more for each attempt at most; return how often that was."""
    asked: Counter[str] = Counter()
    for (errand, _), number in place.model.asked.items():
        asked[errand] += number - 1
    read = "select input, attempt from runs where parent_run_id is null"
    for stored, attempt in rows(place.url, read):
        errand = json.loads(stored)["message"]
        assert asked[errand] <= attempt - 1, (errand, asked[errand], attempt)
    return asked.total()


@pytest.mark.parametrize(("kind", "way"), CASES if NIGHTLY else SMALL)
def test_every_run_goes_on(
    kind: str, way: str, url: str, tmp_path: Path, figures: Callable[[str], None]
) -> None:
    api = WhatsAppApi(honours_keys=True)
    options = ["--limit", f"drain_seconds={DRAIN_SECONDS}"]
    options += ["--workers", "2"] if kind.endswith("workers") else []
    nodes = 2 if kind.endswith("nodes") else 1
    with (
        listening(api) as provider,
        site(url, tmp_path, *options, nodes=nodes, provider=provider) as place,
    ):
        desk, errands = Desk(place, api), begin_clients(place, RUNS, AT_ONCE)
        for number in range(RESTARTS):
            errands.until(RUNS * number // (RESTARTS + 1) + 2)
            desk.send()
            go_away(place, kind, way, number)
        errands.join()
        desk.check()
        ends = rows(url, "select status, reason, count(*) from runs group by status, reason")
        delays = place.delays
        figures(
            f"{RUNS} runs of 5 calls {way} {RESTARTS} times, {kind}: {ends}, gone on"
            f" {len(delays)} times, median {median([0, *delays]):.2f} s,"
            f" at most {max([0, *delays]):.2f} s"
        )
        assert ends == [("COMPLETED", None, RUNS + RESTARTS)]
        errands.check()
        calls, again = check_calls(place), check_model(place)

    figures(f"{calls} calls, {again} requests to the model more, {errands.answers} doubts asked")
    assert len(delays) >= RESTARTS
    assert median(delays) < 1.0
    assert max(delays) < LEASE / 3
