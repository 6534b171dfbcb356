"""Each module of the core has a test file of its name in the folder of its package, or a reason."""

from __future__ import annotations

from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[1]
SOURCES: Final = ROOT / "core/legation"
TESTS: Final = ROOT / "tests/core"

# By module, with where its behaviour is asserted instead.
EXCEPTIONS: Final = {
    "access/jwks.py": "test_keys and test_tokens: a document is read for the key set it gives",
    "access/key_material.py": "test_keys, test_tokens, test_wycheproof: a key is what it verifies",
    "access/key_reading.py": "test_keys: the keys of a configuration, as build_keys takes them",
    "access/key_values.py": "test_keys and test_tokens: what verifies, and what is reported",
    "api/chosen_ids.py": "handlers/test_sessions and test_runs: ids as callers choose them",
    "api/documentation.py": "handlers/test_docs: the pages and the document as they are served",
    "api/handlers/config.py": "test_collections and test_two_databases: what is hosted, as served",
    "api/handlers/system.py": "test_platform and test_dispatcher: what the platform says of itself",
    "api/openapi/errors.py": "test_document: a part of the one document",
    "api/json_schema.py": "openapi/test_document: a part of the one document",
    "api/openapi/example_ids.py": "test_request_examples: names only, which its examples use",
    "api/openapi/operations.py": "test_document: a table; the document that it gives is judged",
    "api/openapi/run_schemas.py": "test_document: a table; the document that it gives is judged",
    "api/openapi/schemas.py": "test_document: a table; the document that it gives is judged",
    "api/visible_runs.py": "handlers/test_all_runs and test_approvals: who sees which runs",
    "channels/kinds.py": "test_imports and test_standard: a table, imported when it is asked for",
    "channels/media.py": "messaging/test_attachments: a file of a message on its way into a run",
    "channels/slack_setup.py": "test_setup: what each provider is asked, and what is to be done",
    "channels/telegram_groups.py": "test_telegram: what is meant for us, in deliveries of groups",
    "channels/telegram_setup.py": "test_setup: what each provider is asked, and what is to be done",
    "channels/whatsapp_setup.py": "test_setup: what each provider is asked, and what is to be done",
    "messaging/conversations.py": "test_people: whose session a message is in, by what it hears",
    "messaging/turned_away.py": "test_people: who is not answered, and who is told so",
    "messaging/unread.py": "test_attachments: what cannot be read, as a person is told",
    "models/conversation.py": "data only; test_anthropic and test_chat_completions encode it",
    "observability/genai.py": "test_spans: the attributes of the spans of models and tools",
    "observability/trace_context.py": "test_spans: what a program does within a trace",
    "runs/cancellation.py": "test_reaper and test_executor: a cancellation by its effect on runs",
    "runs/output.py": "test_payloads and handlers/test_runs: a run as a caller reads it",
    "runs/turn.py": "test_agent_turn and test_team_turn: what both share",
    "store/chats.py": "messaging/test_held: a chat that moves, with its replies and sessions",
    "store/first_messages.py": "handlers/test_outgoing: messages that nobody asked for",
    "store/idempotency.py": "api/test_idempotency: stored answers, through their routes",
    "store/reply_outcomes.py": "messaging/test_held and test_replies: what became of a reply",
    "store/run_deletion.py": "test_pruning: what goes with a run, and is given back",
    "store/run_reads.py": "test_runs: the life of a row, through all the units that change it",
    "store/run_rows.py": "test_runs: the life of a row, through all the units that change it",
    "store/run_steering.py": "test_runs: the life of a row, through all the units that change it",
    "store/sessions.py": "handlers/test_sessions: pages, names and owners, through the routes",
    "version.py": "tests/test_packaging: one constant, the same as that of the distribution",
}


def without_test_file() -> set[str]:
    """Return the modules of the core that no test file has the name of."""
    modules = (path.relative_to(SOURCES) for path in SOURCES.rglob("*.py"))
    return {
        module.as_posix()
        for module in modules
        if module.name != "__init__.py"
        and not (TESTS / module.parent / f"test_{module.name}").is_file()
    }


def test_a_module_of_the_core_has_a_test_file_of_its_name_or_a_reason() -> None:
    assert without_test_file() - EXCEPTIONS.keys() == set()


def test_an_exception_is_for_a_module_that_is_there_and_has_no_test_file() -> None:
    assert EXCEPTIONS.keys() - without_test_file() == set()


def test_the_test_files_that_a_reason_names_are_there() -> None:
    names = {path.stem for path in (ROOT / "tests").rglob("test_*.py")}
    named = {
        word.strip(",:").rpartition("/")[2]
        for reason in EXCEPTIONS.values()
        for word in reason.split()
        if word.strip(",:").rpartition("/")[2].startswith("test_")
    }

    assert named - names == set()
