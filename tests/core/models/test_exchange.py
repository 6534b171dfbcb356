"""How a provider is asked, and asked again."""

from __future__ import annotations

import json

import pytest

from legation.effects import (
    CloseStream,
    Log,
    NextChunk,
    Now,
    OpenStream,
    RandomBytes,
    Sleep,
    Streaming,
    Unreachable,
)
from legation.models.chat_completions import ChatCompletions
from legation.models.conversation import Message, ModelFailed, Prompt, Reply, Usage
from legation.models.exchange import LONGEST_ASKED_SECONDS
from legation.models.trouble import SENTENCES, Trouble
from legation_testing import close_at_every_effect, play

from ..model_kit import SETTLED, STREAM, WHOLE, Ear, Outcome, Played, asked, sse

MODEL = ChatCompletions(id="gpt", base_url="http://127.0.0.1:9", api_key="k-123", max_bytes=500)
HELLO = Prompt((Message("user", "Hello"),))


def said(text: str, finish: str | None = None) -> bytes:
    choice = {"index": 0, "delta": {"content": text}, "finish_reason": finish}
    return sse([("", json.dumps({"choices": [choice]}))])


DONE = sse([("", "[DONE]")])
GOOD = Played((said("Hi", "stop") + DONE,))


def attempts_of(outcome: Outcome) -> list[tuple[str, str | None, int | None, int]]:
    """Return what the log has: the event, the reason, the status, the attempt."""
    lines: list[tuple[str, str | None, int | None, int]] = []
    for line in outcome.of(Log):
        if line != SETTLED:
            fields = dict(line.fields)
            assert fields.pop("model") == "gpt"
            lines.append((line.event, fields["reason"], fields["status"], fields["attempt"]))
    return lines


def test_a_stream_effect_by_effect() -> None:
    ear = Ear()
    script = [
        (OpenStream, Streaming(5, 200, STREAM)),
        (NextChunk(5, 120.0), b": nothing yet\n\n"),
        (NextChunk(5, 120.0), said("Good ")),
        (SETTLED, None),
        (NextChunk(5, 120.0, 0.0125), said("morning")[:20]),
        (NextChunk(5, 120.0), said("morning")[20:]),
        (SETTLED, None),
        (NextChunk(5, 120.0, 0.025), said("", "stop")),
        (NextChunk(5, 2.0), DONE),
        (NextChunk(5, 0.25), b""),
    ]

    assert play(MODEL.respond(HELLO, ear), script) == Reply("Good morning")
    assert ear.pieces == ["Good ", "morning"]
    assert close_at_every_effect(lambda: MODEL.respond(HELLO, Ear()), script) == len(script)


def rests_of(*chunks: bytes) -> list[float]:
    """Return how long is rested before each chunk, of an answer that comes in these."""
    question = ChatCompletions(id="gpt", base_url="http://127.0.0.1:9")
    effects = asked(question, HELLO, Played((*chunks, said("", "stop") + DONE))).of(NextChunk)
    return [effect.rest_seconds for effect in effects[:-1]]


def test_the_first_piece_is_shown_at_once_and_others_in_windows() -> None:
    ping, large = b": nothing yet\n\n", said("a" * 65_536)

    assert rests_of(ping, *[said("a")] * 5) == [0, 0, 0.0125, 0.025, 0.05, 0.05, 0.05]
    assert rests_of(said("a"), ping, said("a")) == [0, 0.0125, 0, 0.025]
    assert rests_of(said("a"), large, said("a")) == [0, 0.0125, 0, 0.05]


def test_nobody_rests_behind_the_end_of_an_answer() -> None:
    outcome = asked(MODEL, HELLO, Played((said("Good "), said("morning", "stop"), DONE)))

    rests = [effect.rest_seconds for effect in outcome.of(NextChunk)]
    assert rests == [0, 0.0125, 0, 0]


def test_what_came_last_is_stored_with_what_follows() -> None:
    assert asked(MODEL, HELLO, GOOD).of(Log) == []


@pytest.mark.parametrize("end", [b"", Unreachable("protocol"), Unreachable("timeout"), b"more"])
def test_a_connection_is_given_back_or_closed(end: bytes | Unreachable) -> None:
    outcome = asked(MODEL, HELLO, Played((said("Hi", "stop") + DONE, end)))

    assert outcome.reply == Reply("Hi")
    assert outcome.of(CloseStream) == ([CloseStream(1)] if end == b"more" else [])


