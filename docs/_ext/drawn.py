"""The parts of the reference that are drawn from the code: nothing is written down twice.

Each function returns Markdown (or SVG) for the directive of its name in `legation_docs`.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from html import escape
from typing import Any, Final, ForwardRef, get_args

import attrs
import click

from legation import config
from legation.access.rights import scopes_enough
from legation.access.scopes import AnyToken, Need, Open, Public, Scoped, Signed
from legation.api import routes
from legation.api.handlers.run_arguments import ARGUMENTS, Argument, Treatment
from legation.api.openapi.operations import OPERATIONS
from legation.api.route import Route
from legation.channels import CHANNEL_KINDS
from legation.effects import Asks, Effect
from legation.http import refusals
from legation.migrations.catalogue import CATALOGUE
from legation.models.prices import ModelPrice
from legation.observability.log_events import LOG_EVENTS
from legation.shares.limits import NodeLimits, PlatformLimits
from legation.store.run_states import MOVES
from legation_cli import main
from legation_server import DEFAULT, Settings

__all__ = [
    "CONFIGURATION",
    "channel_kinds",
    "commands",
    "configuration",
    "effects",
    "errors",
    "keys_of",
    "limits",
    "log_events",
    "meanings",
    "run_arguments",
    "run_states",
    "schema_versions",
    "surface",
    "vocabulary",
]

CONFIGURATION: Final[Mapping[str, type[Any]]] = {
    **{name: getattr(config, name) for name in config.__all__ if attrs.has(getattr(config, name))},
    **{cls.__name__: cls for cls in (ModelPrice, PlatformLimits, NodeLimits)},
}
"""The classes of the configuration tree, by name."""

_TOML: Final = {
    "str": "string",
    "bool": "boolean",
    "float": "number",
    "int": "integer",
    # A file names what Python gives as an object.
    "ModelLike": "string",
    "RunLike": "string",
    **dict.fromkeys(("Again", "Algorithm", "InDoubt", "Mode", "OnBusy", "Provider"), "string"),
}


# --- configuration -------------------------------------------------------------------------------


def keys_of(cls: type[Any]) -> dict[str, attrs.Attribute[Any]]:
    """Return the keys that a table of the configuration takes."""
    found: dict[str, attrs.Attribute[Any]] = {a.name: a for a in attrs.fields(cls) if a.init}
    return found


def meanings(lines: Iterable[str]) -> dict[str, str]:
    """Return what a directive says of each key: `key: its meaning`, which may go on indented."""
    found: dict[str, str] = {}
    last = ""
    for line in lines:
        if matched := re.match(r"(\w+): (.*)", line):
            last = matched[1]
            found[last] = matched[2].strip()
        elif line.strip():
            found[last] += f" {line.strip()}"
    return found


def configuration(name: str, lines: Iterable[str]) -> str:
    """Return the keys of a table with type, default and meaning.

    Raises:
        ValueError: A key has no meaning, or one is explained that is not there.
    """
    keys, said = keys_of(CONFIGURATION[name]), meanings(lines)
    if missing := sorted(keys.keys() - said.keys()):
        raise ValueError(f"{name}: not explained: {', '.join(missing)}")
    if unknown := sorted(said.keys() - keys.keys()):
        raise ValueError(f"{name}: no such keys: {', '.join(unknown)}")
    rows = [(f"`{k}`", _type_of_key(a), _default(a), said[k]) for k, a in keys.items()]
    return _table(("key", "type", "default", "meaning"), rows)


def _type_of_key(attribute: attrs.Attribute[Any]) -> str:
    said = (
        attribute.type
        if isinstance(attribute.type, str)
        else getattr(attribute.type, "__name__", "")
    )
    said = str(said).removesuffix(" | None")
    if said.startswith(("tuple[str", "tuple[ToolLike")):
        return "array of strings"
    if said in ("Texts", "TextsOrNone"):
        return "string or array of strings"
    if said.startswith("tuple["):
        return "tables"
    return _TOML.get(said, "table")


def _default(attribute: attrs.Attribute[Any]) -> str:
    value = attribute.default
    if value is attrs.NOTHING:
        return "required"
    if isinstance(value, attrs.Factory):  # type: ignore[arg-type]
        value = value.factory()
    match value:
        case None:
            return "none"
        case bool():
            return f"`{str(value).lower()}`"
        case ():
            return "empty"
        case (str(alone),):
            return f'`"{alone}"`'
        case tuple():
            return "see below"
        case str():
            return f'`"{value}"`'
        case int() | float():
            return f"`{value}`"
        case _:
            return "its own defaults"


def channel_kinds() -> str:
    """Return which keys each kind of channel takes; a required one is in bold."""
    known = keys_of(config.Channel)
    rows: list[tuple[str, ...]] = []
    for kind, made in CHANNEL_KINDS.items():
        keys: list[str] = []
        for wanted in attrs.fields(made):
            if wanted.init and wanted.name != "name":
                key = f"{wanted.name}_env" if f"{wanted.name}_env" in known else wanted.name
                keys.append(f"**`{key}`**" if wanted.default is attrs.NOTHING else f"`{key}`")
        rows.append((f"`{kind}`", ", ".join(keys)))
    return _table(("kind", "keys"), rows)


def limits() -> str:
    """Return the limits of the server, each with its default and its reason."""
    said = _attributes(inspect.getdoc(Settings) or "")
    rows = [
        (f"`{a.name}`", f"`{getattr(DEFAULT, a.name)}`", said[a.name])
        for a in attrs.fields(Settings)
    ]
    return _table(("limit", "default", "meaning"), rows)


def _attributes(doc: str) -> dict[str, str]:
    """Return what the section `Attributes` of a docstring says."""
    section = doc.partition("Attributes:\n")[2].partition("\n\n")[0]
    found: dict[str, str] = {}
    last = ""
    for line in section.splitlines():
        if matched := re.match(r" {4}(\w+): (.*)", line):
            last = matched[1]
            found[last] = matched[2]
        else:
            found[last] += f" {line.strip()}"
    return found


# --- HTTP ----------------------------------------------------------------------------------------


def surface() -> str:
    """Return every route with what it needs, under the name of its kind."""
    tags = dict.fromkeys(route.tag for route in routes.ROUTES)
    return "\n\n".join(f"## {tag}\n\n{_routes(tag)}" for tag in tags)


def _routes(tag: str) -> str:
    rows = [
        (f"`{route.method} {route.template}`", _need(route.need, route.template), _does(route))
        for route in routes.ROUTES
        if route.tag == tag
    ]
    return _table(("route", "needs one of", "what it does, and its operation id"), rows)


def _does(route: Route) -> str:
    return f"{OPERATIONS[route.operation].summary} (`{route.operation}`)"


def _need(need: Need, template: str) -> str:
    match need:
        case Public() if config.AuthorizationConfig().excludes(template):
            return "nothing, [by default](configuration.md#authorization-config)"
        case Public():
            return "any valid token, [by default](configuration.md#authorization-config)"
        case Open():
            return "nothing; a token opens more of the answer"
        case AnyToken():
            return "any valid token"
        case Signed():
            return "the channel's own signature"
        case Scoped():
            return ", ".join(f"`{scope}`" for scope in scopes_enough(need))


def run_arguments() -> str:
    """Return every argument of a run that clients of AgentOS send, and what becomes of it."""
    rows = [
        (f"`{argument.name}`", ", ".join(argument.actions), argument.since, _becomes(argument))
        for argument in ARGUMENTS
    ]
    return _table(("argument", "request", "since AgentOS", "what becomes of it"), rows)


def _becomes(argument: Argument) -> str:
    if argument.treatment is Treatment.HONOURED:
        return argument.meaning
    unless = ", ".join(f"`{value}`" for value in argument.harmless)
    return f"{argument.treatment}{f', but for {unless}' if unless else ''}: {argument.meaning}"


def errors() -> str:
    """Return every way to say no."""
    classes = [getattr(refusals, name) for name in refusals.__all__]
    kinds = [c for c in classes if isinstance(c, type) and issubclass(c, refusals.Refusal)]
    rows = [
        (str(kind.status), f"`{kind.error_code}`", f"`{kind.__name__}`", _summary(kind))
        for kind in sorted(kinds, key=lambda kind: getattr(kind, "status", 0))
        if kind is not refusals.Refusal
    ]
    return _table(("status", "`error_code`", "refusal", "when"), rows)


def log_events() -> str:
    """Return every event of the log, with its level, its fields and its meaning."""
    rows = [
        (
            f"`{event.name}`",
            ", ".join(event.levels),
            ", ".join(f"`{field}`" for field in event.fields) or "none",
            event.meaning,
        )
        for event in LOG_EVENTS.values()
    ]
    return _table(("`event`", "`level`", "fields", "meaning"), rows)


# --- effects, states, versions -------------------------------------------------------------------


def effects() -> str:
    """Return every effect with the type of its answer."""
    rows: list[tuple[str, ...]] = []
    for member in get_args(Effect):
        cls = getattr(member, "__origin__", member)
        answer = next(
            _type(get_args(b)[0]) for b in cls.__orig_bases__ if issubclass(b.__origin__, Asks)
        )
        rows.append(
            (f"[`{cls.__name__}`](#legation.effects.{cls.__name__})", f"`{answer}`", _summary(cls))
        )
    return _table(("effect", "answer", "meaning"), rows)


def _type(kind: Any) -> str:
    if kind is type(None) or kind is None:
        return "None"
    if isinstance(kind, type) and not get_args(kind):
        return kind.__name__
    if isinstance(kind, ForwardRef):  # of what is imported for a type checker alone
        return kind.__forward_arg__
    return re.sub(r"\b(?:\w+\.)+(\w+)", r"\1", str(kind)).replace("~", "")


def run_states() -> str:
    """Return the table of moves: a row for every state, a column for every move."""
    moves = dict.fromkeys(move for row in MOVES.values() for move in row)
    head = ("state", *(f"`{move.value}`" for move in moves))
    rows = [
        (f"`{state.value}`", *(f"`{row[move].value}`" if move in row else "" for move in moves))
        for state, row in MOVES.items()
    ]
    return _table(head, rows)


def run_states_svg() -> str:
    """Return the moves as a drawing: a line for every state, an arrow for every move."""
    states = [state.value for state in MOVES]
    arrows = [(s.value, m.value, to.value) for s, row in MOVES.items() for m, to in row.items()]
    return _ladder(states, arrows)


_TIP: Final = (
    '<defs><marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="8" markerHeight="8"'
    ' orient="auto"><path d="M0 0 8 4 0 8z"/></marker></defs>'
)


def _ladder(states: Sequence[str], arrows: Sequence[tuple[str, str, str]]) -> str:
    wide, high, top = 124, 34, 40
    title = "The moves of a run, from state to state"
    at = {state: wide // 2 + index * wide for index, state in enumerate(states)}
    width, height = wide * len(states), top + high * len(arrows) + 12
    parts = [
        f'<svg class="ladder" viewBox="0 0 {width} {height}" role="img" aria-label="{title}">',
        _TIP,
    ]
    for state in states:
        parts.append(
            f'<line class="life" x1="{at[state]}" y1="26" x2="{at[state]}" y2="{height}"/>'
        )
        parts.append(f'<text class="state" x="{at[state]}" y="18">{escape(state)}</text>')
    for index, (source, move, target) in enumerate(arrows):
        y = top + high * index + 20
        begin, end = at[source], at[target]
        near = end - 3 if end > begin else end + 3
        parts.append(f'<circle cx="{begin}" cy="{y}" r="3"/>')
        parts.append(f'<line class="move" x1="{begin}" y1="{y}" x2="{near}" y2="{y}"/>')
        middle = begin + (wide if end > begin else -wide) // 2
        parts.append(f'<text class="label" x="{middle}" y="{y - 6}">{escape(move)}</text>')
    return "".join((*parts, "</svg>"))


def schema_versions() -> str:
    """Return the versions of the schema, who serves each, and what the way back discards."""
    rows = [
        (f"`{m.version}`", m.title, f"`{m.serves}`", "; ".join(m.loses) or "nothing")
        for m in CATALOGUE.migrations
    ]
    return _table(("version", "brings", "served by nodes from", "the way down discards"), rows)


def vocabulary() -> str:
    """Return the error codes, sorted: what a client may match."""
    classes = [getattr(refusals, name) for name in refusals.__all__]
    codes = {c.error_code for c in classes if hasattr(c, "error_code")}
    return ", ".join(f"`{code}`" for code in sorted(codes))


# --- the command ---------------------------------------------------------------------------------


def commands() -> str:
    """Return every command with its arguments and options, as `--help` has them."""
    return "\n\n".join(_commands(main, "legation"))


def _commands(command: click.Command, path: str) -> Iterable[str]:
    if isinstance(command, click.Group):
        for name in command.commands:
            yield from _commands(command.commands[name], f"{path} {name}")
        return
    # With the settings of `main`: a command keeps the help option that it is first asked for.
    context = click.Context(command, info_name=path, **main.context_settings)
    usage = " ".join((path, *command.collect_usage_pieces(context)))
    shown = f"```text\n{usage}\n```"
    yield "\n\n".join((f"## {path}", shown, _help(command.help or ""), _options(command)))


def _help(text: str) -> str:
    """Return a help text; a paragraph that click would keep as it is becomes a block."""
    parts: list[str] = []
    for part in inspect.cleandoc(text).split("\n\n"):
        kept = part.startswith("\b\n")
        parts.append(f"```text\n{part[2:]}\n```" if kept else _prose(part))
    return "\n\n".join(parts)


def _prose(text: str) -> str:
    """Return plain text as Markdown; options in it are code."""
    return re.sub(r"(?<![`\w-])--[\w-]+", r"`\g<0>`", escape(text, quote=False))


def _options(command: click.Command) -> str:
    rows: list[tuple[str, ...]] = []
    for option in command.params:
        if isinstance(option, click.Option) and not option.hidden:
            names = ", ".join(f"`{name}`" for name in option.opts)
            said = _prose(option.help or "").rstrip(".")
            if isinstance(option.type, click.Choice):
                said += f" ({', '.join(f'`{choice}`' for choice in option.type.choices)})"
            rows.append((names, _option_default(option), f"{said}."))
    return _table(("option", "default", "meaning"), rows) if rows else ""


def _option_default(option: click.Option) -> str:
    if option.required:
        return "required"
    if option.is_flag or not option.show_default:
        return ""
    return f"`{option.default}`"


# --- tables --------------------------------------------------------------------------------------


def _summary(cls: type[Any] | Callable[..., Any]) -> str:
    """Return the first paragraph of a docstring."""
    return " ".join((inspect.getdoc(cls) or "").partition("\n\n")[0].split())


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(
        "| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines
    )
