from __future__ import annotations

from legation.models.conversation import Usage
from legation.models.prices import ModelName
from legation.observability.genai_metrics import Instrument, list_instruments
from legation.observability.meter_families import meter_families
from legation.runs.meter import Meter

SMALL = ModelName("small", "acme")
CHAT = {
    "gen_ai.operation.name": "chat",
    "gen_ai.provider.name": "acme",
    "gen_ai.request.model": "small",
    "gen_ai.agent.id": "a",
}
TOOL = {
    "gen_ai.operation.name": "execute_tool",
    "gen_ai.tool.name": "look",
    "gen_ai.agent.id": "a",
}


def counted() -> Meter:
    meter = Meter()
    meter.count_request("a", SMALL, "ok", 15_000, Usage(8, 2, cost_nano=5), 9_000)
    meter.count_request("a", SMALL, "timeout", 30_000_000, Usage())
    meter.count_request("a", SMALL, "cancelled", None, Usage())
    meter.count_request("a", ModelName("dear", "acme"), "cancelled", None, Usage())
    meter.count_call("a", "look", "ok", 5_000)
    meter.count_call("a", "look", "error", 20_000)
    return meter


def found() -> dict[str, Instrument]:
    return {one.name: one for one in list_instruments(counted())}


def test_a_duration_has_the_kind_of_its_error() -> None:
    one = found()["gen_ai.client.operation.duration"]
    good, late = one.points

    assert (one.unit, one.bounds[0], one.bounds[-1]) == ("s", 0.01, 81.92)
    assert (good.attributes, good.total, sum(good.counts)) == (CHAT, 0.015, 1)
    assert (late.attributes, late.total) == ({**CHAT, "error.type": "timeout"}, 30.0)


def test_first_chunks_and_tokens_are_distributions() -> None:
    [first] = found()["gen_ai.client.operation.time_to_first_chunk"].points
    usage = found()["gen_ai.client.token.usage"]

    assert (first.attributes, first.total, first.counts[0]) == (CHAT, 0.009, 1)
    assert (usage.unit, usage.bounds[:3]) == ("{token}", (1, 4, 16))
    assert [(point.attributes, point.total) for point in usage.points] == [
        ({**CHAT, "gen_ai.token.type": "input"}, 8),
        ({**CHAT, "gen_ai.token.type": "output"}, 2),
    ]


def test_a_cost_is_a_counter() -> None:
    one = found()["legation.model.cost"]
    [point] = one.points

    assert (one.unit, one.bounds, point.counts) == ("USD", (), ())
    assert (point.attributes, point.total) == (CHAT, 5e-9)


def test_calls_of_tools_have_the_kind_of_their_error() -> None:
    bad, good = found()["gen_ai.execute_tool.duration"].points

    assert (good.attributes, good.total) == (TOOL, 0.005)
    assert (bad.attributes, bad.total) == ({**TOOL, "error.type": "error"}, 0.02)


def test_both_tell_the_same_numbers() -> None:
    families = {one.name: one for one in meter_families(counted(), ())}
    shown = families["legation_model_request_duration_seconds"].samples
    [total] = [sample.value for sample in shown if sample.suffix == "_sum" and sample.value]
    [count] = [sample.value for sample in shown if sample.suffix == "_count" and sample.value]
    points = found()["gen_ai.client.operation.duration"].points

    assert total == sum(point.total for point in points)
    assert count == sum(sum(point.counts) for point in points)


def test_what_was_never_asked_has_no_instrument() -> None:
    assert list_instruments(Meter()) == ()
