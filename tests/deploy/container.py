"""The Containerfile as values: enough of its grammar to take its steps as processes."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path
from typing import Final

from attrs import define, field

from .programs import DEPLOY

__all__ = ["CONTAINERFILE", "Stage", "read_containerfile", "read_instructions"]

CONTAINERFILE: Final = DEPLOY / "Containerfile"


@define
class Stage:
    """One stage of the build.

    Attributes:
        steps: Its RUN and COPY instructions, in order.
        folder: The last WORKDIR.
        health: The command of HEALTHCHECK.
    """

    base: str
    steps: list[tuple[str, str]] = field(factory=list[tuple[str, str]])
    folder: str = "/"
    user: str = "root"
    environment: dict[str, str] = field(factory=dict[str, str])
    labels: dict[str, str] = field(factory=dict[str, str])
    health: list[str] = field(factory=list[str])
    entrypoint: list[str] = field(factory=list[str])
    command: list[str] = field(factory=list[str])


def read_instructions(text: str) -> list[tuple[str, str]]:
    """Return each instruction with the rest of its line; lines that go on are one."""
    bare = re.sub(r"^\s*#.*\n", "", text, flags=re.MULTILINE)
    lines = re.sub(r"\\\n\s*", " ", bare).splitlines()
    split = (line.strip().partition(" ") for line in lines if line.strip())
    return [(name, rest.strip()) for name, _, rest in split]


def read_containerfile(path: Path = CONTAINERFILE) -> list[Stage]:
    """Return the stages."""
    stages: list[Stage] = []
    for name, rest in read_instructions(path.read_text("utf-8")):
        if name == "FROM":
            stages.append(Stage(rest))
        elif stages:
            _add(stages[-1], name, rest)
    return stages


def _add(stage: Stage, name: str, rest: str) -> None:
    match name:
        case "RUN" | "COPY":
            stage.steps.append((name, rest))
        case "WORKDIR":
            stage.folder = rest
        case "USER":
            stage.user = rest
        case "ENV":
            stage.environment |= dict(word.split("=", 1) for word in shlex.split(rest))
        case "LABEL":
            stage.labels |= dict(word.split("=", 1) for word in shlex.split(rest))
        case "HEALTHCHECK":
            stage.health = json.loads(rest.partition("CMD ")[2])
        case "ENTRYPOINT":
            stage.entrypoint = json.loads(rest)
        case "CMD":
            stage.command = json.loads(rest)
        case _:
            assert name in ("ARG", "EXPOSE", "VOLUME"), name
