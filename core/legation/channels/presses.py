"""Questions with buttons: the data of a button, and the replies that a press of one is owed."""

from __future__ import annotations

import re
from typing import Final, Literal

from ..values import frozen
from .deliveries import IncomingMessage, Press
from .replies import Reply

__all__ = ["APPROVE", "REJECT", "Button", "buttons", "is_approval", "owe", "read_press"]

APPROVE: Final = "Approve"
REJECT: Final = "Reject"

_APPROVAL: Final = re.compile(r"[\x21-\x7e]{1,200}\.(?:0|[1-9][0-9]{0,17})")
_YES, _NO = "approve:", "reject:"


@frozen
class Button:
    """A button: its label, and the data that comes back when it is pressed, in ASCII."""

    label: str
    data: str
    approves: bool


def buttons(approval: str) -> tuple[Button, Button]:
    """Return the buttons under a question: yes, and no."""
    return (
        Button(APPROVE, f"{_YES}{approval}", approves=True),
        Button(REJECT, f"{_NO}{approval}", approves=False),
    )


def is_approval(text: str) -> bool:
    """Tell whether `text` has the form of an approval's id: that of a run, and a number."""
    return _APPROVAL.fullmatch(text) is not None


def read_press(data: str, *, token: str = "", prompt: str = "", shown: str = "") -> Press | None:
    """Return the press of a button of ours; None for other data, which may be of any length."""
    verb = next((verb for verb in (_YES, _NO) if data.startswith(verb)), "")
    approval = data.removeprefix(verb)
    if not verb or not is_approval(approval):
        return None
    return Press(approval, verb == _YES, token=token, prompt=prompt, shown=shown)


def owe(
    message: IncomingMessage,
    purpose: Literal["acknowledge", "close"],
    text: str,
    now_us: int,
) -> Reply:
    """Return what the press in `message` is owed; its text is plain."""
    press = message.press or Press("", approves=False)
    return Reply(
        key=f"{purpose}-{message.message_id}",
        recipient=message.conversation,
        text=text,
        thread=message.thread,
        created_us=now_us,
        spans=(),
        message_id=message.message_id,
        purpose=purpose,
        token=press.token,
        prompt=press.prompt,
    )
