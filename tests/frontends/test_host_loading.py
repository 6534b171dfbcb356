from __future__ import annotations

import os
import sys
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest

from legation_host.loading import LoadError, from_file, load_platform
from legation_host.pdf import read_pdf

TOOLS = '''
from legation import tool

def add(a: int, b: int) -> int:
    """Add."""
    return a + b

@tool(requires_confirmation=True)
def pay(amount: int) -> None: ...

async def answer(message: str):
    yield message

class Desk:
    @staticmethod
    def book(name: str) -> None: ...

def wrong(a): ...

NUMBER = 3
'''


@pytest.fixture
def folder(tmp_path: Path) -> Generator[Path]:
    """A folder with modules of its own, none of which stays."""
    path, modules = list(sys.path), set(sys.modules)
    yield tmp_path
    sys.path[:] = path
    for name in set(sys.modules) - modules:
        del sys.modules[name]


def written(folder: Path, **files: str) -> Path:
    for name, text in files.items():
        suffix = ".toml" if name == "platform" else ".py"
        (folder / f"{name}{suffix}").write_text(text, "utf-8")
    return folder / "platform.toml"


def refused(path: Path) -> list[str]:
    with pytest.raises(LoadError) as caught:
        from_file(path, {})
    return [line.strip() for line in str(caught.value).splitlines()[1:]]


def test_functions_are_imported_from_beside_the_file(folder: Path) -> None:
    path = written(
        folder,
        loading_tools=TOOLS,
        platform="""
            [[agents]]
            id = "a"
            tools = ["loading_tools:add", "loading_tools:pay", "loading_tools:Desk.book"]

            [[agents]]
            id = "b"
            run = "loading_tools:answer"

            [[teams]]
            id = "t"
            members = ["a"]
            tools = ["loading_tools:add"]

            [readers]
            "application/pdf" = "legation_host.pdf:read_pdf"
        """,
    )
    registry = load_platform(str(path), {}).registry
    module: Any = sys.modules["loading_tools"]
    hosted = registry.agents["b"].run

    assert [tool.name for tool in registry.agents["a"].tools] == ["add", "pay", "book"]
    assert registry.agents["a"].tools[0].function is module.add
    assert registry.agents["a"].tools[1] is module.pay
    assert hosted is not None
    assert hosted.function is module.answer
    assert registry.teams["t"].tools[0].function is module.add
    assert registry.agents["a"].readers == {"application/pdf": read_pdf}
    assert str(folder.resolve()) in sys.path


MODELS = """
class Parrot:
    id = name = provider = "parrot"

    def respond(self, prompt, listener): ...

parrot = Parrot()
stone = object()
"""


def test_a_file_names_a_model_of_its_own_beside_those_with_a_table(folder: Path) -> None:
    path = written(
        folder,
        loading_models=MODELS,
        platform="""
            [models."a:b"]
            provider = "echo"

            [[agents]]
            id = "a"
            model = "loading_models:parrot"

            [[agents]]
            id = "b"
            model = "a:b"

            [[teams]]
            id = "t"
            members = ["a"]
            model = "loading_models:parrot"
        """,
    )
    registry = load_platform(str(path), {}).registry
    module: Any = sys.modules["loading_models"]

    assert registry.agents["a"].model is registry.teams["t"].model is module.parrot
    assert registry.agents["b"].model.id == "a:b"


@pytest.mark.parametrize(
    ("model", "told"),
    [
        ("loading_models:hawk", "'loading_models:hawk': 'loading_models' has no 'hawk'"),
        ("no_such_models:m", "'no_such_models:m': there is no module 'no_such_models'"),
        ("loading_models:stone", "object is no model: it has no id, name, provider, respond"),
        ("loading_models:", "'loading_models:' is not module:attribute"),
    ],
)
def test_a_model_of_a_file_that_cannot_be_one_is_a_fault(
    folder: Path, model: str, told: str
) -> None:
    agent = f'[[agents]]\nid = "a"\nmodel = "{model}"\n'

    assert refused(written(folder, loading_models=MODELS, platform=agent)) == [
        f"agents[0].model: {told}"
    ]


