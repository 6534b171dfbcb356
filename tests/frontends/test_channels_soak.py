"""Real servers, killed at random while messages pour in: on SQLite, and two nodes on PostgreSQL.

What a node was doing when it was killed is taken over when its leases run out, here after 8 s.
`LEGATION_SOAK=10000` makes it the long one.

It is run on the newest Python alone: `test_runs_kill` kills a server on the oldest.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
import trio

from ..providers.soak import Plan, Soak

pytestmark = pytest.mark.newest

_LONG = int(os.environ.get("LEGATION_SOAK", "0"))
PLAN = (
    Plan(_LONG, kills=20, seconds_between_kills=1.0)
    if _LONG
    else Plan(750, kills=2, senders=60, seconds_between_kills=0.4)
)


async def test_every_message_that_was_taken_is_answered_once_and_in_order(
    tmp_path: Path, request: pytest.FixtureRequest, figures: Callable[[str], None]
) -> None:
    soaks = [
        Soak("SQLite, one node", PLAN, f"sqlite:///{tmp_path}/one.db", 1, _made(tmp_path, "1"))
    ]
    try:
        url = request.getfixturevalue("postgres_database")
    except pytest.skip.Exception as reason:
        figures(f"soak on PostgreSQL: left out, {reason}")
    else:
        soaks.append(Soak("PostgreSQL, two nodes", PLAN, url, 2, _made(tmp_path, "2")))

    async def one(soak: Soak) -> None:
        figures(await soak.run())

    if _LONG:
        for soak in soaks:
            await one(soak)
        return
    async with trio.open_nursery() as nursery:
        for soak in soaks:
            nursery.start_soon(one, soak)


def _made(folder: Path, name: str) -> Path:
    path = folder / name
    path.mkdir()
    return path
