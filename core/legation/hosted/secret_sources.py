"""The sources of secrets: variables of the environment, and files, as a host has read them.

A configuration names a secret by `…_env` or by `…_file`, never by itself.  No message quotes what
such a key holds, as it may be the secret: people type it there.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from hashlib import sha256
from typing import Any, Final, TypeAlias

from attrs import evolve, field, fields

from ..access.secret_strength import WEBHOOK_BITS, find_weakness
from ..config import PlatformConfig
from ..http.refusals import Fault
from ..values import define, frozen

__all__ = [
    "MAX_SECRET_BYTES",
    "NoSecret",
    "SecretFiles",
    "SecretReader",
    "SecretSources",
    "secret_paths",
    "with_secret_paths",
]

MAX_SECRET_BYTES: Final = 64 << 10
"""The longest file of a secret."""

# Names are quoted that can hardly be secrets: a short word of capital letters, or several words.
_VARIABLE: Final = re.compile(r"[A-Z]{1,12}|[A-Z][A-Z0-9]{0,31}(?:_[A-Z0-9]{1,31}){1,7}", re.ASCII)
_TWICE: Final = "is not allowed together with {}: name the secret once"
_WRITTEN: Final = ("heads_file",)
"""Files that are written, and hold no secret."""
_NO_ENVIRONMENT: Final = "was not read: pass environ=os.environ"
_NO_FILES: Final = "the file was not read: pass secret_files=read_secret_files([…])"


@frozen
class NoSecret:
    """The reason why there is no secret where one is named."""

    reason: str


SecretFiles: TypeAlias = Mapping[str, bytes | NoSecret]
"""By the path that a configuration names: what the file holds."""


@frozen
class SecretSources:
    """The places of all secrets.

    Attributes:
        environ: The variables of the environment.
        files: The files of secrets, by their paths.
        needed: Whether a secret that is not there is a fault; else something stands in for it, and
            the platform is not served.
    """

    environ: Mapping[str, str] = field(factory=dict[str, str], repr=False)
    files: SecretFiles = field(factory=dict[str, "bytes | NoSecret"], repr=False)
    needed: bool = True


@define(eq=False)
class SecretReader:
    """The reader of the secrets of one configuration.

    Attributes:
        sources: Where they are.
        say: Takes the path of a fault, and the sentence.
        missing: The faults of those that are not needed and not there.
        weak: What is wrong with those that can be guessed, each with its path.
        paths: The files that were asked for.
    """

    sources: SecretSources
    say: Callable[[str, str], None]
    missing: list[Fault] = field(factory=list[Fault], init=False)
    weak: list[Fault] = field(factory=list[Fault], init=False)
    paths: list[str] = field(factory=list[str], init=False)

    def read(
        self,
        path: str,
        variable: object,
        file: object,
        *,
        least: float = WEBHOOK_BITS,
        prefix: str = "",
    ) -> str | None:
        """Return the secret that stands in `variable` or in `file`; None where neither is named.

        Args:
            path: Of the setting, without `_env` and `_file`.
            variable: The name of a variable of the environment.
            file: The path of a file; one line feed at its end is not of the secret.
            least: The bits that it should have; 0 where another chose it.
            prefix: The beginning of what stands in for one that is not there.
        """
        if variable is not None and file is not None:
            self.say(f"{path}_file", _TWICE.format(f"{path.rpartition('.')[2]}_env"))
            return None
        if file is not None:
            path, found = f"{path}_file", self._in_file(file)
        elif variable is not None:
            path, found = f"{path}_env", self._in_environment(variable)
        else:
            return None
        if isinstance(found, str):
            if (weakness := find_weakness(found, least)) is not None:
                self.weak.append(Fault(path, weakness))
            return found
        if self.sources.needed:
            self.say(path, found.reason)
            return None
        self.missing.append(Fault(path, found.reason))
        # It has the form of each kind of secret, is another for each name, and is never used.
        return prefix + sha256(f"{variable} {file}".encode()).hexdigest()

    def _in_environment(self, variable: object) -> str | NoSecret:
        environ = self.sources.environ
        if not isinstance(variable, str):
            return NoSecret("expected the name of a variable")
        if found := environ.get(variable):
            return found
        named = _VARIABLE.fullmatch(variable)
        name = f"the environment variable {variable}" if named else "the variable that it names"
        return NoSecret(f"{name} {'is not set' if environ else _NO_ENVIRONMENT}")

    def _in_file(self, file: object) -> str | NoSecret:
        if not isinstance(file, str):
            return NoSecret("expected the path of a file")
        self.paths.append(file)
        content = self.sources.files.get(file, NoSecret(_NO_FILES))
        if isinstance(content, NoSecret):
            return content
        if len(content) > MAX_SECRET_BYTES:
            return NoSecret(f"the file is longer than {MAX_SECRET_BYTES} bytes")
        try:
            text = content.decode("utf-8").removesuffix("\n").removesuffix("\r")
        except UnicodeDecodeError:
            return NoSecret("the file is not UTF-8")
        return text or NoSecret("the file is empty")


def secret_paths(config: PlatformConfig) -> tuple[str, ...]:
    """Return the paths of all files that `config` names for secrets, sorted."""
    audit = (*config.audit.keys, config.audit)
    holders = (*config.databases, *config.models, *config.channels, config.notify, *audit)
    return tuple(sorted({path for holder in holders for _, path in _files_of(holder)}))


def with_secret_paths(config: PlatformConfig, change: Callable[[str], str]) -> PlatformConfig:
    """Return `config` with the path of each file of a secret changed."""

    def move(holder: Any) -> Any:
        return evolve(holder, **{name: change(path) for name, path in _files_of(holder)})

    return evolve(
        config,
        databases=tuple(map(move, config.databases)),
        models=tuple(map(move, config.models)),
        channels=tuple(map(move, config.channels)),
        notify=None if config.notify is None else move(config.notify),
        audit=evolve(move(config.audit), keys=map(move, config.audit.keys)),
    )


def _files_of(holder: Any) -> Iterator[tuple[str, str]]:
    """Yield the name and the path of each file that the table `holder` names."""
    for attribute in () if holder is None else fields(holder.__class__):
        value = getattr(holder, attribute.name)
        named = attribute.name.endswith("_file") and attribute.name not in _WRITTEN
        if named and isinstance(value, str):
            yield attribute.name, value