@pytest.mark.parametrize("status", [408, 409, 429, 500, 502, 503, 529, 599])
def test_what_passes_is_asked_again(status: int) -> None:
    bad = Played((b'{"error": {"message": "k-123"}}',), status, WHOLE)

    outcome = asked(MODEL, HELLO, bad, bad, GOOD)

    assert outcome.reply == Reply("Hi")
    assert outcome.of(Sleep) == [Sleep(0.5), Sleep(1.0)]
    assert outcome.of(CloseStream) == [CloseStream(1), CloseStream(2)]
    assert [line[0] for line in attempts_of(outcome)] == ["model_retried"] * 2
    assert [dict(line.fields)["message"] for line in outcome.of(Log)[:2]] == ["[redacted]"] * 2
    assert "k-123" not in repr(outcome.effects)


@pytest.mark.parametrize(
    ("status", "reason"),
    [(408, "rejected"), (429, "rate_limited"), (500, "unreachable"), (529, "unreachable")],
)
def test_it_is_asked_no_more_often_than_it_says(status: int, reason: str) -> None:
    outcome = asked(MODEL, HELLO, *[Played(status=status)] * 3)

    assert outcome.reason == reason
    assert str(outcome.failure) == SENTENCES[reason]
    assert attempts_of(outcome) == [
        ("model_retried", reason, status, 1),
        ("model_retried", reason, status, 2),
        ("model_failed", reason, status, 3),
    ]


@pytest.mark.parametrize("status", [301, 400, 401, 403, 404, 413, 418, 422, 100])
def test_other_refusals_are_final(status: int) -> None:
    outcome = asked(MODEL, HELLO, Played((b"k-123",), status))

    assert outcome.reason == "rejected"
    assert attempts_of(outcome) == [("model_failed", "rejected", status, 1)]
    assert "k-123" not in repr((outcome.effects, outcome.failure, vars(outcome.failure)))
    assert outcome.of(CloseStream) == [CloseStream(1)]


REFUSAL = json.dumps(
    {"error": {"type": "invalid_request_error", "code": "bad_schema", "message": "tools[0]: k-123"}}
).encode()


def test_words_of_a_refusal_are_for_the_log_and_for_nobody_else() -> None:
    outcome = asked(MODEL, HELLO, Played((REFUSAL[:20], REFUSAL[20:]), 400, WHOLE))
    failure = outcome.failure

    assert isinstance(failure, Trouble)
    assert failure.describe() == (
        ("status", 400),
        ("code", "invalid_request_error, bad_schema"),
        ("message", "tools[0]: [redacted]"),
    )
    assert failure.describe()[1:] == outcome.of(Log)[0].fields[-2:]
    assert str(failure) == failure.sentence == SENTENCES["rejected"]
    assert failure.error is None


def test_words_that_come_in_the_stream_are_there_as_well() -> None:
    error = {"type": "invalid_request_error", "code": "too_long", "message": "Too long"}
    event = json.dumps({"error": error})
    outcome = asked(MODEL, HELLO, Played((sse([("", event)]),)))

    assert isinstance(outcome.failure, Trouble)
    words = (("code", "invalid_request_error, too_long"), ("message", "Too long"))
    assert outcome.failure.describe() == words
    assert outcome.of(Log)[-1].fields[-2:] == words


@pytest.mark.parametrize(
    ("chunks", "reads"),
    [
        ((), 1),
        ((Unreachable("timeout"),), 1),
        ((REFUSAL, Unreachable("protocol")), 2),
        ((b"x",) * 100, 32),
        ((b"x" * 20_000,) * 5, 1),
    ],
    ids=["nothing", "silence", "broken off", "drop by drop", "long"],
)
def test_nobody_waits_long_for_the_words(
    chunks: tuple[bytes | Unreachable, ...], reads: int
) -> None:
    outcome = asked(MODEL, HELLO, Played(chunks, 400))

    assert outcome.reason == "rejected"
    assert len(outcome.of(NextChunk)) == reads
    assert {wait.timeout_seconds for wait in outcome.of(NextChunk)} == {1.0}
    assert outcome.of(CloseStream) == [CloseStream(1)]


def test_words_that_come_bit_by_bit_have_a_second_in_all() -> None:
    script = [
        (OpenStream, Streaming(5, 400, WHOLE)),
        (Now, 0),
        (NextChunk(5, 1.0), b"a"),
        (Now, 600_000),
        (NextChunk(5, 0.4), b"b"),
        (Now, 1_000_000),
        (CloseStream(5), None),
        (Log, None),
    ]

    with pytest.raises(Trouble, match="rejected") as caught:
        play(MODEL.respond(HELLO, Ear()), script)

    assert caught.value.words.message == "ab"


