"""`legation init`: a project whose tests pass, and nothing of anybody's that is overwritten."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Generator
from pathlib import Path
from typing import Any, Final

import pytest
from click.testing import CliRunner, Result

from legation.version import VERSION
from legation_cli import init as init_module
from legation_cli import main
from legation_host.loading import from_file
from legation_testing import Client

RUFF: Final = ("--isolated", "--line-length", "100")
ROOT: Final = Path(__file__).parents[2]
FILES: Final = {
    *("platform.toml", "app.py", "stand_in.py", "test_desk.py"),
    *(".env.example", ".gitignore", "Containerfile", ".containerignore", "README.md"),
}


@pytest.fixture(autouse=True)
def _in_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Generator[None]:
    monkeypatch.chdir(tmp_path)
    path, modules = list(sys.path), set(sys.modules)
    yield
    sys.path[:] = path
    for name in {"app", "stand_in"} - modules:
        sys.modules.pop(name, None)


def typed(*words: str) -> Result:
    return CliRunner().invoke(main, ["init", *words], catch_exceptions=False)


def run(folder: Path, *command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", *command],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def test_project_has_its_files_and_the_way_on_is_printed() -> None:
    result = typed("my-shop")

    assert {path.name for path in Path("my-shop").iterdir()} == FILES
    assert result.exit_code == 0
    assert "Made my-shop in my-shop: platform.toml, app.py," in result.stdout
    assert "\n  cd my-shop\n  legation chat " in result.stdout
    platform = Path("my-shop/platform.toml").read_text()
    assert 'id = "my-shop"\nname = "My shop"\n' in platform
    assert 'url = "sqlite:///my-shop.db"' in platform
    assert Path("my-shop/README.md").read_text().startswith("# My shop\n")
    assert not any("@" in line for line in platform.splitlines())
    image = Path("my-shop/Containerfile").read_text()
    assert f"'legation[postgres]=={VERSION}'\nCOPY platform.toml *.py /srv/my-shop/\n" in image
    assert "@" not in image


def test_tests_of_the_project_pass_and_its_code_is_clean(tmp_path: Path) -> None:
    typed("shop")
    folder = tmp_path / "shop"

    tested = run(folder, "pytest", "-q", "-p", "no:cacheprovider")
    assert tested.returncode == 0, tested.stdout
    assert "3 passed" in tested.stdout
    linted = run(folder, "ruff", "check", *RUFF, "--select", "E,F,I,B,UP,ANN", ".")
    assert linted.returncode == 0, linted.stdout
    formatted = run(folder, "ruff", "format", *RUFF, "--check", ".")
    assert formatted.returncode == 0, formatted.stderr


def test_check_names_one_thing_which_is_that_authorization_is_off(tmp_path: Path) -> None:
    typed("shop")
    checked = CliRunner().invoke(main, ["check", "shop/platform.toml", "--json"])
    found: dict[str, Any] = json.loads(checked.stdout)

    assert [fault["path"] for fault in found["unsafe"]] == ["platform.authorization"]
    assert found["missing"] == []
    assert checked.exit_code == 1


@pytest.fixture
def client(tmp_path: Path) -> Client:
    """The platform of a fresh project, with its stand-in for a model."""
    typed("shop")
    return Client(from_file(tmp_path / "shop/platform.toml", {}))


@pytest.mark.parametrize(
    ("message", "status", "content"),
    [
        ("hello", "COMPLETED", "Try: How much was A-17?  Or: Refund 20 euros of A-17."),
        ("How much was A-17?", "COMPLETED", '{"number":"A-17","euros":40}'),
        ("How much was B-1?", "COMPLETED", "There is no order 'B-1'"),
        ("Refund 20 euros of A-17", "PAUSED", "I have tools to execute, but I need confirmation."),
    ],
)
def test_stand_in_understands_what_is_proposed(
    client: Client, message: str, status: str, content: str
) -> None:
    with client:
        done = client.run("desk", message)

    assert (done.status, done.content) == (status, content)


def test_refund_is_paid_once_a_person_agrees_and_not_beyond_the_price(client: Client) -> None:
    with client:
        paid = client.go_on(client.run("desk", "Refund 20 euros of A-17"), confirmed=True)
        more = client.go_on(client.run("desk", "Refund 500 euros of A-17"), confirmed=True)

    assert paid.content == "20 euros of order A-17 are paid back."
    assert more.content == "Order 'A-17' did not cost 500 euros"


def test_real_model_is_where_the_comment_says(tmp_path: Path) -> None:
    typed("shop")
    path = tmp_path / "shop/platform.toml"
    text = path.read_text()
    for line in ("[models.main]", 'provider = "openai"', 'id = "gpt-5-mini"'):
        assert f"# {line}\n" in text
        text = text.replace(f"# {line}\n", f"{line}\n")
    path.write_text(text.replace('model = "stand_in:model"', 'model = "main"'))
    platform = from_file(path, {"OPENAI_API_KEY": "none"})

    assert platform.registry.agents["desk"].model.id == "gpt-5-mini"


def test_nothing_is_written_where_a_file_is_in_the_way(tmp_path: Path) -> None:
    Path("app.py").write_text("mine")
    Path(".gitignore").symlink_to("nowhere")
    result = typed("--name", "shop")

    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr == (
        "Error: app.py, .gitignore are there already, and are not overwritten:"
        " nothing was written\n"
    )
    assert {path.name for path in tmp_path.iterdir()} == {"app.py", ".gitignore"}
    assert Path("app.py").read_text() == "mine"


def test_this_folder_is_taken_and_others_of_it_are_left() -> None:
    Path("notes.txt").write_text("mine")
    result = typed("--name", "shop")

    assert "Made shop in this folder: " in result.stdout
    assert "cd " not in result.stdout
    assert Path("notes.txt").read_text() == "mine"


@pytest.mark.parametrize(
    "name", ["a b", "1st", "ä", "a.b", "-a", "_", "a" * 65, "a\x1b[2J", "a/.."]
)
def test_name_that_is_none_is_refused(name: str, tmp_path: Path) -> None:
    result = typed("shop", f"--name={name}")

    assert result.exit_code == 2
    assert "cannot name a project: expected a letter" in result.stderr
    assert "\x1b" not in result.stderr
    assert list(tmp_path.iterdir()) == []


def test_folder_that_is_a_file_is_refused() -> None:
    Path("shop").write_text("mine")

    assert typed("shop").stderr == "Error: shop is a file: name a folder\n"


def test_folders_above_are_made() -> None:
    assert typed("a/b/shop").exit_code == 0
    assert Path("a/b/shop/app.py").is_file()


def test_disk_that_is_full_leaves_no_half_of_a_project(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = {**dict.fromkeys(FILES, "app.py"), "missing.py": "no-such-template"}
    monkeypatch.setattr(init_module, "_FILES", files)
    result = CliRunner().invoke(main, ["init", "shop"])

    assert result.exit_code == 2
    assert list((tmp_path / "shop").iterdir()) == []


def _is_not_there(_: object) -> bool:
    return False


def test_file_that_appears_meanwhile_is_not_overwritten(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Path("shop").mkdir()
    Path("shop/app.py").write_text("mine")
    monkeypatch.setattr(os.path, "lexists", _is_not_there)
    result = typed("shop")

    assert result.stderr == "Error: shop/app.py is there already: nothing was written\n"
    assert [path.name for path in Path("shop").iterdir()] == ["app.py"]


def test_json_names_the_files() -> None:
    assert json.loads(typed("shop", "--json").stdout) == {
        "name": "shop",
        "folder": "shop",
        "files": json.loads(json.dumps(list(init_module._FILES))),
    }


def test_each_template_is_a_file_of_the_project_and_shipped() -> None:
    folder = ROOT / "frontends/legation_cli/project"

    assert {f"{name}.template" for name in init_module._FILES.values()} == {
        path.name for path in folder.iterdir()
    }
