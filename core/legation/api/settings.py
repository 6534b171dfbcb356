"""The settings in force, key by key, without secrets: what is not known to be harmless is left out.

A value is shown where its type can hold no secret by the rules of the configuration, which takes
secrets by the names of environment variables.  Three texts may hold one all the same, or what only
administrators may read: keys, the URLs of databases and of others, and instructions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cached_property
from typing import Any, Final, TypeAlias, cast
from urllib.parse import urlsplit

from attrs import NOTHING, fields

from ..access.posture import Door
from ..config import Console, Database, PlatformConfig
from ..shares.limits import LimitOverrides, NodeLimits
from ..tools import Tool

__all__ = ["REDACTED", "Settings"]

REDACTED: Final = "[redacted]"

_ROOT: Final = "platform"
_PLAIN: Final = (str, int, float, bool)
_CONSOLE: Final = "console"
_NOTIFY: Final = "notify"
_AUDIT: Final = "audit"
_KEYS: Final = "keys"
_DATABASES: Final = "databases"
_LISTED: Final = (_DATABASES, "models", "agents", "teams", "channels")
_TABLES: Final = (*_LISTED, "audit", "authorization_config", "limits", "notify", "readers")
_NAMED: Final[Mapping[str, str]] = {"databases": "id", "models": "name", "channels": "id"}
"""The tables of a file whose key is a member here, and what that is called."""

Setting: TypeAlias = dict[str, Any]


class Settings:
    """The settings of one platform, listed when they are asked for, and once.

    Attributes:
        door: The way in which requests reach it.
    """

    def __init__(
        self,
        config: PlatformConfig,
        databases: Iterable[Database] = (),
        environ: Mapping[str, str] | None = None,
    ) -> None:
        """Note what the environment has brought; `databases` are those that are hosted."""
        self._config = config
        self.door = Door()
        self._databases = tuple(databases)
        self.from_environment = frozenset(_find_brought(config, environ or {}))

    @cached_property
    def listed(self) -> tuple[Setting, ...]:
        """Every key with its value and where that comes from."""
        return tuple(self._list())

    def _list(self) -> Iterator[Setting]:
        config = self._config
        for name, value, default in _members(config):
            if name not in _TABLES:
                # Where people sign in has a table of its own.
                shown = value if name != _CONSOLE else bool(value)
                yield self._line(f"{_ROOT}.{name}", name, shown, default)
        if config.notify is not None:
            yield from self._list_members(_NOTIFY, config.notify)
        yield from self._list_members(_AUDIT, config.audit)
        if isinstance(config.console, Console):
            yield from self._list_members(_CONSOLE, config.console)
        yield from self._list_members("authorization_config", config.authorization_config)
        yield from self._list_members("limits", config.limits)
        hosted = {
            **{table: getattr(config, table) for table in _LISTED},
            _DATABASES: self._databases,
        }
        for table, items in hosted.items():
            for index, item in enumerate(items):
                key = getattr(item, _NAMED[table]) if table in _NAMED else None
                path = f"{table}[{index}]" if key is None else f"{table}.{_quote(key)}"
                yield from self._list_members(path, item)
        for media_type, reader in config.readers.items():
            yield self._line(f"readers.{_quote(media_type)}", "reader", reader, NOTHING)

    def _list_members(self, path: str, value: object) -> Iterator[Setting]:
        cls: Any = type(value)
        kinds = {name: getattr(cls, name, None) for name in ("kind", "provider")}
        for name, kind in kinds.items():
            if isinstance(kind, str):  # of a class that stands for one kind
                yield self._line(f"{path}.{name}", name, kind, NOTHING)
        for name, member, default in _members(value):
            here = f"{path}.{name}"
            if isinstance(member, (LimitOverrides, NodeLimits)):
                yield from self._list_members(here, member)
            elif isinstance(member, Mapping) and name in ("scopes", "subjects"):
                for key, one in cast("Mapping[str, Any]", member).items():
                    yield from self._list_members(f"{here}.{_quote(key)}", one)
            elif name == _KEYS and member:
                for index, key in enumerate(cast("tuple[Any, ...]", member)):
                    yield from self._list_members(f"{here}[{index}]", key)
            else:
                yield self._line(here, name, member, default)

    def _line(self, path: str, name: str, value: Any, default: Any) -> Setting:
        source = "default" if _is_same(value, default) else "configuration"
        if path in self.from_environment:
            source = "environment"
        elif path.startswith(f"{_DATABASES}.") and not self._config.databases:
            source = "default"
        return {"path": path, "value": _show(name, value), "source": source}


def _find_brought(config: PlatformConfig, environ: Mapping[str, str]) -> Iterator[str]:
    """Yield the paths of what the environment holds; see `platform.with_environment`."""
    where, authorization = "authorization_config", config.authorization_config
    if (key := environ.get("JWT_VERIFICATION_KEY")) in authorization.verification_keys and key:
        yield f"{where}.verification_keys"
        last = len(authorization.verification_keys) - 1
        yield f"{where}.verification_keys[{last}]"
    if authorization.jwks_file and authorization.jwks_file == environ.get("JWT_JWKS_FILE"):
        yield f"{where}.jwks_file"


def _members(value: object) -> Iterator[tuple[str, Any, Any]]:
    """Yield the name, the value and the default of each member of an attrs value."""
    cls: Any = type(value)
    for attribute in fields(cls):
        default: Any = attribute.default
        make: Callable[[], Any] | None = getattr(default, "factory", None)
        yield attribute.name, getattr(value, attribute.name), make() if make else default


def _is_same(value: Any, default: Any) -> bool:
    return type(value) is type(default) and value == default


def _quote(key: str) -> str:
    """Return `key` as it stands in a TOML path."""
    plain = key.isascii() and key.replace("-", "").replace("_", "").isalnum()
    return key if plain else f'"{key}"'


# --- what is shown -----------------------------------------------------------------------------


def _show(name: str, value: Any) -> Any:
    """Return `value` as JSON, or what stands in its place."""
    if value is None or (name in _SHOWN and not value):
        return value
    if (show := _SHOWN.get(name)) is not None:
        return show(value)
    if isinstance(value, _PLAIN):
        return value
    if isinstance(value, tuple):
        return [_show("", one) for one in cast("tuple[object, ...]", value)]
    return _name_of(value)


def _name_of(value: Any) -> str:
    """Return the name of a tool, a function or a class; of any other object, that of its class."""
    if isinstance(value, Tool):
        return value.name
    return str(getattr(value, "__name__", type(value).__name__))


def _hide(_: Any) -> str:
    return REDACTED


def _hide_each(values: tuple[Any, ...]) -> list[str]:
    return [REDACTED for _ in values]


def _show_variables(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings of an application's own kind: of those only the names of variables."""
    return {
        str(name): value if str(name).endswith(("_env", "_file")) else REDACTED
        for name, value in settings.items()
    }


