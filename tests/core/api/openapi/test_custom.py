"""The document describes the routes of an application as ours."""

from __future__ import annotations

from typing import Any

from legation import CustomRoute
from legation.access.scopes import AnyToken
from legation.api.openapi.custom import description_faults
from legation_testing import Client

from ....callers import Issuer, demo
from ....orders import Shop, opening_hours, routes_of


def paths() -> dict[str, Any]:
    """Return the paths of a document with orders."""
    with Client(demo(Issuer(), routes=routes_of(Shop()))) as client:
        document: dict[str, Any] = client.get("/openapi.json").json()
    assert {"name": "Orders"} in document["tags"]
    found: dict[str, Any] = document["paths"]
    return found


def test_words_shapes_and_refusals_are_described() -> None:
    create = paths()["/orders"]["post"]

    assert (create["operationId"], create["summary"]) == ("create_order", "Create order")
    assert (create["description"], create["tags"]) == ("One for each room.", ["Orders"])
    assert create["security"][0] == {"HTTPBearer": ["orders:write"]}
    body = create["requestBody"]
    assert body["required"]
    assert body["content"]["application/json"]["schema"]["properties"].keys() == {"room", "nights"}
    assert sorted(create["responses"]) == [
        "201", "400", "401", "403", "409", "413", "422", "429", "500", "503",
    ]  # fmt: skip
    made = create["responses"]["201"]["content"]["application/json"]["schema"]
    assert made["properties"].keys() == {"id", "room", "nights"}
    conflict = create["responses"]["409"]["content"]["application/json"]["example"]
    assert conflict["detail"] == "There is none left"


def test_query_path_and_empty_answers_are_described() -> None:
    found = paths()
    (query,) = found["/orders"]["get"]["parameters"]
    assert (query["name"], query["schema"]["enum"]) == ("room", ["any", "blue", "green"])
    (order_id,) = found["/orders/{order_id}"]["delete"]["parameters"]
    assert (order_id["name"], order_id["in"], order_id["required"]) == ("order_id", "path", True)
    assert "content" not in found["/orders/{order_id}"]["delete"]["responses"]["204"]
    assert found["/hours"]["get"]["responses"]["200"]["content"] == {"*/*": {"schema": {}}}
    assert found["/hours"]["get"]["security"][0] == {}


def test_routes_that_say_all_of_themselves_have_no_fault() -> None:
    hours = CustomRoute(
        "GET", "/hours", AnyToken(), opening_hours, operation="hours", summary="Hours"
    )

    assert list(description_faults((hours, *routes_of(Shop())))) == []
