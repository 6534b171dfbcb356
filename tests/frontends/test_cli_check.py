"""`legation check` and `legation explain`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from legation.api.routes import ROUTES

from .operators import Operator


@pytest.fixture
def operator(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Operator:
    monkeypatch.chdir(tmp_path)
    return Operator(tmp_path, {})


# --- check --------------------------------------------------------------------------------------


def test_a_safe_platform_is_said_to_be(operator: Operator) -> None:
    operator.keys()
    checked = operator.run("check")

    assert checked.exit_code == 0
    *lines, _, verdict = checked.output.splitlines()
    assert verdict == "Nothing unsafe was found."
    routes = lines[: len(ROUTES)]
    assert [tuple(line.split()[:2]) for line in routes] == [(r.method, r.template) for r in ROUTES]
    assert "POST   /agents/{agent_id}/runs" in checked.output
    assert "audit:read or platform:admin" in checked.output


def test_what_is_unsafe_is_listed_with_exit_code_1(operator: Operator) -> None:
    Path("platform.toml").write_text("[platform]\ncors_allowed_origins = ['http://a.example']\n")
    checked = operator.run("check", "platform.toml")

    assert checked.exit_code == 1
    unsafe = [line for line in checked.output.splitlines() if line.startswith("unsafe")]
    assert [line.split()[1] for line in unsafe] == [
        "platform.authorization:",
        "platform.cors_allowed_origins[0]:",
    ]


def test_two_databases_on_one_file_are_found(operator: Operator) -> None:
    Path("link.db").symlink_to("main.db")
    for url, told in (
        ("sqlite:///./main.db", "databases.second.url: is the database of databases.main"),
        ("sqlite:///link.db", "main.db is the file of databases.main"),
    ):
        Path("platform.toml").write_text(
            f'[databases.main]\nurl = "sqlite:///main.db"\n[databases.second]\nurl = "{url}"\n'
        )
        for command in ("check", "serve"):
            refused = operator.run(command, "platform.toml")
            assert refused.exit_code == 2
            assert told in " ".join(refused.output.split())


def test_settings_about_crashes_are_checked_and_not_listed(operator: Operator) -> None:
    agent = '[[agents]]\nid = "desk"\n'
    Path("platform.toml").write_text(agent)
    listed = operator.run("check", "platform.toml").output
    Path("platform.toml").write_text(f'{agent}in_doubt = "tell"\n')
    assert operator.run("check", "platform.toml").output == listed
    for line, told in (
        ('in_doubt = "wait"', "agents[0].in_doubt: 'wait' is none of: ask, tell, end"),
        ('again = "key"', "agents[0].again: 'key' is none of: never, safe"),
        ('again = "safe"', "agents[0].again: is allowed together with `run` alone"),
        ("again = 1", "agents[0].again: expected a string"),
    ):
        Path("platform.toml").write_text(f"{agent}{line}\n")
        for command in ("check", "serve"):
            refused = operator.run(command, "platform.toml")
            assert refused.exit_code == 2
            assert told in " ".join(refused.output.split())


def test_a_second_lock_is_advice_and_asked_for_by_strict(operator: Operator) -> None:
    operator.keys()
    checked, strict = operator.run("check"), operator.run("check", "--strict")

    assert (checked.exit_code, strict.exit_code) == (0, 1)
    assert checked.output == strict.output
    assert "advice  authorization_config.verify_audience: is off" in checked.output
    text = Path("platform.toml").read_text()
    text = text.replace("[platform]\n", "[platform]\ncors_default_origin = false\n")
    text = text.replace("algorithm =", "verify_audience = true\nalgorithm =")
    Path("platform.toml").write_text(
        f'{text}\n[[audit.keys]]\nid = "2026"\nsecret_env = "LEGATION_TEST_AUDIT_KEY"\n'
    )
    without = operator.run("check", "--strict")
    assert without.exit_code == 0
    assert "missing  audit.keys[0].secret_env: the environment variable LEG" in without.output


def test_a_script_gets_json(operator: Operator) -> None:
    operator.keys()
    safe = json.loads(operator.run("check", "--json").stdout)
    Path("platform.toml").write_text("")
    unsafe = operator.run("check", "--json")

    assert [(line["method"], line["path"]) for line in safe["routes"]] == [
        (route.method, route.template) for route in ROUTES
    ]
    assert safe["unsafe"] == []
    assert {one["severity"] for one in safe["advice"]} == {"low"}
    assert unsafe.exit_code == 1
    assert [line["path"] for line in json.loads(unsafe.stdout)["unsafe"]] == [
        "platform.authorization"
    ]


CLAIMS = """verify_audience = true
issuer = "https://id.test"
scopes_claim = ["scp", "/realm_access/roles"]
user_id_claim = "oid"
dependencies_claims = ["tid"]
algorithm ="""


def test_the_claims_in_use_are_named(operator: Operator) -> None:
    operator.keys()
    text = Path("platform.toml").read_text().replace("algorithm =", CLAIMS)
    Path("platform.toml").write_text(text)
    lines = operator.run("check").output.splitlines()

    named = {
        "scopes": "scp, /realm_access/roles",
        "user_id": "oid",
        "audience": "aud: front-office",
        "issuer": "iss: https://id.test",
        "dependencies": "tid",
        "session_state": "none",
        "required": "exp",
    }
    said = [line.split(maxsplit=2)[1:] for line in lines if line.startswith("claim ")]
    assert said == [list(item) for item in named.items()]
    assert json.loads(operator.run("check", "--json").stdout)["claims"] == named


def test_advice_is_given_on_tokens_that_may_live_for_ever(operator: Operator) -> None:
    operator.keys()
    path = Path("platform.toml")
    path.write_text(path.read_text().replace('require = ["exp"]\n', ""))
    checked = operator.run("check")

    assert checked.exit_code == 0
    assert "advice  authorization_config.require: is without" in checked.output


def test_without_authorization_no_claims_are_named(operator: Operator) -> None:
    Path("platform.toml").write_text("")

    assert "\nclaim " not in operator.run("check").output
    assert json.loads(operator.run("check", "--json").stdout)["claims"] == {}


def test_claims_that_cannot_be_read_are_told_all_at_once(operator: Operator) -> None:
    Path("platform.toml").write_text(
        "[authorization_config]\naudience = ''\nissuer = []\nscopes_claim = ['a', 'a', '/']\n"
        "[[agents]]\nid = 'a/b'\n"
    )
    done = operator.run("check")

    assert done.exit_code == 2
    told = ("audience: is not an audience", "issuer: is empty", "scopes_claim[1]: 'a' is named")
    assert all(f"authorization_config.{sentence}" in done.stderr for sentence in told)
    assert "authorization_config.scopes_claim[2]: '/' begins with /" in done.stderr
    assert "agents[0].id" in done.stderr


TOOLS = """
from legation import tool

