"""The setup of a phone number of WhatsApp: its token, its quality, and where Meta sends messages.

Source: Meta's Graph API, "Phone Number", and "Webhook overrides" (`webhook_configuration`), of
which the narrowest counts.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from ..effects import Fetch, Program
from .identity import Unidentified, body_of
from .provider_values import text_at
from .setup import Asked, Check, check_address, fetch_soon, sentence_of

__all__ = ["check_number", "describe_webhook", "inspect_number"]

_PLACES: Final = ("phone_number", "whatsapp_business_account", "application")
_PAGE: Final = "at https://developers.facebook.com/apps, in the app, at WhatsApp, Configuration"


def check_number(asked: Asked) -> Iterator[Check]:
    """Yield what is to be said of the phone number behind a token."""
    found = asked.found
    if isinstance(found, Unidentified):
        yield Check(
            "credentials",
            False,
            f"Meta does not say which number it is: {found.reason}",
            "take a token of a system user with whatsapp_business_messaging and"
            " whatsapp_business_management, and the ID of the phone number",
        )
        return
    title = f", {sentence_of(found.title)}" if found.title else ""
    yield Check("credentials", True, f"the number is {sentence_of(found.name)}{title}")
    if found.quality == "RED":
        message = "Meta rates the quality of the messages RED"
        yield Check("quality", False, message, "see Insights in the WhatsApp Manager")


def inspect_number(request: Fetch, address: str) -> Program[tuple[Check, ...]]:
    """Ask by `request` where Meta sends the messages of the number."""
    reply = yield from fetch_soon(request)
    root = body_of(reply)
    found = (text_at(root, "webhook_configuration", place) for place in _PLACES)
    (described,) = describe_webhook(address)
    return (check_address(next(filter(None, found), ""), address, described.remedy),)


def describe_webhook(address: str) -> tuple[Check, ...]:
    """Return where the address of the app is entered."""
    return (
        Check(
            "webhook",
            None,
            "Meta takes the address from a person",
            f"{_PAGE}: enter {address} as the Callback URL and the value of the variable of"
            " verify_token_env as the Verify token, and subscribe to the field messages",
        ),
    )
