"""The hosting of notices: a channel that only sends, in each database where there are runs.

A notice is stored in the transaction in which its run pauses or ends, and so in its database.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from ..channels.notices import Notices
from ..channels.settings import check_url
from ..config import Notify
from ..http.refusals import Fault
from ..values import frozen
from .secret_sources import SecretReader

__all__ = ["NOTIFY", "NotifyRule", "make_notices", "notify_faults", "read_secrets"]

NOTIFY: Final = "notify"
"""The id of the channel in the first database; in another one, its id follows behind a point."""

_WORDS: Final = ("paused", "failed")


@frozen
class NotifyRule:
    """The runs of one database that somebody hears of, and the channel by which."""

    channel: str
    on: frozenset[str]
    components: frozenset[str]

    def concerns(self, what: str, component: str) -> bool:
        """Return whether somebody hears of it that a run of `component` is `what`."""
        return what in self.on and (not self.components or component in self.components)


def notify_faults(
    notify: Notify,
    components: Iterable[str],
    channels: Iterable[str],
) -> Iterator[Fault]:
    """Yield every fault of `notify`, beside what is hosted."""
    known = sorted(components)
    if (wrong := check_url(notify.url)) is not None:
        yield Fault(f"{NOTIFY}.url", wrong)
    if notify.secret_env is None and notify.secret_file is None:
        yield Fault(f"{NOTIFY}.secret_env", "missing")
    if not notify.on:
        yield Fault(f"{NOTIFY}.on", "is empty: name one, or leave it out")
    for index, word in enumerate(notify.on):
        if word not in _WORDS:
            yield Fault(f"{NOTIFY}.on[{index}]", f"{word!r} is none of: {', '.join(_WORDS)}")
    for index, name in enumerate(notify.components):
        if name not in known:
            sentence = f"{name!r} is none of: {', '.join(known)}"
            yield Fault(f"{NOTIFY}.components[{index}]", sentence)
    for name in channels:
        if name == NOTIFY or name.startswith(f"{NOTIFY}."):
            yield Fault(f"channels.{name}", "has the name of the channel that [notify] makes")


def read_secrets(notify: Notify, secrets: SecretReader) -> tuple[str | None, str | None]:
    """Return the secret of `notify` and the one before, as far as they are there."""
    now = secrets.read(f"{NOTIFY}.secret", notify.secret_env, notify.secret_file)
    before = (notify.previous_secret_env, notify.previous_secret_file)
    return now, secrets.read(f"{NOTIFY}.previous_secret", *before)


def make_notices(
    notify: Notify, channel: str, read: tuple[str | None, str | None], secrets: SecretReader
) -> Notices | None:
    """Return the codec of the channel of notices; None where its secret is none."""
    now, before = read
    try:
        return Notices(channel, now or "", notify.url, before)
    except ValueError as error:
        key = "secret_env" if notify.secret_file is None else "secret_file"
        secrets.say(f"{NOTIFY}.{key}", str(error))
        return None