def look(): ...

@tool(requires_confirmation=True)
def pay(amount: int): ...

@tool(external_execution=True)
def knock(): ...
"""


def test_who_agrees_to_a_call_is_said_of_every_tool(operator: Operator) -> None:
    Path("checked_tools.py").write_text(TOOLS)
    Path("platform.toml").write_text(
        "[[agents]]\nid = 'a'\ntools = ['checked_tools:look', 'checked_tools:pay']\n"
        "[[teams]]\nid = 't'\ntools = ['checked_tools:knock']\n"
    )
    told = json.loads(operator.run("check", "--json").stdout)["tools"]
    lines = [line.split() for line in operator.run("check").output.splitlines()]

    assert told == [
        {"of": "agent a", "name": "look", "agreement": "none"},
        {"of": "agent a", "name": "pay", "agreement": "person"},
        {"of": "team t", "name": "knock", "agreement": "client"},
    ]
    assert "tool agent a look called without asking".split() in lines
    assert "tool agent a pay asks a person first".split() in lines
    assert "tool team t knock executed by the client".split() in lines


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        ("[platform", "is not TOML"),
        ("[platform]\nautorization = true", "unknown: autorization"),
        ("[platform]\nauthorization = true", "verification_keys"),
        ("[platform]\nname = 5\n[[agents]]\nid = 'a/b'", "platform.name"),
        ("[databases.main]\nurl = 'mysql://host/name'", "databases.main.url: not a database URL"),
        ("[databases.main]\nurl = 'sqlite:///'", "databases.main.url: the path is empty"),
        ("[databases.main]\nurl = 'sqlite://['", "databases.main.url: not a database URL"),
    ],
    ids=[
        *("no TOML", "a misspelt key", "no keys", "a wrong type"),
        *("another engine", "no path", "no URL"),
    ],
)
def test_what_cannot_be_served_is_said_with_exit_code_2(
    operator: Operator, content: str, sentence: str
) -> None:
    Path("platform.toml").write_text(content)
    checked = operator.run("check")

    assert checked.exit_code == 2
    assert checked.stdout == ""
    assert checked.stderr.startswith(
        ("Error: platform.toml", "Error: databases.main.url", "Error: the platform")
    )
    assert sentence in checked.stderr
    assert "Traceback" not in checked.stderr


def test_checking_opens_no_database(operator: Operator) -> None:
    operator.keys()
    operator.run("check")

    assert not Path("front-office.db").exists()


# --- explain ------------------------------------------------------------------------------------


def explained(operator: Operator, *arguments: str, stdin: str | None = None) -> tuple[int, Any]:
    done = operator.run("explain", *arguments, stdin=stdin)
    return done.exit_code, json.loads(done.stdout)


def test_what_a_token_allows_is_told_with_its_scope(operator: Operator) -> None:
    operator.keys()
    token = operator.token("--scope", "agents:concierge:run")

    code, told = explained(operator, token, "post", "/agents/concierge/runs")
    assert (code, told["allowed"], told["by"]) == (0, True, "agents:concierge:run")
    code, told = explained(operator, token, "POST", "/agents/other/runs")
    assert (code, told["allowed"], told["missing"]) == (1, False, "agents:other:run")
    code, told = explained(operator, token, "GET", "/agents")
    assert (code, told["only"]) == (0, ["concierge"])
    assert explained(operator, token, "GET", "/nowhere")[1]["reason"] == "no route"


def test_a_token_comes_from_standard_input_too(operator: Operator) -> None:
    operator.keys()
    token = operator.token("--scope", "agents:read")

    code, told = explained(operator, "-", "GET", "/agents", stdin=f"{token}\n")
    assert (code, told["by"]) == (0, "agents:read")


@pytest.mark.parametrize(
    "token",
    ["", "x", "a.b.c", "é", "\udcff", "a" * 100_000],
    ids=["empty", "x", "a.b.c", "not ASCII", "no text", "long"],
)
def test_what_is_wrong_with_a_token_is_told(operator: Operator, token: str) -> None:
    operator.keys()
    code, told = explained(operator, token, "GET", "/agents")

    assert (code, told["allowed"], told["reason"]) == (1, False, "token")
    assert told["because"]


def test_a_token_of_another_key_is_told_apart_from_a_missing_scope(operator: Operator) -> None:
    operator.keys()
    token = operator.token("--scope", "agents:read")
    Path("keys").rename("old")
    operator.keys()

    assert explained(operator, token, "GET", "/agents")[1]["reason"] == "token"


@pytest.mark.parametrize("words", ["explain t GET /agents other.toml", "check other.toml"])
def test_a_file_that_is_named_and_missing_is_a_sentence(operator: Operator, words: str) -> None:
    done = operator.run(*words.split())

    assert done.exit_code == 2
    assert done.stderr == "Error: other.toml: No such file or directory\n"
