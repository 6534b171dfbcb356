"""From what an operator names to a platform: a TOML file, or an object in a module."""

from __future__ import annotations

import importlib
import sys
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from attrs import evolve

from legation import ConfigurationError, Platform
from legation.config import PlatformConfig, structure
from legation.platform import with_environment

from .errors import HostError

__all__ = ["LoadError", "from_file", "load_platform", "read_jwks"]


class LoadError(HostError):
    """The platform cannot be made; the text says why, in a sentence or a line for each fault."""


def load_platform(target: str, environ: Mapping[str, str]) -> Platform:
    """Return the platform that `target` names.

    Args:
        target: The path of a TOML file, or `module:attribute` of a `Platform`.
        environ: The environment, for keys and secrets.

    Raises:
        LoadError: It cannot be read, or there is something wrong with it.
    """
    if not target.endswith(".toml") and ":" in target:
        return _from_module(target)
    return from_file(Path(target), environ)


def from_file(path: Path, environ: Mapping[str, str]) -> Platform:
    """Return the platform that the TOML file at `path` describes."""
    try:
        config = _with_paths(structure(_read_toml(path)), path.parent)
        config = with_environment(config, environ)
        return Platform.from_config(config, jwks=read_jwks(config), environ=environ)
    except ConfigurationError as error:
        raise LoadError(f"{path} cannot be served:\n{_listed(error)}") from None


def _read_toml(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text("utf-8"))
    except OSError as error:
        raise LoadError(f"{path}: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise LoadError(f"{path} is not TOML: {error}") from None


def _with_paths(config: PlatformConfig, folder: Path) -> PlatformConfig:
    """Take a relative JWKS path as relative to the file that names it."""
    jwks_file = config.authorization_config.jwks_file
    if jwks_file is None:
        return config
    authorization = evolve(config.authorization_config, jwks_file=str(folder / jwks_file))
    return evolve(config, authorization_config=authorization)


def read_jwks(config: PlatformConfig) -> bytes | None:
    """Return what the JWKS file of `config` holds, or None when it names none."""
    path = config.authorization_config.jwks_file
    if path is None or not config.authorization:
        return None
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise LoadError(f"authorization_config.jwks_file: {path}: {error.strerror}") from None


def _from_module(target: str) -> Platform:
    module, _, attribute = target.partition(":")
    if "" not in sys.path:
        sys.path.insert(0, "")  # as `python -m` does: the module is beside whoever names it
    try:
        found = getattr(importlib.import_module(module), attribute)
    except ModuleNotFoundError as error:
        raise LoadError(f"{target}: there is no module {error.name!r}") from None
    except AttributeError:
        raise LoadError(f"{target}: {module!r} has no {attribute!r}") from None
    except ConfigurationError as error:
        raise LoadError(f"{target} cannot be served:\n{_listed(error)}") from None
    if not isinstance(found, Platform):
        raise LoadError(f"{target} is a {type(found).__name__}, not a Platform")
    return found


def _listed(error: ConfigurationError) -> str:
    return "\n".join(f"  {fault.path}: {fault.message}" for fault in error.faults)