def test_a_provider_may_say_whether_to_ask_again() -> None:
    never = Played(status=500, headers={"x-should-retry": "false"})
    please = Played(status=400, headers={"x-should-retry": "true"})

    assert asked(MODEL, HELLO, never).reason == "unreachable"
    assert asked(MODEL, HELLO, please, GOOD).reply == Reply("Hi")


@pytest.mark.parametrize(
    ("header", "seconds"),
    [
        ("7", 7.0),
        ("0", 0.5),
        ("Tue, 14 Nov 2023 22:13:30 GMT", 10.0),
        ("soon", 0.5),
        (str(LONGEST_ASKED_SECONDS), float(LONGEST_ASKED_SECONDS)),
    ],
)
def test_it_waits_as_long_as_it_is_asked_to(header: str, seconds: float) -> None:
    busy = Played(status=429, headers={"retry-after": header})

    assert asked(MODEL, HELLO, busy, GOOD).of(Sleep) == [Sleep(seconds)]


def test_it_does_not_wait_longer_than_somebody_would() -> None:
    busy = Played(status=429, headers={"retry-after": str(LONGEST_ASKED_SECONDS + 1)})

    outcome = asked(MODEL, HELLO, busy)

    assert outcome.reason == "rate_limited"
    assert outcome.of(Sleep, RandomBytes) == []


def test_pauses_double_up_to_8_seconds_and_half_of_each_is_chance() -> None:
    patient = ChatCompletions(id="gpt", retries=6)
    down = [Unreachable("connect")] * 7

    assert [pause.seconds for pause in asked(patient, HELLO, *down).of(Sleep)] == [
        0.5,
        1,
        2,
        4,
        8,
        8,
    ]
    program = patient.respond(HELLO, Ear())
    script = [
        (OpenStream, Unreachable("connect")),
        (RandomBytes(2), b"\0\0"),
        (Log, None),
        (Sleep(0.25), None),
    ]
    with pytest.raises(AssertionError, match="beyond the script"):
        play(program, script)


@pytest.mark.parametrize(
    ("reason", "told_as", "attempts"),
    [
        ("connect", "unreachable", 3),
        ("protocol", "unreachable", 3),
        ("tls", "unreachable", 1),
        ("timeout", "timeout", 1),
    ],
)
def test_no_response_at_all(reason: str, told_as: str, attempts: int) -> None:
    outcome = asked(MODEL, HELLO, *[Unreachable(reason)] * attempts)

    assert outcome.reason == told_as


@pytest.mark.parametrize(
    ("reason", "told_as", "attempts"),
    [("protocol", "broken", 9), ("timeout", "timeout", 1), ("too-large", "too_large", 1)],
)
@pytest.mark.parametrize("headers", [STREAM, WHOLE])
def test_a_body_that_breaks_off_before_anything_was_heard(
    reason: str, told_as: str, attempts: int, headers: dict[str, str]
) -> None:
    broken = Played((b" ", Unreachable(reason)), headers=headers)

    assert asked(MODEL, HELLO, *[broken] * attempts).reason == told_as


BROKEN = Played((said("Go"), Unreachable("protocol")))
SPOILED = Played((said("Go"), sse([("", '{"choices": [{"delta"')])))


@pytest.mark.parametrize("broken", [BROKEN, SPOILED], ids=["broken", "spoiled"])
def test_an_answer_that_breaks_off_begins_anew(broken: Played) -> None:
    outcome = asked(MODEL, HELLO, broken, broken, GOOD)

    assert outcome.reply == Reply("Hi")
    assert (outcome.said, outcome.begun_anew) == (("Hi",), 2)
    assert attempts_of(outcome) == [
        ("model_retried", "broken", None, 1),
        ("model_retried", "broken", None, 2),
    ]


def test_failure_has_the_cost_of_all_attempts() -> None:
    count = sse([("", '{"choices": [], "usage": {"prompt_tokens": 7, "completion_tokens": 2}}')])
    paid = Played((said("Go") + count, Unreachable("protocol")))
    failure = asked(MODEL, HELLO, paid, paid, Played(status=400)).failure

    assert failure is not None
    assert (failure.reason, failure.usage) == ("rejected", Usage(14, 4))


