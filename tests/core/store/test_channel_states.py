from __future__ import annotations

from legation.store.channel_states import FetchIdentities, NoteIdentity, StoredIdentity

from ...one_database import Database


def test_an_identity_is_noted_in_the_place_of_the_one_before() -> None:
    database = Database()
    for name, identity, now_us in (("b", "{}", 1), ("a", "{}", 2), ("b", '{"id":"1"}', 3)):
        database.run(NoteIdentity(name, identity, now_us))

    assert database.run(FetchIdentities()) == (
        StoredIdentity("a", "{}", 2),
        StoredIdentity("b", '{"id":"1"}', 3),
    )
