from __future__ import annotations

from legation.models.conversation import Usage
from legation.models.prices import ModelName
from legation.observability.meter_families import add_up, meter_families
from legation.observability.prometheus import exposition
from legation.runs.meter import Distribution, Meter

SMALL = ModelName("small", "acme")
ELSEWHERE = ModelName("small", "other")


def counted() -> Meter:
    meter = Meter()
    meter.count_request("b", SMALL, "ok", 15_000, Usage(8, 2, 1, 4, 3, cost_nano=5), 9_000)
    meter.count_request("a", SMALL, "ok", 15_000, Usage(1, 1))
    meter.count_request("b", ELSEWHERE, "timeout", 30_000_000, Usage(2, cost_nano=5))
    meter.count_request("b", SMALL, "cancelled", None, Usage())
    meter.count_call("b", "look", "ok", 5_000)
    meter.count_call("b", "look", "rejected", None)
    meter.count_call("a", "look", "error", 20_000)
    meter.count_begun("main", 1_000_000)
    meter.count_lost("second")
    return meter


def lines(meter: Meter, name: str) -> list[str]:
    text = exposition(meter_families(meter, ("main", "second")))
    return [line for line in text.splitlines() if line.startswith(name)]


def test_requests_are_told_by_model_component_and_outcome() -> None:
    assert lines(counted(), "legation_model_requests_total") == [
        'legation_model_requests_total{model="small",component="a",outcome="ok"} 1',
        'legation_model_requests_total{model="small",component="b",outcome="cancelled"} 1',
        'legation_model_requests_total{model="small",component="b",outcome="ok"} 1',
        'legation_model_requests_total{model="small",component="b",outcome="timeout"} 1',
    ]


def test_durations_are_those_of_every_outcome_and_provider() -> None:
    found = lines(counted(), 'legation_model_request_duration_seconds_bucket{model="small"')
    name, labels = "legation_model_request_duration_seconds", 'model="small",component="b"'

    assert f'{name}_bucket{{{labels},le="0.01"}} 0' in found
    assert f'{name}_bucket{{{labels},le="0.02"}} 1' in found
    assert f'{name}_bucket{{{labels},le="40.96"}} 2' in found
    assert lines(counted(), f"{name}_sum{{{labels}}}") == [f"{name}_sum{{{labels}}} 30.015"]


def test_first_pieces_tokens_and_costs_are_told() -> None:
    labels = 'model="small",component="b"'
    first = f"legation_model_first_token_seconds_sum{{{labels}}} 0.009"

    assert lines(counted(), f"legation_model_first_token_seconds_sum{{{labels}") == [first]
    assert lines(counted(), f"legation_model_tokens_total{{{labels}") == [
        f'legation_model_tokens_total{{{labels},kind="input"}} 10',
        f'legation_model_tokens_total{{{labels},kind="output"}} 2',
        f'legation_model_tokens_total{{{labels},kind="cached"}} 4',
        f'legation_model_tokens_total{{{labels},kind="cache_write"}} 3',
        f'legation_model_tokens_total{{{labels},kind="reasoning"}} 1',
    ]
    assert lines(counted(), "legation_model_cost_usd_total") == [
        f"legation_model_cost_usd_total{{{labels}}} 1e-08"
    ]


def test_calls_are_told_by_tool_component_and_outcome() -> None:
    assert lines(counted(), "legation_tool_calls_total") == [
        'legation_tool_calls_total{tool="look",component="a",outcome="error"} 1',
        'legation_tool_calls_total{tool="look",component="b",outcome="ok"} 1',
        'legation_tool_calls_total{tool="look",component="b",outcome="rejected"} 1',
    ]
    name = "legation_tool_duration_seconds_count"
    assert lines(counted(), name) == [
        f'{name}{{tool="look",component="a"}} 1',
        f'{name}{{tool="look",component="b"}} 1',
    ]


def test_each_database_has_its_queue_and_its_leases_from_the_start() -> None:
    name = "legation_run_queue_seconds_count"
    assert lines(counted(), name) == [
        f'{name}{{database="main"}} 1',
        f'{name}{{database="second"}} 0',
    ]
    assert lines(Meter(), "legation_leases_lost_total") == [
        'legation_leases_lost_total{database="main"} 0',
        'legation_leases_lost_total{database="second"} 0',
    ]
    assert lines(counted(), "legation_leases_lost_total")[1].endswith(" 1")


def test_nothing_that_was_never_asked_has_a_series() -> None:
    assert lines(Meter(), "legation_model") == lines(Meter(), "legation_tool") == []


def test_distributions_add_up() -> None:
    one = Distribution([1, 2, *[0] * 13], 7)
    both = add_up((one, one))

    assert (both.counts[:2], both.total) == ([2, 4], 14)
    assert add_up(()).total == 0