def test_what_cannot_be_read_from_its_beginning_is_not_asked_for_again() -> None:
    nonsense = Played((sse([("", '{"choices": [{"delta"')]),))

    assert asked(MODEL, HELLO, nonsense).reason == "broken"


def test_what_an_answer_cost_that_broke_off_is_counted() -> None:
    count = sse([("", '{"choices": [], "usage": {"prompt_tokens": 7, "completion_tokens": 2}}')])
    broken = Played((said("Go") + count, Unreachable("protocol")))
    good = Played((said("Hi", "stop") + count + DONE,))

    outcome = asked(MODEL, HELLO, broken, good)

    assert outcome.reply == Reply("Hi", Usage(14, 4))


@pytest.mark.parametrize("retries", [0, 1, 2])
def test_after_an_answer_that_breaks_off_there_are_four_tries_for_one(retries: int) -> None:
    model = ChatCompletions(id="gpt", retries=retries)
    broken = [BROKEN] * 4 * retries

    assert asked(model, HELLO, *broken, BROKEN).reason == "broken"
    assert asked(model, HELLO, *broken, GOOD).reply == Reply("Hi")


def test_breaks_and_failures_are_counted_apart() -> None:
    down, plan = Played(status=500), [BROKEN] * 5

    assert asked(MODEL, HELLO, down, *plan, down, GOOD).reply == Reply("Hi")
    outcome = asked(MODEL, HELLO, down, *plan, down, down)
    assert outcome.reason == "unreachable"


def test_what_was_heard_before_trouble_in_the_same_piece_counts() -> None:
    error = sse([("", '{"error": {"code": 500}}')])

    for body, anew in ((said("Go") + error, 1), (error, 0)):
        outcome = asked(MODEL, HELLO, Played((body,)), GOOD)
        assert (outcome.said, outcome.begun_anew) == (("Hi",), anew)


def test_silence_behind_a_whole_answer_does_no_harm() -> None:
    assert asked(MODEL, HELLO, Played((said("Hi", "stop"), Unreachable("timeout")))).reply == Reply(
        "Hi"
    )


@pytest.mark.parametrize("headers", [STREAM, WHOLE, {}])
def test_an_answer_that_is_too_long_is_given_up(headers: dict[str, str]) -> None:
    outcome = asked(MODEL, HELLO, Played((b" " * 400, b" " * 101, b"never read"), headers=headers))

    assert outcome.reason == "too_large"
    assert len(outcome.of(NextChunk)) == 2
    assert outcome.of(CloseStream) == [CloseStream(1)]


def test_who_settles_may_end_it() -> None:
    class Gone(Exception):
        pass

    with pytest.raises(Gone):
        play(
            MODEL.respond(HELLO, Ear()),
            [
                (OpenStream, Streaming(1, 200, STREAM)),
                (NextChunk, said("Hi")),
                (SETTLED, Gone()),
            ],
        )


def test_a_failure_of_any_reason_has_a_sentence_of_its_own() -> None:
    words = (ModelFailed.__doc__ or "").partition("reason:")[2]

    assert all(reason in words for reason in SENTENCES)
    assert len(set(SENTENCES.values())) == len(SENTENCES)


def thought(text: str) -> bytes:
    return sse([("", json.dumps({"choices": [{"index": 0, "delta": {"reasoning": text}}]}))])


def test_thoughts_are_seen_as_they_come_before_what_came_with_them() -> None:
    outcome = asked(MODEL, HELLO, Played((thought("Hm"), thought(", so") + said("Hi", "stop"))))

    assert (outcome.thought, outcome.said) == (("Hm", ", so"), ("Hi",))
    assert outcome.of(Log) == [SETTLED, SETTLED]


def test_thoughts_are_seen_where_the_answer_is_whole() -> None:
    choice = {"message": {"content": "Hi", "reasoning": "Hm"}}
    body = json.dumps({"choices": [choice]}).encode()

    assert asked(MODEL, HELLO, Played((body,), headers=WHOLE)).thought == ("Hm",)


def test_who_breaks_off_while_it_thinks_is_asked_again() -> None:
    outcome = asked(MODEL, HELLO, Played((thought("Hm"),)), GOOD)

    assert outcome.reply == Reply("Hi")
    assert (outcome.thought, outcome.begun_anew) == (("Hm",), 1)
    assert asked(MODEL, HELLO, Played(status=500), GOOD).begun_anew == 0
