"""Speech as text, by a form that a strict endpoint takes."""

from __future__ import annotations

from typing import Any

import pytest

from legation.effects import Log, Sleep
from legation.models.chat_completions import ChatCompletions
from legation.models.conversation import ModelFailed, SilentListener
from legation.models.transcription import Transcriber
from legation_testing import Simulation

from ...providers.strict import Reply
from ...providers.transcriptions import Transcriptions

JSON = {"content-type": "application/json"}


def transcriber(**settings: Any) -> Transcriber:
    defaults: dict[str, Any] = {"base_url": "http://127.0.0.1:9/v1", "api_key": "transcription-key"}
    return Transcriber(ChatCompletions(id="whisper-1", **{**defaults, **settings}))


def hear(
    endpoint: Any, recording: bytes = b"OggS\0", mime_type: str = "audio/ogg", **settings: Any
) -> tuple[str, Simulation]:
    """Return what is heard, or why nothing is."""
    simulation = Simulation(fetch=endpoint)

    def program() -> Any:
        try:
            return (yield from transcriber(**settings).transcribe(recording, mime_type))
        except ModelFailed as failed:
            return f"failed: {failed.reason}"

    return simulation.run(program()), simulation


@pytest.mark.parametrize(
    "recording",
    [b"OggS\0", b"\r\n--\r\n", bytes(range(256)) * 40, b"--boundary--\r\n"],
    ids=["a signature", "lines", "every byte", "an end"],
)
def test_a_strict_endpoint_takes_the_form_and_gets_every_byte(recording: bytes) -> None:
    endpoint = Transcriptions(answers=[" What is the time? \0"])
    said, _ = hear(endpoint, recording)

    assert (said, endpoint.faults) == ("What is the time? \ufffd", [])
    assert endpoint.heard == [("audio/ogg", recording)]


@pytest.mark.parametrize(
    "mime_type", ["audio/ogg", "audio/mp4", "audio/aac", "audio/x-m4a", "audio/amr", "audio/webm"]
)
def test_every_type_has_an_ending_that_the_provider_knows(mime_type: str) -> None:
    endpoint = Transcriptions()

    assert hear(endpoint, mime_type=mime_type)[0] == "hello"
    assert endpoint.heard[0][0] == mime_type


@pytest.mark.parametrize("status", [429, 500, 503, 408])
def test_trouble_that_passes_is_asked_again(status: int) -> None:
    endpoint = Transcriptions(answers=[Reply(status, b"{}"), "in the end"])
    said, simulation = hear(endpoint)

    assert said == "in the end"
    assert len(endpoint.heard) == 2
    assert [log.event for log in simulation.logs] == ["model_retried"]


def test_the_time_that_the_provider_asks_for_is_waited() -> None:
    endpoint = Transcriptions(answers=[Reply(429, b"{}", {"retry-after": "7"}), "then"])
    _, simulation = hear(endpoint)

    waits = [p.effect.seconds for p in simulation.effects if isinstance(p.effect, Sleep)]
    assert waits == [7.0]


@pytest.mark.parametrize(
    ("answer", "reason", "asked"),
    [
        (Reply(400, b"{}"), "rejected", 1),
        (Reply(500, b"{}"), "unreachable", 3),
        (Reply(200, b'{"error": {"type": "server_error"}}', JSON), "unreachable", 3),
        (Reply(200, b'{"error": {"type": "invalid_request_error"}}', JSON), "rejected", 1),
        (Reply(200, b'{"text": 7}', JSON), "broken", 1),
        (Reply(200, b"[]", JSON), "broken", 1),
        (Reply(200, b"nonsense", JSON), "broken", 1),
        (Reply(200, b"hello", {"content-type": "text/plain"}), "broken", 1),
        (Reply(200, b"data: {}\n\n", {"content-type": "text/event-stream"}), "broken", 1),
        (Reply(200, b'{"text": "' + b"x" * (1 << 20) + b'"}', JSON), "too_large", 1),
    ],
)
def test_what_is_no_transcript_fails_and_is_asked_for_a_bounded_number_of_times(
    answer: Reply, reason: str, asked: int
) -> None:
    endpoint = Transcriptions(answers=[answer] * 5)
    said, simulation = hear(endpoint)

    assert (said, len(endpoint.heard)) == (f"failed: {reason}", asked)
    (failed,) = [log for log in simulation.logs if log.event == "model_failed"]
    assert ("model", "whisper-1") in failed.fields


def test_a_refused_key_fails_at_once_and_is_in_no_log() -> None:
    endpoint = Transcriptions(key="another")
    said, simulation = hear(endpoint)

    assert said == "failed: rejected"
    assert isinstance(simulation.logs[0], Log)
    assert "transcription-key" not in repr(simulation.logs)


def test_an_endpoint_of_ones_own_may_ask_for_no_key() -> None:
    endpoint = Transcriptions()
    hear(endpoint, api_key=None)

    assert endpoint.faults == ["incorrect API key"]


def test_nobody_listens() -> None:
    assert list(SilentListener().settle()) == []
