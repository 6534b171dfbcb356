"""The documentation as pages: Swagger UI, ReDoc, and the document that both show.

Everything a page needs comes from this server, and its Content-Security-Policy lets nothing else
in: no script stands in a page, none comes from elsewhere.  Links are relative, so that a platform
mounted under a prefix has its pages there.
"""

from __future__ import annotations

from typing import Final

from ...http.html_text import escape
from ...http.messages import Response
from ...http.refusals import NotFound
from ..call import Call
from ..documentation import Asset
from .pages import find_root, send_asset

__all__ = ["asset", "oauth2_redirect", "openapi", "redoc", "swagger"]

_ASSETS: Final = "docs/assets/"
_POLICY: Final = (
    b"default-src 'none'; connect-src 'self'; font-src 'self' data:; img-src 'self' data:;"
    b" script-src 'self'; style-src 'self'%s; worker-src %s;"
    b" base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
# ReDoc writes its own style sheets into the page, and searches in a worker that it makes itself.
_SWAGGER_POLICY: Final = _POLICY % (b"", b"'none'")
_REDOC_POLICY: Final = _POLICY % (b" 'unsafe-inline'", b"blob:")
_CLOSED_POLICY: Final = _POLICY % (b"", b"'none'")

_PAGE: Final = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title>
<link rel="icon" href="data:,">
{head}</head>
<body>
{body}</body>
</html>
"""
_STYLE: Final = '<link rel="stylesheet" href="{}">\n'
_SCRIPT: Final = '<script src="{}"></script>\n'
_WITHOUT_SCRIPT: Final = '<noscript>This page is made by a script; <a href="{}">the document</a> \
that it shows is not.</noscript>\n'
_MISSING: Final = """<h1 class="plain">{title}</h1>
<p class="plain">The files of this page are not installed: they are added when the package is built,
and this one runs from its sources. <a href="{document}">The document</a> that it would show is
here.</p>
"""

_SWAGGER_SCRIPT: Final = b"""\
"use strict";
{
  const root = new URL("../../", document.currentScript.src);
  // Swagger UI looks for a field of its own for each file in a list, complains, and takes this one.
  const files = ({ React, getComponent }) => ({
    components: {
      JsonSchema_string_binary: (props) =>
        React.createElement(getComponent("JsonSchema_string"), props),
    },
  });
  SwaggerUIBundle({
    url: new URL("openapi.json", root).href,
    dom_id: "#page",
    deepLinking: true,
    displayRequestDuration: true,
    oauth2RedirectUrl: new URL("docs/oauth2-redirect", root).href,
    plugins: [files],
    validatorUrl: null,
  });
}
"""
_REDOC_SCRIPT: Final = b"""\
"use strict";
{
  const root = new URL("../../", document.currentScript.src);
  Redoc.init(new URL("openapi.json", root).href, {}, document.getElementById("page"));
}
"""
_OWN_STYLE: Final = (
    b"body { margin: 0; font-family: sans-serif }\nnoscript, .plain { margin: 2em }\n"
)
_OWN: Final = {
    own.name: own
    for own in (
        Asset("docs.js", _SWAGGER_SCRIPT),
        Asset("page.css", _OWN_STYLE),
        Asset("redoc.js", _REDOC_SCRIPT),
    )
}


def openapi(call: Call) -> Response | NotFound:
    """Return the OpenAPI document."""
    if not call.registry.config.docs:
        return NotFound()
    return send_asset(call, call.surface.documentation.document)


def swagger(call: Call) -> Response | NotFound:
    """Return the page on which operations can be tried."""
    scripts = ("swagger-ui-bundle.js", "docs.js")
    return _page(call, ("page.css", "swagger-ui.css"), scripts, _SWAGGER_POLICY)


def redoc(call: Call) -> Response | NotFound:
    """Return the page on which operations can be read."""
    return _page(call, ("page.css",), ("redoc.standalone.js", "redoc.js"), _REDOC_POLICY)


def oauth2_redirect(call: Call) -> Response | NotFound:
    """Return the page that hands the answer of an OAuth 2 provider to the one that opened it."""
    return _page(call, ("page.css",), ("oauth2-redirect.js",), _CLOSED_POLICY)


def asset(call: Call) -> Response | NotFound:
    """Return a file of the pages."""
    name = call.params["name"]
    found = _OWN.get(name) or call.surface.documentation.assets.get(name)
    if found is None or not call.registry.config.docs:
        return NotFound()
    return send_asset(call, found)


def _page(
    call: Call, styles: tuple[str, ...], scripts: tuple[str, ...], policy: bytes
) -> Response | NotFound:
    config = call.registry.config
    if not config.docs:
        return NotFound()
    root = find_root(call.request.target)
    missing = {*styles, *scripts} - {*_OWN, *call.surface.documentation.assets}
    document = f"{root}openapi.json"
    if missing:
        styles, scripts = ("page.css",), ()
    head = "".join(_STYLE.format(f"{root}{_ASSETS}{style}") for style in styles)
    body = '<div id="page"></div>\n' + _WITHOUT_SCRIPT.format(document)
    body += "".join(_SCRIPT.format(f"{root}{_ASSETS}{script}") for script in scripts)
    title = escape(config.name)
    if missing:
        body = _MISSING.format(title=title, document=document)
    text = _PAGE.format(title=title, head=head, body=body)
    more = ((b"content-security-policy", policy), (b"referrer-policy", b"no-referrer"))
    return send_asset(call, Asset("page.html", text.encode()), more)
