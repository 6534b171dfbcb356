"""Speech as text: a model behind `{base_url}/audio/transcriptions`, as OpenAI's API has it.

Source: OpenAI's API reference, "Create transcription": a form (RFC 7578) with the recording and the
name of the model, answered by JSON with a `text`.  A question that fails is asked again as one for
an answer is (`exchange`).
"""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import sha256
from typing import Any, Final

from attrs import evolve, field

from ..effects import Program
from ..http.sse import ForeignEvent
from ..values import define, frozen
from .chat_completions import ChatCompletions, check_answer
from .conversation import Reply, SilentListener, Usage, storable
from .exchange import ask
from .provider_json import require_table
from .trouble import Trouble

__all__ = ["Transcriber"]

# The provider goes by the name of the file, of these endings.
_ENDINGS: Final[Mapping[str, str]] = {
    "audio/aac": "m4a",
    "audio/flac": "flac",
    "audio/m4a": "m4a",
    "audio/mp3": "mp3",
    "audio/mp4": "mp4",
    "audio/mpeg": "mp3",
    "audio/wav": "wav",
    "audio/wave": "wav",
    "audio/webm": "webm",
    "audio/x-m4a": "m4a",
    "audio/x-wav": "wav",
}
_USUAL: Final = "ogg"
_MAX_BYTES: Final = 1 << 20
"""Of one answer: more than is spoken in a day."""

_FORM: Final = (
    '--{boundary}\r\nContent-Disposition: form-data; name="model"\r\n\r\n{model}\r\n'
    '--{boundary}\r\nContent-Disposition: form-data; name="file"; filename="audio.{ending}"\r\n'
    "Content-Type: {mime_type}\r\n\r\n"
)


@frozen
class Transcriber:
    """The model that hears: at the address of `model`, with its key, time limits and retries."""

    model: ChatCompletions

    def transcribe(self, recording: bytes, mime_type: str) -> Program[str]:
        """Return what is spoken in `recording`, of a media type without parameters.

        Raises:
            ModelFailed: There is no answer.
        """
        boundary = sha256(recording).hexdigest()  # stands in no recording but by a miracle
        head = _FORM.format(
            boundary=boundary,
            model=self.model.id,
            ending=_ENDINGS.get(mime_type, _USUAL),
            mime_type=mime_type,
        )
        body = b"".join((head.encode(), recording, f"\r\n--{boundary}--\r\n".encode()))
        key = self.model.api_key
        headers = (
            ("content-type", f"multipart/form-data; boundary={boundary}"),
            ("accept", "application/json"),
            *((("authorization", f"Bearer {key}"),) if key else ()),
        )
        question = self.model.question("/audio/transcriptions", (), body)
        sent = evolve(question, headers=headers, max_bytes=_MAX_BYTES)
        return (yield from ask(sent, _Transcript, SilentListener())).content


@define
class _Transcript:
    """The reader of an answer, which comes whole; a stream of events was not asked for."""

    text: str | None = None
    complete: bool = False
    has_ended: bool = True
    visible: tuple[str, ...] = ()
    usage: Usage = field(factory=Usage)

    def event(self, event: ForeignEvent) -> str:
        """Refuse the answer."""
        raise Trouble("broken")

    def whole(self, value: Any) -> str:
        """Take the answer."""
        answer = require_table(value)
        check_answer(answer)
        said = answer.get("text")
        if not isinstance(said, str):
            raise Trouble("broken")
        self.text = storable(said).strip()
        return ""

    def reply(self) -> Reply:
        """Return the text, if there was one."""
        if self.text is None:
            raise Trouble("broken")
        return Reply(self.text)