def test_a_file_names_the_functions_of_a_channel(folder: Path) -> None:
    channel = """
        [[agents]]
        id = "a"

        [channels.bot]
        kind = "telegram"
        agent = "a"
        secret_token_env = "SECRET"
        bot_token_env = "BOT"
        agents = {{ "/b" = "a" }}
        subjects = "loading_people:{}"
        router = "loading_people:route"
    """
    people = "def find(sender): ...\ndef route(text, agent): ..."
    environ = {"SECRET": "s", "BOT": "42:token"}
    path = written(folder, loading_people=people, platform=channel.format("find"))
    options = load_platform(str(path), environ).registry.channels["bot"].options
    module: Any = sys.modules["loading_people"]
    assert options.find_subject is not None
    assert options.router is not None
    assert options.find_subject.function is module.find
    assert (options.router.function, options.router.takes) == (module.route, ("text", "agent"))

    path = written(folder, loading_people=people, platform=channel.format("nobody"))
    with pytest.raises(LoadError, match=r"channels\.bot\.subjects: .* has no 'nobody'"):
        load_platform(str(path), environ)


def test_a_file_names_the_functions_of_guards(folder: Path) -> None:
    text = """
        [[agents]]
        id = "a"

        [[agents.guards]]
        kind = "length"
        most = 5

        [[agents.guards]]
        kind = "function"
        before_run = "loading_rules:check"
        after_model = "loading_rules:{}"

        [[teams]]
        id = "t"
        members = ["a"]

        [[teams.guards]]
        kind = "function"
        before_tool = "loading_rules:check"
    """
    rules = "def check(guarded): ..."
    path = written(folder, loading_rules=rules, platform=text.format("check"))
    registry = load_platform(str(path), {}).registry
    module: Any = sys.modules["loading_rules"]

    found: list[Any] = [*registry.agents["a"].guards, *registry.teams["t"].guards]
    assert [one.at for one in found] == ["before_run", "before_run", "after_model", "before_tool"]
    assert [one.by.function for one in found[1:]] == [module.check] * 3

    path = written(folder, loading_rules=rules, platform=text.format("nothing"))
    with pytest.raises(LoadError, match=r"guards\[1\]\.after_model: .* has no 'nothing'"):
        load_platform(str(path), {})


def test_a_file_that_names_no_function_changes_no_path(folder: Path) -> None:
    before = list(sys.path)

    assert from_file(written(folder, platform='[[agents]]\nid = "a"'), {}).registry.agents
    assert sys.path == before


IMPORTS = {
    "no_such_module:f": "'no_such_module:f': there is no module 'no_such_module'",
    "loading_needs:f": "'loading_needs:f': there is no module 'no_such_part'",
    "loading_raises:f": "'loading_raises:f': RuntimeError: two lines (loading_raises.py, line 3)",
    "loading_exits:f": "'loading_exits:f': SystemExit: 3 (loading_exits.py, line 1)",
    "loading_syntax:f": "'loading_syntax:f': SyntaxError: '(' was never closed (loading_syntax.py",
    "loading_fault:f": ("'loading_fault:f': ToolFault: tool 'f': parameter 'a' is not annotated "),
    "loading_tools:nothing": "'loading_tools:nothing': 'loading_tools' has no 'nothing'",
    "loading_tools:Desk.x": "'loading_tools:Desk.x': 'loading_tools' has no 'Desk.x'",
    "loading_tools": "'loading_tools' is not module:attribute",
    ":f": "':f' is not module:attribute",
    "loading_tools:": "'loading_tools:' is not module:attribute",
    "loading_tools:wrong": "tool 'wrong': parameter 'a' is not annotated",
    "loading_tools:NUMBER": "tool 'int': it is no function",
}


