"""What the page agent-ui asks, in its order, and every field that it reads of the answers."""

from __future__ import annotations

import json
from typing import Any, Final

from legation import Platform
from legation.config import Agent, Team
from legation_testing import Client

ORIGIN: Final = {"origin": "http://localhost:3000"}
BOUNDARY: Final = "----WebKitFormBoundaryABC"


def form(**fields: str) -> dict[str, Any]:
    parts = "".join(
        f'--{BOUNDARY}\r\nContent-Disposition: form-data; name="{name}"\r\n\r\n{value}\r\n'
        for name, value in fields.items()
    )
    media_type = f"multipart/form-data; boundary={BOUNDARY}"
    return {
        "body": f"{parts}--{BOUNDARY}--\r\n".encode(),
        "headers": {**ORIGIN, "content-type": media_type},
    }


def objects(text: str) -> list[dict[str, Any]]:
    """Cut balanced objects out of the bytes, wherever they are, as the page does."""
    found: list[dict[str, Any]] = []
    depth, start = 0, 0
    for index, character in enumerate(text):
        if character == "{":
            start = index if depth == 0 else start
            depth += 1
        elif character == "}":
            depth -= 1
            if depth == 0:
                found.append(json.loads(text[start : index + 1]))
    return found


def test_the_page_finds_every_field_that_it_reads() -> None:
    platform = Platform(
        agents=(Agent(id="concierge", name="Concierge"),),
        teams=(Team(id="desk", members=("concierge",)),),
    )
    with Client(platform) as client:
        preflight = {**ORIGIN, "access-control-request-method": "GET"}
        assert client.request("OPTIONS", "/health", headers=preflight).status in (200, 204)
        assert client.get("/health", headers=ORIGIN).status == 200
        (team,) = client.get("/teams", headers=ORIGIN).json()
        (agent,) = client.get("/agents", headers=ORIGIN).json()
        for hosted in (team, agent):
            assert {"id", "name", "db_id"} <= hosted.keys()
            assert {"model", "provider"} <= hosted["model"].keys()
        place = f"component_id=concierge&db_id={agent['db_id']}"
        assert client.get(f"/sessions?type=agent&{place}", headers=ORIGIN).json()["data"] == []

        sent = form(message="hello", stream="true", session_id="")
        answer = client.post("/agents/concierge/runs", **sent)
        events = objects(answer.body.decode())
        assert all(isinstance(event["event"], str) for event in events)
        started, ended = events[0], events[-1]
        assert {"session_id", "created_at"} <= started.keys()
        assert "".join(e["content"] for e in events if e["event"] == "RunContent") == "hello"
        assert (ended["event"], ended["content"]) == ("RunCompleted", "hello")

        (row,) = client.get(f"/sessions?type=agent&{place}", headers=ORIGIN).json()["data"]
        assert (row["session_id"], row["session_name"]) == (started["session_id"], "hello")
        assert "created_at" in row
        path = f"/sessions/{row['session_id']}"
        (run,) = client.get(f"{path}/runs?type=agent&db_id=main", headers=ORIGIN).json()
        read = {"run_input", "content", "tools", "created_at", "images", "videos", "audio"}
        assert read <= run.keys()
        assert client.delete(f"{path}?db_id=main", headers=ORIGIN).status == 204
        refused = client.post("/agents/concierge/runs", **form(message="", stream="true"))
        assert isinstance(refused.json()["detail"], str)
