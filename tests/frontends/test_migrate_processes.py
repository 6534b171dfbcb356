"""Eight processes migrate one database at the same moment: one does it, and all succeed."""

from __future__ import annotations

from collections.abc import Callable, Generator
from pathlib import Path
from typing import Final

import pytest

from .migrating import LATEST, Migrators, asked, migrators

PROCESSES: Final = 8


@pytest.fixture(scope="module")
def processes() -> Generator[Migrators]:
    """The processes; each opens a host of its own for every database."""
    with migrators(PROCESSES) as started:
        yield started


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'main.db'}"
    made: str = request.getfixturevalue("postgres")
    return made


@pytest.mark.parametrize("from_version", [None, "2.3.0"], ids=["empty", "at 2.3.0"])
async def test_of_eight_processes_one_does_the_moves_and_all_answer_200(
    processes: Migrators, url: str, from_version: str | None, figures: Callable[[str], None]
) -> None:
    async with asked(url) as ask:
        if from_version is not None:
            await ask("POST", f"/databases/main/migrate?target_version={from_version}")
        before = (await ask("GET", "/databases/main/migrations")).json["meta"]["total_count"]

        answers = processes.migrate(url)

        history = (await ask("GET", "/databases/main/migrations")).json
        sentence = f"Database migrated successfully to version {LATEST}"
        assert [status for status, _ in answers] == [200] * PROCESSES
        assert {told["message"] for _, told in answers} == {sentence}
        movers = [told for _, told in answers if told["moves"]]
        assert [told["from_version"] for told in movers] == [from_version or "0.0.0"]
        assert history["meta"]["total_count"] == before + 1
        assert (history["version"], history["state"]) == (LATEST, "current")
    engine = url.partition(":")[0]
    figures(
        f"migrations, {engine}: {PROCESSES} processes at once from {from_version or 'nothing'}:"
        f" {len(movers)} moved, {len(answers)} answered 200"
    )