def test_every_import_that_fails_is_listed_with_every_other_fault(folder: Path) -> None:
    names = ", ".join(f'"{name}"' for name in IMPORTS)
    path = written(
        folder,
        loading_tools=TOOLS,
        loading_needs="import no_such_part",
        loading_raises="def f():\n    ...\nraise RuntimeError('two\\nlines')",
        loading_exits="raise SystemExit(3)",
        loading_syntax="f = (",
        loading_fault="from legation import tool\n\n@tool\ndef f(a): ...",
        platform=f"""
            [[agents]]
            id = "a"
            model = "none"
            tools = [{names}]

            [[agents]]
            id = "b"
            run = "loading_tools:nothing"

            [[teams]]
            id = "t"
            tools = ["no_such_module:f"]
        """,
    )
    model, *tools, run, team = refused(path)

    assert model == "agents[0].model: no model 'none'; there are: echo"
    for index, (told, expected) in enumerate(zip(tools, IMPORTS.values(), strict=True)):
        assert told.startswith(f"agents[0].tools[{index}]: {expected}")
    assert run == "agents[1].run: 'loading_tools:nothing': 'loading_tools' has no 'nothing'"
    assert team == "teams[0].tools[0]: 'no_such_module:f': there is no module 'no_such_module'"


def test_a_module_with_a_tool_that_cannot_be_is_refused_by_its_name(folder: Path) -> None:
    sys.path.insert(0, str(folder))
    written(folder, loading_platform="from legation import tool\n\n@tool\ndef f(a): ...")

    with pytest.raises(LoadError, match="tool 'f': parameter 'a' is not annotated"):
        load_platform("loading_platform:platform", {})


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("def (:", "SyntaxError: invalid syntax"),
        ("from legation import Nothing", "ImportError: cannot import name 'Nothing'"),
        ("platform = 1 / 0", r"ZeroDivisionError: division by zero \(.*\.py, line 1\)"),
        ("import os\nos.environ['NOT_SET']", r"KeyError: 'NOT_SET' \(loading_.*\.py, line 2\)"),
        ("raise SystemExit(3)", r"SystemExit: 3 \(.*\.py, line 1\)"),
        ("import no_such_module", "there is no module 'no_such_module'"),
        ("", "'loading_broken_.' has no 'platform'"),
        ("platform = 7", "is a int, not a Platform"),
    ],
)
def test_a_module_that_cannot_be_served_is_told_in_a_line(
    folder: Path, text: str, told: str, request: pytest.FixtureRequest
) -> None:
    sys.path.insert(0, str(folder))
    name = f"loading_broken_{request.node.callspec.indices['text']}"
    written(folder, **{name: text})

    with pytest.raises(LoadError, match=f"^{name}:platform:? .*{told}"):
        load_platform(f"{name}:platform", {})


@pytest.mark.parametrize("target", [":platform", "module:"])
def test_what_is_half_a_name_is_said_to_be_none(target: str) -> None:
    with pytest.raises(LoadError, match="is not module:attribute"):
        load_platform(target, {})


def test_what_is_no_file_and_no_toml_is_said(folder: Path) -> None:
    with pytest.raises(LoadError, match=r"platform\.toml: No such file"):
        from_file(folder / "platform.toml", {})
    with pytest.raises(LoadError, match="is not TOML"):
        from_file(written(folder, platform="["), {})


def test_a_file_of_keys_that_is_a_pipe_keeps_nobody_waiting(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "keys.json")
    path = tmp_path / "platform.toml"
    path.write_text(
        '[platform]\nauthorization = true\n[authorization_config]\njwks_file = "keys.json"\n'
    )

    with pytest.raises(LoadError, match=r"authorization_config\.jwks_file: .*it is not a file"):
        from_file(path, {})
    (missing,) = from_file(path, {}, needs_secrets=False).missing
    assert missing.path == "authorization_config.jwks_file"
    assert missing.message.endswith("keys.json: it is not a file")
