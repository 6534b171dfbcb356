"""The page `/docs` in a browser: operations are tried as it opens, nothing is typed.

A handful of them, of every kind; with LEGATION_NIGHTLY=1 all there are.
"""

from __future__ import annotations

import os
import time
from collections.abc import Generator
from pathlib import Path
from typing import Final

import pytest

from legation_cli.hotel import make_hotel
from legation_host.assets import read_assets
from legation_testing import Client

from ..browser import Browser, NoBrowser, browser
from ..swagger_requests import SwaggerRequest
from .hosted import hosted
from .test_docs_operations import WEBHOOKS, make_past, read_requests, refuse

pytestmark = [
    pytest.mark.newest,
    pytest.mark.skipif(
        not read_assets(), reason="the files of the pages are not here: build the package, or -e it"
    ),
]

FEW: Final = {
    "get_agents",
    "create_agent_run",
    "continue_team_run",
    "resume_agent_run",
    "get_runs_events",
    "delete_sessions",
    "resolve_approval_approvals__approval_id__resolve_post",
    "migrate_database",
    "retry_channel_reply",
    "receive_webhook_help",
}


@pytest.fixture(scope="module")
def origin(tmp_path_factory: pytest.TempPathFactory) -> Generator[str]:
    file = tmp_path_factory.mktemp("hotel") / "hotel.db"
    platform = make_hotel(f"sqlite:///{file}")
    now_us = time.time_ns() // 1_000  # a message that was answered long ago is deleted
    with Client(platform, databases={"main": str(file)}, start_us=now_us, fetch=refuse) as client:
        make_past(client)
    with hosted(make_hotel(f"sqlite:///{file}")) as base:
        yield base


@pytest.fixture
def page() -> Generator[Browser]:
    try:
        with browser() as started:
            started.open()
            yield started
    except NoBrowser as reason:
        pytest.skip(str(reason))


def try_out(page: Browser, one: SwaggerRequest) -> int:
    """Open an operation, click twice, and return the status that the page shows."""
    block = f"#operations-{one.tag.replace(' ', '_')}-{one.operation}"
    page.click(f"{block} .opblock-summary-control")
    page.click(f"{block} .try-out__btn")
    page.click(f"{block} .execute")
    status = page.text(f"{block} .live-responses-table tbody .response-col_status")
    page.click(f"{block} .opblock-summary-control")
    return int(status.split()[0])


def test_operations_succeed_as_the_page_opens(origin: str, page: Browser, tmp_path: Path) -> None:
    every = read_requests()
    chosen = (
        every if os.environ.get("LEGATION_NIGHTLY") else [r for r in every if r.operation in FEW]
    )
    page.go(f"{origin}/docs")
    statuses = {one.operation: try_out(page, one) for one in chosen}
    page.shoot(tmp_path / "docs.png")

    wrong = {
        name: status
        for name, status in statuses.items()
        if (status != 403 if name in WEBHOOKS else status >= 400)
    }
    assert not wrong
    assert len(statuses) == len(chosen) >= len(FEW)
    unsigned = f"{origin}/help/webhook"
    assert not [text for text in page.complaints if not text.endswith(unsigned)]


def test_a_form_with_files_succeeds_without_a_complaint(origin: str, page: Browser) -> None:
    block = "#operations-Agents-create_agent_run"
    page.go(f"{origin}/docs")
    page.click(f"{block} .opblock-summary-control")
    page.click(f"{block} .try-out__btn")
    page.run(
        f"""(() => {{
            const choice = document.querySelector("{block} .body-param-content-type select");
            const set = Object.getOwnPropertyDescriptor(HTMLSelectElement.prototype, "value").set;
            set.call(choice, "multipart/form-data");
            choice.dispatchEvent(new Event("change", {{bubbles: true}}));
        }})()"""
    )
    page.wait(f"!!document.querySelector('{block} .parameters[data-property-name=files]')")
    page.click(f"{block} .execute")

    status = page.text(f"{block} .live-responses-table tbody .response-col_status")
    assert status.startswith("200")
    assert not page.complaints


def test_the_reference_shows_the_examples(origin: str, page: Browser) -> None:
    page.go(f"{origin}/redoc#tag/Agents/operation/create_agent_run")
    page.wait("!!document.body?.innerText.includes('What can you do?')")

    assert not page.complaints
