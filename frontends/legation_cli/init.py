"""`legation init`: a small project of one's own, with an agent, a tool that asks, and a test."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final

import click

from legation.version import VERSION

from .failing import CannotGoOn
from .json_output import json_option, print_json

__all__ = ["init"]

_FILES: Final[Mapping[str, str]] = {
    "platform.toml": "platform.toml",
    "app.py": "app.py",
    "stand_in.py": "stand_in.py",
    "test_desk.py": "test_desk.py",
    ".env.example": "env.example",
    ".gitignore": "gitignore",
    "Containerfile": "Containerfile",
    ".containerignore": "containerignore",
    "README.md": "README.md",
}
"""The files of a project, each with its template: in a package, a name with a dot may get lost."""

_NAME: Final = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,63}", re.ASCII)
_NEXT: Final = """\
Made {name} in {folder}: {files}.

Type next:
{change}
  legation chat          talk to the agent; try: Refund 20 euros of A-17
  python -m pytest       its tests; pip install pytest
  legation serve         serve it over HTTP, with the console

No key is needed: platform.toml says how to take a real model."""


@click.command(short_help="Make a small project: an agent, its tools, a test.")
@click.argument("folder", type=click.Path(file_okay=True, path_type=Path), default=Path())
@click.option("--name", help="The name of the project.  [default: that of the folder]")
@json_option
def init(folder: Path, name: str | None, as_json: bool) -> None:
    """Make a small project in FOLDER, which is made if needed; this folder, if not given.

    It has platform.toml, an agent with a tool that asks a person, a test that passes, and the file
    of a container image.  It needs no key: a few lines of Python stand in for a model until you
    name a real one.

    Nothing that is there already is overwritten: if a file is in the way, nothing is written.

    \b
    Examples:
      legation init shop
      legation init . --name shop
    """
    found = _find_name(folder, name)
    if in_the_way := [file for file in _FILES if os.path.lexists(folder / file)]:
        there = "is there already, and is" if len(in_the_way) == 1 else "are there already, and are"
        raise CannotGoOn(f"{', '.join(in_the_way)} {there} not overwritten: nothing was written")
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except FileExistsError:
        raise CannotGoOn(f"{folder} is a file: name a folder") from None
    _write_all(folder, found)
    if as_json:
        print_json({"name": found, "folder": str(folder), "files": list(_FILES)})
        return
    here = folder.resolve() == Path.cwd()
    change = "" if here else f"\n  cd {shlex.quote(str(folder))}"
    place = "this folder" if here else str(folder)
    click.echo(_NEXT.format(name=found, folder=place, files=", ".join(_FILES), change=change))


def _find_name(folder: Path, name: str | None) -> str:
    """Return the name of the project, which is an id of the platform and of a file as well.

    Raises:
        CannotGoOn: It is not a name.
    """
    found = folder.resolve().name if name is None else name
    if _NAME.fullmatch(found) is None:
        wanted = "a letter, then up to 63 letters, digits, - and _"
        raise CannotGoOn(f"{found!r} cannot name a project: expected {wanted}; give it by --name")
    return found


def _write_all(folder: Path, name: str) -> None:
    """Write every file of the project, or none.

    Raises:
        OSError: One cannot be written.
        CannotGoOn: Somebody else wrote one meanwhile.
    """
    templates = Path(__file__).with_name("project")
    title = name.replace("-", " ").replace("_", " ").strip().capitalize()
    words = {"@id@": name, "@name@": title, "@version@": VERSION}
    made: list[Path] = []
    try:
        for file, template in _FILES.items():
            text = (templates / f"{template}.template").read_text("utf-8")
            path = folder / file
            with path.open("x", encoding="utf-8", newline="\n") as opened:
                made.append(path)
                for word, meant in words.items():
                    text = text.replace(word, meant)
                opened.write(text)
    except OSError as error:
        for path in made:
            with suppress(OSError):
                path.unlink()
        if isinstance(error, FileExistsError):
            raise CannotGoOn(f"{error.filename} is there already: nothing was written") from None
        raise
