"""The documentation is true: its pages are followed, its tables are complete."""

from __future__ import annotations

import os
import re
import sqlite3
import sys
import tomllib
from collections.abc import Generator, Mapping
from contextlib import closing, contextmanager
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any, Final, get_args

import attrs
import pytest

import legation
import legation_asgi
import legation_testing
from legation.config import structure
from legation.findings import FINDINGS
from legation.runs.events import Event

from .asgi_driver import AsgiDriver
from .providers.chat_completions import ChatCompletionsServer
from .providers.model_server import KEY, Item, Refusal, Said, serving
from .transcripts import DOCS, ROOT, Terminal, blocks, follow

PAGES: Final = sorted(path for path in DOCS.rglob("*.md") if "_build" not in path.parts)
FOLLOWED: Final = (
    "tutorial",
    "howto/audit",
    "howto/authorization",
    "howto/backup",
    "howto/callables",
    "howto/channels",
    "howto/chat",
    "howto/dead-letters",
    "howto/doctor",
    "howto/durable-runs",
    "howto/erasing",
    "howto/extending",
    "howto/files",
    "howto/forks",
    "howto/identity-providers",
    "howto/install",
    "howto/limits",
    "howto/migrating",
    "howto/observing",
    "howto/production",
    "howto/project",
    "howto/replay",
    "howto/retention",
    "howto/retries",
    "howto/runs",
    "howto/sessions",
    "howto/slack",
    "howto/standard-webhooks",
    "howto/storm",
    "howto/streaming",
    "howto/structured-output",
    "howto/teams",
    "howto/telegram",
    "howto/testing",
    "howto/tools",
    "howto/upgrade",
    "howto/whatsapp",
)


def load(path: Path) -> Any:
    spec = spec_from_file_location(f"page_{path.stem}", path)
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


# --- followed ------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", FOLLOWED)
def test_page_says_what_happens(tmp_path: Path, name: str) -> None:
    with Terminal(tmp_path) as terminal:
        assert follow(DOCS / f"{name}.md", terminal) > 0


def test_two_nodes_on_postgresql_do_what_the_page_says(
    tmp_path: Path, postgres_database: str
) -> None:
    instead = {"postgresql://legation@db.internal/legation": postgres_database}
    with Terminal(tmp_path, instead) as terminal:
        assert follow(DOCS / "howto/postgresql.md", terminal) > 0


def test_an_import_prints_what_the_page_says(tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "agno.db")) as connection:
        connection.executescript((ROOT / "tests/agentos/3.1.10.sql").read_text("utf-8"))
    with Terminal(tmp_path) as terminal:
        assert follow(DOCS / "howto/agentos-import.md", terminal) > 0


class ModelOfThePage(ChatCompletionsServer):
    """A provider that answers a wrong key as the real one does."""

    def take(self, path: str, headers: Mapping[str, str], body: bytes) -> Item:
        """Judge a request; a wrong key alone is 401, and no other fault."""
        if headers.get("authorization") == "Bearer sk-misspelt":
            return Refusal(401)
        return super().take(path, headers, body)


def test_model_answers_and_refuses_as_the_page_says(tmp_path: Path) -> None:
    opera = Said(("The opera of Oslo is in ", "Bjørvika, by the fjord."))
    model = ModelOfThePage([opera, Said(("Next to the opera.",), tokens=(31, 12))])
    with serving(model) as address:
        provider = 'provider = "openai"\nid = "gpt-5-mini"'
        instead = {
            provider: f'{provider}\nbase_url = "{address}/v1"',
            "sk-your-key": KEY,
        }
        with Terminal(tmp_path, instead) as terminal:
            assert follow(DOCS / "howto/models.md", terminal) > 0

    assert model.broken == []
    assert len(model.seen) == 2


async def test_an_embedded_platform_answers(tmp_path: Path) -> None:
    for block in blocks(DOCS / "howto/embedding.md"):
        if block.caption:
            (tmp_path / block.caption).write_text(block.text, "utf-8")
    with working_in(tmp_path):
        served = AsgiDriver(load(tmp_path / "served.py").app)
        async with served.alive():
            assert (await served.get("/agents"))[1].startswith(b'[{"id":"concierge"')


@contextmanager
def working_in(folder: Path) -> Generator[None]:
    before = Path.cwd()
    os.chdir(folder)
    try:
        yield
    finally:
        os.chdir(before)


def test_commands_are_shown_nowhere_without_being_run() -> None:
    typed = {
        page.relative_to(DOCS).with_suffix("").as_posix()
        for page in PAGES
        if any(block.language == "console" for block in blocks(page))
    }

    assert typed == {*FOLLOWED, "howto/agentos-import", "howto/models", "howto/postgresql"}


def test_options_that_are_named_are_there(drawn: Any) -> None:
    """Also where a command is shown and not run."""
    pages = (*PAGES, ROOT / "README.md", ROOT / "examples/README.md")
    found = 0
    for page in pages:
        for name, rest in re.findall(r"legation (\w+)((?: [^`\n]*)?)", page.read_text("utf-8")):
            command = drawn.main.commands.get(name)
            options = set(re.findall(r"(?<=\s)--[a-z-]+", rest.partition("|")[0]))
            if command is None or not options:
                continue
            for _ in range(hasattr(command, "commands")):
                command = command.commands[rest.split()[0]]
            known = {option for parameter in command.params for option in parameter.opts}
            assert options <= known, f"{page.name}: legation {name}{rest}"
            found += len(options)

    assert found > 10


