from __future__ import annotations

from typing import Final

import pytest
from prometheus_client.parser import text_string_to_metric_families

from legation.http.messages import Request
from legation.observability.prometheus import exposition
from legation.observability.request_log import (
    Arrival,
    Gauge,
    RequestLine,
    Telemetry,
    method_label,
    read_request_id,
)
from legation.observability.tracing import Trace
from legation.store.refusals import NOWHERE

CAME: Final = 1_000_000


def arrival(method: str = "GET", template: str = "/agents") -> Arrival:
    request = Request(method, "/agents?secret=1")
    return Arrival(request, CAME, "id-1", template, "get_agents")


def samples(telemetry: Telemetry) -> dict[str, float]:
    return {
        f"{s.name} {' '.join(s.labels.values())}".strip(): s.value
        for family in text_string_to_metric_families(exposition(telemetry.families()))
        for s in family.samples
    }


def test_requests_are_counted_by_route_method_and_class_of_status() -> None:
    telemetry = Telemetry()
    for status in (200, 201, 404):
        telemetry.count_answer(arrival(), status, CAME + 2_000)
    telemetry.count_answer(arrival("POST"), 200, CAME + 2_000)
    found = samples(telemetry)
    name = "legation_http_request_duration_seconds_count /agents"

    assert [found[f"{name} {kind}"] for kind in ("GET 2xx", "GET 4xx", "POST 2xx")] == [2, 1, 1]


@pytest.mark.parametrize(
    ("took_us", "bounds"),
    [
        (0, "0.001 0.005 60.0 +Inf"),
        (1_000, "0.001 0.005 60.0 +Inf"),
        (1_001, "0.005 60.0 +Inf"),
        (60_000_000, "60.0 +Inf"),
        (60_000_001, "+Inf"),
    ],
)
def test_a_duration_falls_into_the_buckets_that_reach_it(took_us: int, bounds: str) -> None:
    telemetry = Telemetry()
    telemetry.count_answer(arrival(), 200, CAME + took_us)
    found = samples(telemetry)

    name = "legation_http_request_duration_seconds"
    some = ("0.001", "0.005", "60.0", "+Inf")
    reached = [b for b in some if found[f"{name}_bucket /agents GET 2xx {b}"]]
    assert " ".join(reached) == bounds
    assert found[f"{name}_sum /agents GET 2xx"] == took_us / 1e6


def test_methods_nobody_has_heard_of_are_one_kind() -> None:
    telemetry = Telemetry()
    for number in range(50):
        telemetry.count_answer(arrival(f"BREW{number}", NOWHERE), 404, CAME)
        telemetry.count_cut(arrival(f"BREW{number}", NOWHERE))
    found = samples(telemetry)

    assert found["legation_http_request_duration_seconds_count * other 4xx"] == 50
    assert found["legation_http_requests_cut_total * other"] == 50
    assert not any("BREW" in name for name in found)
    assert method_label("PATCH") == "PATCH"


def test_gauges_of_the_host_are_among_the_measurements() -> None:
    telemetry = Telemetry(gauges={"things": Gauge("gauge", "How many.", {(("of", "x"),): 3})})

    assert samples(telemetry)["things x"] == 3


def test_active_requests_are_told() -> None:
    found = samples(Telemetry(active=2, streams=1))

    assert (found["legation_http_requests_active"], found["legation_http_streams_active"]) == (2, 1)


def test_no_line_is_kept_unless_somebody_wants_it() -> None:
    telemetry = Telemetry()
    telemetry.count_answer(arrival(), 200, CAME)
    telemetry.count_cut(arrival())

    assert telemetry.take_lines() == ()