def _show_url(url: str) -> str:
    """Return a URL without user, password and options; that of a webhook without its path."""
    if url.startswith("sqlite:"):
        return url.partition("?")[0]
    return _show_host(url) if url.startswith("http") else _show_place(url)


def _show_place(url: str) -> str:
    """Return scheme, host, port and path of `url`, where it is plain which part is which."""
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError:
        return REDACTED
    if not host or "@" in url.removeprefix(f"{parts.scheme}://{parts.netloc}"):
        return REDACTED
    place = f"[{host}]" if ":" in host else host
    place += "" if port is None else f":{port}"
    user = f"{REDACTED}@" if "@" in parts.netloc else ""
    return f"{parts.scheme}://{user}{place}{parts.path}"


def _show_host(url: str) -> str:
    """Return scheme, host and port of `url`: some keep a secret in the path."""
    shown = _show_place(url)
    scheme, mark, rest = shown.partition("://")
    host, slash, path = rest.partition("/")
    return f"{scheme}{mark}{host}{slash}{REDACTED if path else ''}"


_SHOWN: Final[Mapping[str, Callable[[Any], Any]]] = {
    "verification_keys": _hide_each,
    "instructions": _hide,
    "settings": _show_variables,
    "url": _show_url,
    "base_url": _show_place,
    "api_base_url": _show_place,
    "reply_url": _show_host,
    "heads_url": _show_host,
}
"""By the name of the key: what may hold a secret, or what only administrators may read."""
