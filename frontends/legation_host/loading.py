"""The loader of platforms, from a TOML file or from an object in a module."""

from __future__ import annotations

import errno
import importlib
import sys
import tomllib
import traceback
from collections.abc import Callable, Collection, Mapping
from operator import attrgetter
from pathlib import Path
from typing import Any, Final

from attrs import evolve, field

from legation import Agent, ConfigurationError, Platform, Team
from legation.access.claims import claim_faults
from legation.access.revocations import MAX_FILE_BYTES
from legation.config import AnyChannel, ModelLike, PlatformConfig, Prices, structure
from legation.guards import Guard
from legation.hosted.secret_sources import secret_paths, with_secret_paths
from legation.http.refusals import Fault
from legation.platform import with_environment
from legation.tools import ToolFault
from legation.values import frozen

from .errors import HostError
from .secret_files import open_regular, read_secret_files

__all__ = [
    "LoadError",
    "from_file",
    "load_platform",
    "read_config",
    "read_jwks",
    "read_revocations",
    "read_trusted",
]


_SOURCES: Final = {"genai-prices": "legation_host.genai_prices:find_price"}
"""The sources of prices that have a name of their own."""


class LoadError(HostError):
    """The platform cannot be made; the text says why, in a sentence or a line for each fault."""


def load_platform(
    target: str, environ: Mapping[str, str], *, needs_secrets: bool = True
) -> Platform:
    """Return the platform that `target` names.

    Args:
        target: The path of a TOML file, or `module:attribute` of a `Platform`.
        environ: The environment, for keys and secrets.
        needs_secrets: Whether a secret of a file that is not there is an error.  A platform that is
            made in Python reads its own.

    Raises:
        LoadError: It cannot be read, or there is something wrong with it.
    """
    if not target.endswith(".toml") and ":" in target:
        return _from_module(target)
    return from_file(Path(target), environ, needs_secrets=needs_secrets)


def from_file(path: Path, environ: Mapping[str, str], *, needs_secrets: bool = True) -> Platform:
    """Return the platform that the TOML file at `path` describes.

    The modules of its tools are looked for beside it first, as `python -m` would from there.
    """
    importer = _Importer(path.parent)
    unread: dict[str, Fault] = {}
    try:
        config = _with_paths(structure(_read_toml(path)), path.parent)
        config = importer.with_functions(with_environment(config, environ))
        platform = Platform.from_config(
            config,
            jwks=_read_trust(read_jwks, config, None if needs_secrets else unread),
            revocations=_read_trust(read_revocations, config, None if needs_secrets else unread),
            environ=environ,
            secret_files=read_secret_files(secret_paths(config)),
            needs_secrets=needs_secrets,
        )
        platform.missing = tuple(unread.get(one.path, one) for one in platform.missing)
        return platform
    except ConfigurationError as error:
        # What could not be imported is a name still, which is a fault of its own in that place.
        faults = tuple(importer.failed.get(fault.path, fault) for fault in error.faults)
        lines = _list_faults(ConfigurationError(faults))
        raise LoadError(f"{path} cannot be served:\n{lines}") from None


def _read_trust(
    read_file: Callable[[PlatformConfig], bytes | None],
    config: PlatformConfig,
    failed: dict[str, Fault] | None,
) -> bytes | None:
    """Return the content of a file that tokens are judged by.

    With `failed`, one that cannot be read is a fault there: it is missing as a secret is.
    """
    try:
        return read_file(config)
    except LoadError as error:
        if failed is None:
            raise
        path, _, reason = str(error).partition(": ")
        failed[path] = Fault(path, reason)
        return None


def read_config(path: Path) -> PlatformConfig:
    """Return the configuration in the TOML file at `path`, as it is written there.

    It is enough to sign a token: no module is imported, and nothing is taken from the environment.

    Raises:
        LoadError: It cannot be read, or a key in it is unknown or has a value of another type.
    """
    try:
        config = structure(_read_toml(path))
    except ConfigurationError as error:
        raise LoadError(f"{path} cannot be served:\n{_list_faults(error)}") from None
    if faults := tuple(claim_faults(config.authorization_config)):
        lines = _list_faults(ConfigurationError(faults))
        raise LoadError(f"{path} cannot be served:\n{lines}")
    return config


