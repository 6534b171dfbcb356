from __future__ import annotations

import re

from legation.effects import RandomBytes
from legation.runs.ids import new_id
from legation_testing import play


def test_an_id_is_a_random_uuid() -> None:
    made = play(new_id(), [(RandomBytes(16), bytes(range(16)))])

    assert re.fullmatch(
        r"[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}", made
    )
