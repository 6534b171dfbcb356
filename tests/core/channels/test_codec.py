"""What the kinds of channels have in common."""

from __future__ import annotations

import pytest

from legation.channels import Slack, Standard, Telegram
from legation.channels.codec import Codec
from legation.channels.deliveries import Attachment
from legation.channels.signatures import SignatureRefused

STANDARD = Standard("s", "whsec_" + "A" * 32, "https://chat.example")


@pytest.mark.parametrize(
    "codec",
    [Slack("s", "secret", "xoxb-1"), Telegram("t", "secret", "1:a"), STANDARD],
    ids=lambda codec: codec.kind,
)
def test_who_knows_no_handshake_refuses_one(codec: Codec) -> None:
    assert codec.handshake([("hub.mode", "subscribe")]) == SignatureRefused("no handshake")


def test_without_files_nothing_is_asked_for_one() -> None:
    file = Attachment("id", "image/png", "a.png")

    assert (STANDARD.locate(file), STANDARD.download(file, None)) == (None, None)
