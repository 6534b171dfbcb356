"""The parts of the core do, under the watch of all tests here, what their page shows."""

from __future__ import annotations

import re
from doctest import DocTestParser, DocTestRunner
from pathlib import Path
from typing import Any, Final

import attrs
import pytest

from legation.access.claims import Claims
from legation.access.decide import Principal, principal_of

from .test_imports import PARTS

ROOT: Final = Path(__file__).parents[2]
PAGE: Final = (ROOT / "docs/howto/parts.md").read_text("utf-8")
REFERENCE: Final = "".join(
    path.read_text("utf-8") for path in sorted((ROOT / "docs/reference").glob("*.md"))
)
EXAMPLES: Final = re.compile(r"^```\{doctest\}\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def run_examples() -> tuple[dict[str, Any], list[str]]:
    """Run all examples of the page; return the names that they made, and what was not as shown."""
    names: dict[str, Any] = {}
    shown: list[str] = []
    for number, text in enumerate(EXAMPLES.findall(PAGE), start=1):
        example = DocTestParser().get_doctest(text, names, f"example {number}", "parts.md", 0)
        DocTestRunner(verbose=False).run(example, out=shown.append, clear_globs=False)
        names = example.globs
    return names, shown


def test_the_examples_of_the_page_are_true() -> None:
    names, shown = run_examples()

    assert shown == []
    assert {"ada", "caller", "crm", "slack", "bot", "phone", "way", "decoder", "form", "state"} <= (
        names.keys()
    )


@pytest.mark.parametrize(
    ("module", "name"),
    sorted(
        (module, name)
        for module, names in re.findall(r"^>>> from (legation\S+) import (.+)$", PAGE, re.MULTILINE)
        for name in names.split(", ")
    ),
)
def test_a_name_that_the_page_imports_is_in_the_reference(module: str, name: str) -> None:
    assert re.search(rf"^\.\. auto\w+:: {re.escape(module)}\.{name}$", REFERENCE, re.MULTILINE)


def test_the_numbers_of_the_page_are_those_of_the_gate() -> None:
    rows = re.findall(r"^\| .+ \| `([\w.]+)`.* \| (\d+) \| ", PAGE, re.MULTILINE)

    assert len(rows) == 7
    assert {module: int(number) for module, number in rows}.items() <= PARTS.items()


@pytest.mark.parametrize("held", [(), ("root",), ("root", "agents:read")])
def test_a_caller_is_what_the_claims_say_without_exception(held: tuple[str, ...]) -> None:
    claims = Claims(
        "ada", "s", frozenset(held), "key", dependencies={"a": 1}, session_state={"b": 2}
    )
    caller = principal_of(claims, "root")

    assert attrs.asdict(caller, recurse=False) == {
        "subject": "ada",
        "scopes": frozenset(held),
        "admin_scope": "root" if "root" in held else "",
        "trusted": False,
        "session_id": "s",
        "key_id": "key",
        "dependencies": {"a": 1},
        "session_state": {"b": 2},
        "owner": "ada",
        "own": "ada",
        "admin": "root" in held,
        "sees_all": "root" in held,
    }
    assert not principal_of(claims).admin
    assert principal_of(Claims("o", None, frozenset({"platform:admin"}), "k")).admin
    assert isinstance(caller, Principal)