def test_the_page_of_the_doctor_lists_every_finding() -> None:
    text = (DOCS / "howto/doctor.md").read_text("utf-8").partition("## Reference")[2]
    rows = [line.strip("| ").split(" | ") for line in text.splitlines() if line.startswith("| `")]

    assert rows == [
        [f"`{code}`", kind.severity, kind.meaning, kind.remedy] for code, kind in FINDINGS.items()
    ]


def test_tutorial_is_installed_as_the_readme_is() -> None:
    (install,) = (block.text for block in blocks(DOCS / "tutorial.md") if block.language == "sh")
    readme = (ROOT / "README.md").read_text("utf-8")

    assert (
        install.rpartition(" && ")[0] in readme
    )  # `nox -s build` does it, in an empty environment


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(DOCS)))
def test_configurations_that_are_shown_have_no_unknown_key(page: Path) -> None:
    for block in blocks(page):
        if block.language == "toml":
            structure(tomllib.loads(block.text))


# --- complete ------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def drawn() -> Any:
    """The module that draws the reference; it needs no Sphinx."""
    return load(DOCS / "_ext/drawn.py")


def explained(page: str) -> dict[str, list[str]]:
    """Return the lines under each `configuration` directive of a page."""
    text = (DOCS / page).read_text("utf-8")
    found = re.findall(r"^```\{configuration\} (\w+)\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    return {name: body.splitlines() for name, body in found}


def test_every_key_of_the_configuration_is_explained(drawn: Any) -> None:
    tables = explained("reference/configuration.md")

    assert tables.keys() == drawn.CONFIGURATION.keys()
    for name, lines in tables.items():
        assert drawn.meanings(lines).keys() == drawn.keys_of(drawn.CONFIGURATION[name]).keys()


def test_key_that_is_not_explained_fails_the_build(drawn: Any) -> None:
    with pytest.raises(ValueError, match="Database: not explained: retention, url"):
        drawn.configuration("Database", ["id: x", "auto_migrate: x"])


def test_every_field_of_a_public_class_is_described(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", [str(DOCS / "_ext"), *sys.path])
    described = load(DOCS / "_ext/fields.py").describe_fields
    public = (getattr(legation, name) for name in legation.__all__)
    classes = [one for one in public if isinstance(one, type)]
    missing = {
        cls.__name__: [name for name, meaning in described(cls).items() if not meaning]
        for cls in classes
    }

    assert len(described(legation.Platform)) > 15
    assert len(described(legation.Agent)) > 15
    assert [entry for entry in missing.items() if entry[1]] == []


@pytest.mark.parametrize("module", [legation_testing, legation_asgi], ids=lambda m: m.__name__)
def test_every_field_of_a_class_for_tests_and_hosts_is_described(module: ModuleType) -> None:
    """In the docstring of its class, or of the one that it inherits the field from."""
    public = (getattr(module, name) for name in module.__all__)
    missing = [
        f"{cls.__name__}.{entry.name}"
        for cls in public
        if isinstance(cls, type) and attrs.has(cls)
        for entry in attrs.fields(cls)
        if not entry.name.startswith("_") and not is_described(cls, entry.name)
    ]

    assert missing == []


def is_described(cls: type[Any], name: str) -> bool:
    texts = (base.__doc__ or "" for base in cls.__mro__)
    return any(re.search(rf"^\s+{name}: ", text, re.MULTILINE) for text in texts)


def test_default_exclusions_are_listed(drawn: Any) -> None:
    page = (DOCS / "reference/configuration.md").read_text("utf-8")
    listed = " ".join(page.partition("Excluded by default are ")[2].partition(".  ")[0].split())

    assert tuple(re.findall(r"`([^`]+)`", listed)) == drawn.config.DEFAULT_EXCLUDED_ROUTES


def test_every_route_command_effect_and_refusal_is_in_the_reference(drawn: Any) -> None:
    surface, commands = drawn.surface(), drawn.commands()

    assert all(f"`{r.method} {r.template}`" in surface for r in drawn.routes.ROUTES)
    assert all(f"legation {name}" in commands for name in drawn.main.commands)
    assert all(f"[`{name}`]" in drawn.effects() for name in ("Transact", "Fetch", "Emit"))
    assert all(str(status) in drawn.errors() for status in (400, 401, 403, 404, 405, 409, 413))


def test_every_argument_of_a_run_is_in_the_table_for_who_comes_from_agentos(drawn: Any) -> None:
    page = (DOCS / "howto/agentos.md").read_text("utf-8")
    rows = drawn.run_arguments().splitlines()[2:]

    assert "```{run-arguments}\n```" in page
    assert len(rows) == len(drawn.ARGUMENTS)
    assert all(argument.meaning in row for argument, row in zip(drawn.ARGUMENTS, rows, strict=True))


def test_event_names_in_the_reference_are_those_of_the_code(drawn: Any) -> None:
    page = (DOCS / "reference/events.md").read_text("utf-8")
    code = "".join(p.read_text("utf-8") for p in (ROOT / "core/legation/runs").glob("*.py"))
    names = {event.name for event in get_args(Event)}
    reasons = set(re.findall(r'\bfail\([^()]*"(\w+)"\)', code))

    assert len(names) > 10
    assert all(name in page for name in names), names
    assert "not_hosted" in reasons
    assert all(reason in page for reason in reasons), reasons


def test_no_path_of_this_machine_is_in_a_page() -> None:
    for page in PAGES:
        assert str(ROOT) not in page.read_text("utf-8")
        assert sys.prefix not in page.read_text("utf-8")
