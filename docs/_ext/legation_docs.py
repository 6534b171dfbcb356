"""The directives of these pages, and a last look at what was built.

* `configuration`, `surface`, `errors` and their like draw a part of the reference from the code.
* When everything is written, each page is read once more: a link within the documentation has to
  lead somewhere, and nothing may be loaded from another origin.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any, ClassVar, Final
from urllib.parse import unquote, urlsplit

import attrs
import concepts
import drawn
import fields
from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective
from sphinx.util.logging import getLogger

__all__ = ["setup"]

_LOG: Final = getLogger(__name__)

# Elements that make a browser load something, with the attributes that say what.
_LOADS: Final = {
    "audio": ("src",),
    "embed": ("src",),
    "iframe": ("src",),
    "img": ("src", "srcset"),
    "input": ("src",),
    "link": ("href",),
    "object": ("data",),
    "script": ("src",),
    "source": ("src", "srcset"),
    "video": ("src", "poster"),
}
# What a style sheet would load from another origin.
_FETCHES: Final = re.compile(r"""(?:url\(|@import)\s*["']?((?:https?:)?//[^"')\s]+)""")


class Drawn(SphinxDirective):
    """A directive whose content is Markdown that a function draws."""

    draw: ClassVar[Callable[[], str]]

    def run(self) -> list[nodes.Node]:
        """Return the nodes of what was drawn."""
        text = type(self).draw()
        return self.parse_text_to_nodes(text, allow_section_headings=True)


class Configuration(SphinxDirective):
    """The keys of a table of the configuration; the content says what each means."""

    required_arguments = 1
    has_content = True

    def run(self) -> list[nodes.Node]:
        """Return a table; a key without a meaning is an error."""
        try:
            text = drawn.configuration(self.arguments[0], self.content)
        except ValueError as error:
            raise self.error(str(error)) from None
        return self.parse_text_to_nodes(text)


class RunStates(SphinxDirective):
    """The state machine of runs, drawn."""

    def run(self) -> list[nodes.Node]:
        """Return a drawing and a table."""
        drawing = nodes.raw("", drawn.run_states_svg(), format="html")
        return [drawing, *self.parse_text_to_nodes(drawn.run_states())]


class Concepts(SphinxDirective):
    """The picture of the concepts."""

    def run(self) -> list[nodes.Node]:
        """Return the picture."""
        return [nodes.raw("", concepts.draw(), format="html")]


def _make_directive(function: Callable[[], str]) -> type[Drawn]:
    return type(function.__name__, (Drawn,), {"draw": staticmethod(function)})


# --- docstrings ----------------------------------------------------------------------------------


def _show_examples(
    _: Sphinx, __: str, ___: str, ____: object, _____: object, lines: list[str]
) -> None:
    """Make an indented block under a plain paragraph what it is meant to be: code."""
    shown: list[str] = []
    last = ""
    for index, line in enumerate(lines):
        begins = line.startswith("    ") and index > 0 and not lines[index - 1].strip()
        if begins and last and not last.startswith((" ", "*", "-", ":", "..")):
            shown += ["::", ""]
        shown.append(line)
        last = line if line.strip() else last
    lines[:] = shown


def _show_fields(
    _: Sphinx, __: str, ___: str, thing: object, ____: object, lines: list[str]
) -> None:
    """List the fields of a class of the configuration, with their meanings."""
    if isinstance(thing, type):
        lines += fields.list_fields(thing)


def _show_defaults(
    _: Sphinx,
    __: str,
    ___: str,
    thing: Any,
    ____: object,
    signature: str | None,
    returns: str | None,
) -> tuple[str | None, str | None]:
    """Write the defaults of an attrs class as they are, not as its generated `__init__` does."""

    def show(found: re.Match[str]) -> str:
        default = getattr(attrs.fields_dict(thing)[found[1]], "default", None)
        return "…" if isinstance(default, attrs.Factory) else repr(default)  # type: ignore[arg-type]

    if signature is not None and isinstance(thing, type) and attrs.has(thing):
        signature = re.sub(r"attr_dict\['(\w+)'\]\.default", show, signature)
    return signature, returns


# --- a last look ---------------------------------------------------------------------------------


class _Page(HTMLParser):
    """The links of a page: the files it loads, its targets, and the anchors in it."""

    def __init__(self) -> None:
        super().__init__()
        self.loads: list[str] = []
        self.leads: list[str] = []
        self.names: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        self.names.update(given[name] for name in ("id", "name") if name in given)
        self.loads += [given[name] for name in _LOADS.get(tag, ()) if given.get(name)]
        if tag == "a" and given.get("href"):
            self.leads.append(given["href"])


def _look(app: Sphinx, failure: Exception | None) -> None:
    """Read every page that was built, and warn of what is wrong with it."""
    if failure is not None or app.builder.format != "html":
        return
    out = Path(app.outdir)
    pages = {path: _read(path) for path in sorted(out.rglob("*.html"))}
    wrong = [f"{path.relative_to(out)}: {what}" for path in pages for what in _wrong(path, pages)]
    for sheet in sorted(out.rglob("*.css")):
        for url in _FETCHES.findall(sheet.read_text("utf-8")):
            wrong.append(f"{sheet.relative_to(out)}: loads {url}")
    for what in wrong:
        _LOG.warning(what)  # which `-W` makes an error


def _read(path: Path) -> _Page:
    page = _Page()
    page.feed(path.read_text("utf-8"))
    return page


def _wrong(path: Path, pages: dict[Path, _Page]) -> Iterator[str]:
    for url in pages[path].loads:
        parts = urlsplit(url)
        if (parts.scheme or parts.netloc) and parts.scheme != "data":
            yield f"loads {url}"
    for url in pages[path].leads:
        parts = urlsplit(url)
        if parts.scheme or parts.netloc:
            continue
        target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
        if not target.exists():
            yield f"leads to {url}, which is not there"
        elif (
            parts.fragment
            and target in pages
            and unquote(parts.fragment) not in pages[target].names
        ):
            yield f"leads to {url}, where nothing has that name"


def setup(app: Sphinx) -> dict[str, Any]:
    """Add the directives and the last look."""
    for function in (
        drawn.channel_kinds,
        drawn.commands,
        drawn.effects,
        drawn.errors,
        drawn.limits,
        drawn.log_events,
        drawn.run_arguments,
        drawn.schema_versions,
        drawn.surface,
        drawn.vocabulary,
    ):
        app.add_directive(function.__name__.replace("_", "-"), _make_directive(function))
    app.add_directive("concepts", Concepts)
    app.add_directive("configuration", Configuration)
    app.add_directive("run-states", RunStates)
    app.setup_extension("sphinx.ext.autodoc")
    app.connect("autodoc-process-docstring", _show_examples, priority=900)  # after napoleon
    app.connect("autodoc-process-docstring", _show_fields, priority=901)
    app.connect("autodoc-process-signature", _show_defaults)
    app.connect("build-finished", _look)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
