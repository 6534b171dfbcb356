"""The console: one page and its files, which are a client of the public interface.

The page holds no data.  It has no cookie and no rights: its scripts send the bearer token of
whoever uses it.  No script stands in it, none comes from elsewhere, and none is made of text
(Trusted Types); the Content-Security-Policy holds that.  Links are relative, so that a platform
mounted under a prefix has its console there.
"""

from __future__ import annotations

import re
from typing import Final
from urllib.parse import urlsplit

from ...config import Console, PlatformConfig
from ...http.html_text import escape
from ...http.messages import Headers, Response, empty_response
from ...http.refusals import NotFound
from ...version import VERSION
from ..call import Call
from ..documentation import Asset
from .pages import find_root, send_asset

__all__ = ["asset", "page", "part", "welcome"]

_FOREVER: Final = b"public, max-age=31536000, immutable"
_DIGEST: Final = re.compile(r"[0-9a-f]{1,64}", re.ASCII)
_POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:;"
    " connect-src {connect}; require-trusted-types-for 'script'; trusted-types lit-html;"
    " base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
_PLAIN_POLICY: Final = (
    b"default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
_VARY: Final = (b"vary", b"accept")

_PAGE: Final = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>{title}</title>
<link rel="icon" href="data:,">
{head}</head>
<body{settings}>
{body}</body>
</html>
"""
_LINKS: Final = {
    "css": '<link rel="stylesheet" href="{}">\n',
    "js": '<link rel="modulepreload" href="{}">\n',
}
_SCRIPT: Final = '<script type="module" src="{}"></script>\n'
_BODY: Final = """<div id="console"><p class="opening" data-early>{title}</p></div>
<noscript><p>The console is made by scripts of this server. \
<a href="{root}docs">The documentation of the interface</a> may be read instead.</p></noscript>
"""
_MISSING: Final = """<h1>{title}</h1>
<p>The console is not here: this host has not brought its files.</p>
"""
_MAIN: Final = "main.js"


def welcome(call: Call) -> Response:
    """Return where a browser that opens the root goes: to the console, or a plain page."""
    config, folder = call.registry.config, call.request.folder
    if config.console and _is_open(config):
        return empty_response(303, ((b"location", f"{folder}console".encode()), _VARY))
    title = escape(config.name)
    lines = [f"<h1>{title}</h1>", "<p>This is a server that hosts AI agents, for programs.</p>"]
    links = {"info": "Information", "health": "Health"}
    if config.docs:
        links = {"docs": "Documentation of the interface", **links}
    lines += ["<ul>"]
    lines += [
        f'<li><a href="{escape(folder + link)}">{words}</a></li>' for link, words in links.items()
    ]
    lines += ["</ul>", ""]
    text = _PAGE.format(title=title, head="", settings="", body="\n".join(lines))
    more: Headers = ((b"content-security-policy", _PLAIN_POLICY), _VARY)
    return send_asset(call, Asset("page.html", text.encode()), more)


def page(call: Call) -> Response | NotFound:
    """Return the page of the console."""
    config = call.registry.config
    if not config.console:
        return NotFound()
    text = _make_page(call, config)
    more = (
        (b"content-security-policy", _policy(config).encode()),
        (b"cross-origin-opener-policy", b"same-origin"),
        (b"referrer-policy", b"no-referrer"),
    )
    return send_asset(call, Asset("page.html", text.encode()), more)


def asset(call: Call) -> Response | NotFound:
    """Return a file of the console."""
    return _send_file(call, call.params["name"])


def part(call: Call) -> Response | NotFound:
    """Return a file of the console that is in a folder."""
    return _send_file(call, f"{call.params['name']}/{call.params['part']}")


def _send_file(call: Call, name: str) -> Response | NotFound:
    """Return the file `name`.

    While a release replaces another, a node may be asked for files of the other one's page: it
    sends its own, which are not kept under that address.
    """
    files = call.surface.console
    found = files.assets.get(name)
    digest = call.params["digest"]
    if found is None or not call.registry.config.console or not _DIGEST.fullmatch(digest):
        return NotFound()
    if digest == files.digest:
        return send_asset(call, found, cache_control=_FOREVER)
    return send_asset(call, found)


def _make_page(call: Call, config: PlatformConfig) -> str:
    root, files = find_root(call.request.target), call.surface.console
    title = escape(config.name)
    if _MAIN not in files.assets:
        body = _MISSING.format(title=title)
        return _PAGE.format(title=title, head="", settings="", body=body)
    folder = f"{root}console/assets/{files.digest}/"
    head = "".join(
        _LINKS[kind].format(folder + name)
        for name in files.assets
        if (kind := name.rpartition(".")[2]) in _LINKS
    )
    body = _BODY.format(root=root, title=title) + _SCRIPT.format(folder + _MAIN)
    settings = "".join(
        f' data-{name}="{escape(value)}"' for name, value in _settings(config, root).items()
    )
    return _PAGE.format(title=title, head=head, settings=settings, body=body)


def _settings(config: PlatformConfig, root: str) -> dict[str, str]:
    """Return what the scripts have to know before they ask: nothing that is secret."""
    settings = {
        "root": root,
        "id": config.id,
        "name": config.name,
        "version": VERSION,
        "authorization": "on" if config.authorization else "off",
    }
    if isinstance(console := config.console, Console) and console.issuer and console.client_id:
        settings["issuer"] = console.issuer
        settings["client-id"] = console.client_id
        settings["scope"] = console.scope
        settings["audience"] = console.audience or ""
    return settings


def _policy(config: PlatformConfig) -> str:
    connect = "'self'"
    if isinstance(config.console, Console) and config.console.issuer:
        parts = urlsplit(config.console.issuer)
        connect = f"'self' {parts.scheme}://{parts.netloc}"
    return _POLICY.format(connect=connect)


def _is_open(config: PlatformConfig) -> bool:
    """Return whether a browser gets the page: it asks for pages without a token."""
    return not config.authorization or config.authorization_config.excludes("/console")
