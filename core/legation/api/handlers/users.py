"""The erasure and the export of a user: all that is stored of them, in every database."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Final, TypeAlias

from ...access.decide import Allow, Principal, decide
from ...access.needs import ERASE_USERS, READ_USERS
from ...effects import Now, Program, Transact
from ...erasure.erase import count_person, erase_person
from ...erasure.export import export_person
from ...erasure.people import is_reserved, owners_of, read_user
from ...erasure.receipt import Receipt, write_receipt
from ...http.messages import Response, Streamed, json_response
from ...http.refusals import BadRequest
from ...store.erasure import ListOwned
from ...values import frozen
from ..call import Call
from ..fields import boolean

__all__ = [
    "EraseQuery",
    "erase_user",
    "export_user",
    "find_missing_to_erase",
    "find_missing_to_export",
    "find_user",
]

_RESERVED: Final = (
    "An owner that begins with ~ is no user: delete its sessions by DELETE /sessions?user_id="
)
_NO_USER: Final = "Behind ~base64url: stands the base64url of UTF-8"
Reserved: TypeAlias = Annotated[BadRequest, _RESERVED]
NoUser: TypeAlias = Annotated[BadRequest, _NO_USER]


def find_user(call: Call, _: object) -> str | NoUser | Reserved:
    """Return the user id that the path names."""
    name = read_user(call.params["user_id"])
    if name is None:
        return BadRequest(_NO_USER)
    return BadRequest(_RESERVED) if is_reserved(name) else name


@frozen
class EraseQuery:
    """The choice between an erasure and its count."""

    dry_run: bool = boolean("Count what is stored, and delete nothing", default=False)


def erase_user(call: Call, name: str, query: EraseQuery) -> Program[Response]:
    """Erase all that is stored of a user, and return a receipt; with `dry_run`, count it.

    A token that is for one session erases nobody.
    """
    if query.dry_run:
        call.audit.params = {**call.params, "dry_run": "dry_run"}
        counts = yield from count_person(call.context, name)
    else:
        counts = yield from erase_person(call.context, name, call.change)
    receipt = Receipt(
        user_id=name,
        by=call.principal.subject,
        request_id=call.request_id,
        at_us=(yield from Now()),
        dry_run=query.dry_run,
        counts=counts,
    )
    return json_response(
        call.success, write_receipt(receipt, call.context.cluster.trail_keys.signing)
    )


_HEADERS: Final = (
    (b"content-type", b"application/x-ndjson"),
    (b"content-disposition", b'attachment; filename="user.ndjson"'),
)


def export_user(call: Call, name: str) -> Program[Streamed]:
    """Return all that is stored of a user as NDJSON.

    A caller may export itself by any token that is not for one session.
    """
    # One that is away is an answer of its own, before the first byte.
    for database in call.registry.databases:
        yield from Transact(database, ListOwned(name, 1))
    return Streamed(200, _HEADERS, export_person(call.registry, name))


def find_missing_to_erase(principal: Principal, params: Mapping[str, str]) -> str | None:
    """Return the scope that a token lacks that is for one session."""
    return None if principal.session_id is None else ERASE_USERS.scope


def find_missing_to_export(principal: Principal, params: Mapping[str, str]) -> str | None:
    """Return the scope that is missing to export another user than oneself, or by such a token."""
    name = read_user(params["user_id"])
    if principal.session_id is None and (
        name is None
        or principal.owner == owners_of(name)[0]
        or isinstance(decide(READ_USERS, principal), Allow)
    ):
        return None
    return READ_USERS.scope
