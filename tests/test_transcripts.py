"""Pages are read as a person reads them: files, commands, and what is shown under each."""

from __future__ import annotations

from pathlib import Path

import pytest

from .transcripts import Block, Exchange, Terminal, blocks, exchanges, follow, matches

PAGE = """\
# A page

```{code-block} toml
:caption: a.toml

key = 1
```

```{directive}
of another kind
```

<!-- file: b.txt -->
```text
b
```

```{literalinclude} a.py
:lines: 2-
:caption: copy.py
```

```console
$ cat a.toml
key = 1
```
"""


@pytest.fixture
def page(tmp_path: Path) -> Path:
    (tmp_path / "a.py").write_text("import this\nprint()\n")
    path = tmp_path / "page.md"
    path.write_text(PAGE)
    return path


def test_blocks_are_code_and_files(page: Path) -> None:
    assert blocks(page) == (
        Block("toml", "key = 1\n", "a.toml"),
        Block("text", "b\n", "b.txt"),
        Block("included", "import this\nprint()\n", "copy.py"),
        Block("console", "$ cat a.toml\nkey = 1\n"),
    )


def test_commands_go_on_behind_the_second_prompt() -> None:
    assert exchanges("$ cat <<END\n> a\n> \n> END\na\n\n$ true\n") == (
        Exchange("cat <<END\na\n\nEND", "a\n\n"),
        Exchange("true", ""),
    )


def test_here_document_is_typed_up_to_its_end() -> None:
    assert exchanges("$ cat <<'EOF'\na\n\nb\nEOF\na\n\nb\n$ true\n") == (
        Exchange("cat <<'EOF'\na\n\nb\nEOF", "a\n\nb\n"),
        Exchange("true", ""),
    )


@pytest.mark.parametrize(
    ("shown", "got", "verdict"),
    [
        ("a", "a\n", True),
        ("a…c", "a\nb\nc", True),
        ("a…c", "ac", True),
        ("a", "ab", False),
        ("…b", "a", False),
        ("a.c", "abc", False),
        ("", "anything", False),
    ],
)
def test_what_is_shown_has_to_be_what_was_printed(shown: str, got: str, verdict: bool) -> None:
    assert matches(shown, got) is verdict


def test_page_is_followed(page: Path, tmp_path: Path) -> None:
    with Terminal(tmp_path) as terminal:
        assert follow(page, terminal) == 1
    assert (tmp_path / "copy.py").exists()


@pytest.mark.parametrize(
    "exchange",
    [
        Exchange("echo a", "b"),
        Exchange("false", ""),
        Exchange("exit 3", ""),
        Exchange("legation serve no-such-file.toml", "…"),
    ],
    ids=["another output", "a failure", "the end of the shell", "a server that does not start"],
)
def test_what_is_not_so_is_told(tmp_path: Path, exchange: Exchange) -> None:
    with Terminal(tmp_path) as terminal, pytest.raises(AssertionError):
        terminal.expect(exchange)


SERVED = """\
```console
$ WHERE=first
$ legation serve
…
$ echo ${WHERE:-nowhere}; WHERE=second
nowhere
```
"""


def test_what_is_told_where_a_server_runs_is_not_known_in_another_terminal(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(SERVED)
    with Terminal(tmp_path) as terminal:
        assert follow(page, terminal) == 3
        terminal.expect(Exchange("echo $WHERE", "second"))
        terminal.expect(Exchange("echo $WHERE", "first"), first=True)


def test_what_is_put_in_is_not_looked_at_again(tmp_path: Path) -> None:
    terminal = Terminal(tmp_path, {"postgresql://db": "postgresql://127.0.0.1:17777/one"})

    said = terminal.translate("postgresql://db 7777")
    assert said.startswith("postgresql://127.0.0.1:17777/one ")
    assert not said.endswith("7777")


def test_shell_keeps_what_it_was_told(tmp_path: Path) -> None:
    with Terminal(tmp_path) as terminal:
        terminal.expect(Exchange("export WHO=ada", ""))
        terminal.expect(Exchange("echo $WHO; (exit 3); echo $?", "ada\n3"))
