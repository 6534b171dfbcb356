"""Find what the packages define and nothing in them uses: `python -m tests.dead_code`.

Vulture compares names over all modules.  What a module exports by `__all__` is not used by that:
every module exports its public names.  A parameter in the text of a statement, `:name`, uses the
field of that name.  Tests are not read, so that what only they use is dead.
What something else uses is in `EXCUSED`, each with the reason; an excuse that excuses nothing is
reported too.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterable, Iterator
from fnmatch import fnmatch
from pathlib import Path
from typing import Any, Final, NamedTuple, cast

import vulture  # type: ignore[import-untyped]  # pyright: ignore[reportMissingTypeStubs]

__all__ = ["EXCUSED", "report"]

ROOT: Final = Path(__file__).parents[1]
SOURCES: Final = ("core", "frontends")
# Imports are ruff's.
KINDS: Final = frozenset(
    {"attribute", "class", "function", "method", "property", "unreachable_code", "variable"}
)
PARAMETER: Final = re.compile(r"(?<![:\w]):([a-z_]+)\b")
STATEMENTS: Final = "core/legation/store/"

EXCUSED: Final = (
    # Read by another name.
    "core/legation/config.py:*_env",  # a channel's secrets are looked up by the name of the setting
    "core/legation/config.py:*_file",  # ... and their files
    "core/legation/config.py:*_days",  # of retention: looked up by the kind of data
    "core/legation/kinds.py:*",  # settings, read by the names that codecs have for them
    "core/legation/runs/events.py:*",  # the members of the data of events: encoded by their names
    # Kept with the fields beside them, which are read.
    "core/legation/channels/deliveries.py:reply_to",  # what a message answers, as the provider says
    "core/legation/api/handlers/runs.py:last_event_id",  # a header: its handler parses it
    # Compared with what is written, and drawn on the reference page.
    "core/legation/observability/log_events.py:LOG_EVENTS",  # the list that both are held to
    "core/legation/observability/log_events.py:levels",  # a field of its rows
    # Asked by Python or by a library.
    "core/legation/http/refusals.py:__init_subclass__",  # for each class of refusals
    "core/legation/__init__.py:__*__",  # the names of the package that are imported late ...
    "core/legation/access/__init__.py:__*__",  # ... what reads keys ...
    "core/legation/channels/__init__.py:__*__",  # ... the kinds of channels ...
    "core/legation/models/__init__.py:__*__",  # ... the codecs of providers ...
    "core/legation/api/__init__.py:__*__",  # ... the OpenAPI document ...
    "core/legation/api/handlers/__init__.py:__*__",  # ... most handlers ...
    "core/legation/api/late_handlers.py:__*__",  # ... with what stands for them ...
    "frontends/legation_server/__init__.py:__*__",  # ... and what several workers need
    "core/legation/channels/markup.py:normalizeLink*",  # override those of markdown-it's parser ...
    "core/legation/channels/markup.py:validateLink",  # ... as this
    "core/legation/values.py:__*__",  # methods that a class is given
    "frontends/legation_adapters/langgraph.py:on_llm_*",  # override LangChain's callbacks ...
    "frontends/legation_adapters/langgraph.py:run_inline",  # ... and say on which thread
    "frontends/legation_adapters/openai_agents.py:on_invoke_tool",  # a field of the SDK's tools
    "frontends/legation_adapters/pydantic_ai.py:get_wrapper_model",  # override those of ...
    "frontends/legation_adapters/pydantic_ai.py:wrap_tool_execute",  # ... the framework's ...
    "frontends/legation_adapters/pydantic_ai.py:handle_deferred_tool_calls",  # ... capability
    "frontends/legation_cli/agentos_source.py:text_factory",  # a setting of a connection
    "frontends/legation_cli/import_agentos.py:agentos",  # a command of click's
    "frontends/legation_cli/users.py:erase",  # a command of click's
    "frontends/legation_cli/doctor.py:doctor",  # commands that are imported by their names ...
    "frontends/legation_cli/restore.py:restore",  # ... as this ...
    "frontends/legation_cli/round.py:round_once",  # ... and this
    "frontends/legation_cli/main.py:color",  # a setting of click's context
    "frontends/legation_host/hints.py:nonblocking",  # a setting of a libpq connection
    "frontends/legation_host/otel.py:generate_*_id",  # override OpenTelemetry's `IdGenerator`
    "frontends/legation_server/tls.py:minimum_version",  # a setting of an `SSLContext`
    "frontends/legation_testing/pytest_replay.py:pytest_*",  # hooks of pytest
    "frontends/legation_testing/pytest_replay.py:runtest",  # override those of pytest's `Item` ...
    "frontends/legation_testing/pytest_replay.py:reportinfo",  # ... as this
    # A test compares them with the tables of the catalogue.
    "core/legation/store/periods.py:*_by",
    # What a configuration names as `genai-prices`.
    "frontends/legation_host/genai_prices.py:find_price",
    # For tests: the project's own, or those that its users write with `legation_testing`.
    "core/legation/erasure/receipt.py:verify_receipt",  # documented in docs/howto/erasing.md
    "core/legation/store/units.py:all_sql",  # every statement is prepared on both databases
    "frontends/legation_testing/client.py:delete",  # one of the client's HTTP methods
    "frontends/legation_testing/client.py:stream_team",  # documented in docs/howto/testing.md
    "frontends/legation_testing/client.py:confirmation_note",  # a field of the answer to a run
    "frontends/legation_testing/pytest_storm.py:pytest_*",  # hooks that pytest calls
    "frontends/legation_testing/tool_storm/world.py:override",  # as that of the client
    "frontends/legation_testing/run_events.py:*",  # the members of events: read by their names
    "frontends/legation_testing/run_results.py:*",  # the members of a run: read by their names
    "frontends/legation_testing/client.py:override",  # a test gives a platform another model
    "frontends/legation_testing/clock.py:now_s",  # a test asserts when something happened
    "frontends/legation_testing/clock.py:set_forward",  # a test sets the clock of the wall
    "frontends/legation_testing/exchange.py:disconnect",  # a test leaves in the middle of a stream
    "frontends/legation_testing/scripted_model.py:steps_left",  # a test asserts that all were asked
    "frontends/legation_testing/simulation.py:find_running",  # a test asserts that nothing is left
)


class Unused(NamedTuple):
    """A name that nothing uses: the line it is on, and its own key in `EXCUSED`."""

    key: str
    line: str


def is_export(statement: ast.stmt) -> bool:
    """Tell whether `statement` binds `__all__`."""
    targets = statement.targets if isinstance(statement, ast.Assign) else []
    return any(isinstance(target, ast.Name) and target.id == "__all__" for target in targets)


def without_exports(text: str) -> str:
    """Return the text of a module with its `__all__` emptied, and every line where it was."""
    lines = text.splitlines()
    for statement in filter(is_export, ast.parse(text).body):
        start, end = statement.lineno - 1, statement.end_lineno or statement.lineno
        lines[start:end] = [""] * (end - start)
    return "\n".join(lines)


def unused(root: Path) -> Iterator[Unused]:
    """Yield what nothing below `root` uses."""
    judge = cast("Any", vulture.Vulture())
    parameters: set[str] = set()
    for source in SOURCES:
        for path in sorted((root / source).rglob("*.py")):
            text = path.read_text(encoding="utf-8")
            shown = text if path.name == "__init__.py" else without_exports(text)
            judge.scan(shown, filename=path.relative_to(root))
            if path.relative_to(root).as_posix().startswith(STATEMENTS):
                parameters.update(PARAMETER.findall(text))
    for item in judge.get_unused_code():
        file = item.filename.as_posix()
        bound = file.startswith(STATEMENTS) and item.name in parameters
        if item.typ in KINDS and not bound:
            kind = "code after" if item.typ == "unreachable_code" else item.typ
            line = f"{file}:{item.first_lineno}: nothing uses the {kind} {item.name}"
            yield Unused(f"{file}:{item.name}", line)


def report(root: Path, excused: Iterable[str] = EXCUSED) -> list[str]:
    """Return a line for each unused name that is not excused, and for each excuse of nothing."""
    found = list(unused(root))
    excuses = list(excused)
    dead = [one.line for one in found if not any(fnmatch(one.key, key) for key in excuses)]
    idle = [key for key in excuses if not any(fnmatch(one.key, key) for one in found)]
    return dead + [f"{key} is excused, and is used or gone" for key in idle]


if __name__ == "__main__":
    lines = report(ROOT)
    sys.stdout.writelines(f"{line}\n" for line in lines)
    sys.exit(1 if lines else 0)