def test_a_line_says_what_a_request_was_and_nothing_that_was_sent() -> None:
    telemetry = Telemetry()
    telemetry.keep_lines()
    seen = arrival()
    telemetry.count_answer(seen, 200, CAME + 5)
    seen.trace = Trace("a" * 32, "b" * 16)
    telemetry.count_cut(seen, 200)
    telemetry.count_cut(arrival("BREW"))
    lines = telemetry.take_lines()

    assert lines == (
        RequestLine(CAME, CAME + 5, "id-1", "GET", "/agents", "get_agents", 200, ""),
        RequestLine(CAME, None, "id-1", "GET", "/agents", "get_agents", 200, "a" * 32, cut=True),
        RequestLine(CAME, None, "id-1", "other", "/agents", "get_agents", None, "", cut=True),
    )
    assert "secret" not in str(lines)
    assert telemetry.take_lines() == ()


def test_lines_that_nobody_takes_give_way_to_newer_ones() -> None:
    telemetry = Telemetry()
    telemetry.keep_lines()
    for number in range(100_001):
        telemetry.count_answer(arrival(), 200, CAME + number)
    lines = telemetry.take_lines()

    assert (len(lines), lines[0].end_us) == (100_000, CAME + 1)


# --- answers of a frontend ----------------------------------------------------------------------

ANSWERED: Final = "legation_http_request_duration_seconds_count"
CUT: Final = "legation_http_requests_cut_total"


@pytest.mark.parametrize("kept", [True, False], ids=["with a log", "without"])
def test_an_answer_to_what_was_given_up_just_now_is_the_answer_to_it(kept: bool) -> None:
    telemetry = Telemetry()
    if kept:
        telemetry.keep_lines()
    seen = arrival()
    telemetry.count_cut(seen)
    other = Arrival(seen.request, CAME + 5, "id-2")
    after_all: list[tuple[Arrival, int, int]] = []
    telemetry.after_all = lambda asked, status, at: after_all.append((asked, status, at))
    found = (telemetry.instead(other, 503, CAME + 9), samples(telemetry))
    line = RequestLine(CAME, CAME + 9, "id-1", "GET", "/agents", "get_agents", 503, "")

    assert found[0] == "id-1"
    assert after_all == [(seen, 503, CAME + 9)]
    assert (found[1][f"{ANSWERED} /agents GET 5xx"], found[1][f"{CUT} /agents GET"]) == (1, 0)
    assert telemetry.take_lines() == ((line,) if kept else ())


def test_an_answer_to_anything_else_stands_for_itself() -> None:
    telemetry = Telemetry()
    telemetry.keep_lines()
    telemetry.count_cut(arrival())
    unread = Arrival(Request("BREW", "*"), CAME, "id-2")
    telemetry.after_all = lambda *_: pytest.fail("nothing was given up")

    assert [telemetry.instead(unread, 400, CAME + 1) for _ in range(2)] == ["id-2", "id-2"]
    assert samples(telemetry)[f"{ANSWERED} * other 4xx"] == 2
    assert samples(telemetry)[f"{CUT} /agents GET"] == 1
    assert [line.status for line in telemetry.take_lines()] == [None, 400, 400]


def test_a_line_that_was_taken_already_stays_what_it_was() -> None:
    telemetry = Telemetry()
    telemetry.keep_lines()
    seen = arrival()
    telemetry.count_cut(seen)
    [taken] = telemetry.take_lines()
    telemetry.count_answer(arrival(), 200, CAME)
    telemetry.instead(seen, 503, CAME)

    assert (taken.status, taken.cut) == (None, True)
    assert [line.status for line in telemetry.take_lines()] == [200, 503]


def test_a_stream_that_was_cut_has_been_answered_already() -> None:
    telemetry = Telemetry()
    seen = arrival()
    telemetry.count_cut(seen, 200)
    telemetry.instead(Arrival(seen.request, CAME, "id-2"), 500, CAME)

    assert samples(telemetry)[f"{CUT} /agents GET"] == 1


@pytest.mark.parametrize(
    ("sent", "kept"),
    [(b"a-1.~_", "a-1.~_"), (b"", ""), (b"a b", ""), (b"x" * 65, ""), (b"a\xff", ""), (None, "")],
)
def test_a_request_id_is_taken_over_if_it_is_sober(sent: bytes | None, kept: str) -> None:
    headers = () if sent is None else ((b"x-request-id", sent),)

    assert read_request_id(Request("GET", "/", headers)) == kept