def _read_toml(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text("utf-8"))
    except OSError as error:
        raise LoadError(f"{path}: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise LoadError(f"{path} is not TOML: {error}") from None


def _with_paths(config: PlatformConfig, folder: Path) -> PlatformConfig:
    """Take relative paths of keys, secrets and heads as relative to the file that names them."""
    config = with_secret_paths(config, lambda path: str(folder / path))
    audit = evolve(config.audit, heads_file=_beside(folder, config.audit.heads_file))
    authorization = config.authorization_config
    authorization = evolve(
        authorization,
        jwks_file=_beside(folder, authorization.jwks_file),
        revocations_file=_beside(folder, authorization.revocations_file),
    )
    return evolve(config, authorization_config=authorization, audit=audit)


def _beside(folder: Path, path: str | None) -> str | None:
    return None if path is None else str(folder / path)


@frozen
class _Importer:
    """Puts functions where a configuration names them; `failed` has a fault for each it cannot."""

    folder: Path
    failed: dict[str, Fault] = field(factory=dict[str, Fault])

    def with_functions(self, config: PlatformConfig) -> PlatformConfig:
        """Return `config` with what is imported in place of its name."""
        named = {model.name for model in config.models}
        agents = [
            self._agent(agent, f"agents[{i}]", named) for i, agent in enumerate(config.agents)
        ]
        teams = [
            evolve(team, **self._parts(team, f"teams[{i}]", named))
            for i, team in enumerate(config.teams)
        ]
        readers = {
            name: self._resolve(reader, f"readers.{name}") if isinstance(reader, str) else reader
            for name, reader in config.readers.items()
        }
        channels = [self._channel(channel) for channel in config.channels]
        prices = self._prices(config.prices)
        return evolve(
            config, agents=agents, teams=teams, readers=readers, channels=channels, prices=prices
        )

    def _prices(self, prices: Prices | None) -> Prices | None:
        if prices is None or not isinstance(prices.source, str):
            return prices
        name = _SOURCES.get(prices.source, prices.source)
        source = self._resolve(name, "prices.source")
        return evolve(prices, source=source)

    def _channel(self, channel: AnyChannel) -> AnyChannel:
        path = f"channels.{channel.id}"
        named = {"subjects": channel.subjects, "router": channel.router}
        found = {
            key: self._resolve(name, f"{path}.{key}")
            for key, name in named.items()
            if isinstance(name, str)
        }
        return evolve(channel, **found) if found else channel

    def _agent(self, agent: Agent, path: str, named: Collection[str]) -> Agent:
        run = agent.run
        if isinstance(run, str):
            run = self._resolve(run, f"{path}.run")
        return evolve(agent, run=run, **self._parts(agent, path, named))

    def _guard(self, guard: Guard, path: str) -> Guard:
        found = {
            moment: self._resolve(function, f"{path}.{moment}")
            for moment, function in guard.functions.items()
            if isinstance(function, str)
        }
        return evolve(guard, **found)

    def _parts(self, item: Agent | Team, path: str, named: Collection[str]) -> dict[str, Any]:
        """Return tools, guards and models of `item`; a model that is `named` has a table."""
        tools = [
            self._resolve(tool, f"{path}.tools[{i}]") if isinstance(tool, str) else tool
            for i, tool in enumerate(item.tools)
        ]
        guards = [
            self._guard(guard, f"{path}.guards[{i}]") if isinstance(guard, Guard) else guard
            for i, guard in enumerate(item.guards)
        ]
        fallback = [
            self._model(model, f"{path}.fallback[{i}]", named)
            for i, model in enumerate(item.fallback)
        ]
        model = self._model(item.model, f"{path}.model", named)
        return {"tools": tools, "guards": guards, "model": model, "fallback": fallback}

    def _model(self, model: ModelLike, path: str, named: Collection[str]) -> ModelLike:
        if isinstance(model, str) and ":" in model and model not in named:
            resolved: ModelLike = self._resolve(model, path)
            return resolved
        return model

    def _resolve(self, name: str, path: str) -> Any:
        """Return what `module:attribute` names; the name itself where that is a fault."""
        try:
            return _import(name, self.folder)
        except LoadError as error:
            self.failed[path] = Fault(path, str(error))
            return name


def _import(name: str, folder: Path) -> Any:
    module, _, attribute = name.partition(":")
    if not module or not attribute:
        raise LoadError(f"{name!r} is not module:attribute")
    beside = str(folder.resolve())
    if beside not in sys.path:
        sys.path.insert(0, beside)
    try:
        found = importlib.import_module(module)
    except (Exception, SystemExit) as error:
        raise LoadError(f"{name!r}: {_why(error)}") from error
    try:
        return attrgetter(attribute)(found)
    except AttributeError:
        raise LoadError(f"{name!r}: {module!r} has no {attribute!r}") from None


def _why(error: BaseException) -> str:
    """Return in one line why a module cannot be imported, and the place of the error."""
    if isinstance(error, ModuleNotFoundError):
        return f"there is no module {error.name!r}"
    text = " ".join(f"{type(error).__name__}: {error}".split())
    if isinstance(error, SyntaxError):  # it says where
        return text
    frames = traceback.extract_tb(error.__traceback__)
    last = [frame for frame in frames if not frame.filename.startswith("<")][-1]  # none frozen
    return f"{text} ({Path(last.filename).name}, line {last.lineno})"


def read_jwks(config: PlatformConfig) -> bytes | None:
    """Return what the JWKS file of `config` holds, or None when it names none."""
    return _read_named(config, "jwks_file", config.authorization_config.jwks_file)


def read_revocations(config: PlatformConfig) -> bytes | None:
    """Return what the file with revocations of `config` holds, or None when it names none."""
    return _read_named(config, "revocations_file", config.authorization_config.revocations_file)


def _read_named(config: PlatformConfig, key: str, path: str | None) -> bytes | None:
    if path is None or not config.authorization:
        return None
    try:
        return read_trusted(path)
    except OSError as error:
        raise LoadError(f"authorization_config.{key}: {path}: {error.strerror}") from None


def read_trusted(path: str) -> bytes:
    """Return the content of a file that tokens are judged by.

    Raises:
        OSError: It cannot be read, or is too long.
    """
    with open(path, "rb", opener=open_regular) as file:
        content = file.read(MAX_FILE_BYTES + 1)
    if len(content) > MAX_FILE_BYTES:
        raise OSError(errno.EFBIG, f"is longer than {MAX_FILE_BYTES} bytes")
    return content


def _from_module(target: str) -> Platform:
    module, _, attribute = target.partition(":")
    if not module or not attribute:
        raise LoadError(f"{target!r} is not module:attribute")
    if "" not in sys.path:
        sys.path.insert(0, "")  # as `python -m` does: the module is beside whoever names it
    try:
        found = getattr(importlib.import_module(module), attribute, None)
    except ConfigurationError as error:
        raise LoadError(f"{target} cannot be served:\n{_list_faults(error)}") from None
    except ToolFault as fault:
        raise LoadError(f"{target} cannot be served:\n  {fault}") from None
    except (Exception, SystemExit) as error:
        raise LoadError(f"{target}: {_why(error)}") from error
    if found is None:
        raise LoadError(f"{target}: {module!r} has no {attribute!r}")
    if not isinstance(found, Platform):
        raise LoadError(f"{target} is a {type(found).__name__}, not a Platform")
    return found


def _list_faults(error: ConfigurationError) -> str:
    return "\n".join(f"  {fault.path}: {fault.message}" for fault in error.faults)
