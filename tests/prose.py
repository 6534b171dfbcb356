"""A check of the documentation's English: `python -m tests.prose [--json] [page …]`.

It measures how long the sentences of each page are, how many clauses stand where a noun would do
("what comes back" for "responses"), which mannered phrases there are, and which headings lack a
term that a reader looks for.  With pages as arguments it prints each finding.

Code, console blocks and the tables that are drawn from the source are not read.  Cells of other
tables are read, but count for no mean: they are no sentences.

Linters of prose do other work.  proselint looks for clichés and usage of English novels, and has
no rule for these habits; textlint would need Node and rules of our own.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

from markdown_it import MarkdownIt
from markdown_it.token import Token

__all__ = ["ROOT", "Page", "Text", "lacks_term", "measure", "pages", "read", "terms"]

ROOT: Final = Path(__file__).parents[1]
LONG: Final = 30

# The nouns that readers look for, beside the terms of the glossary.
NOUNS: Final = """
0.1, agent, AgentOS, agno, API, application, approval, architecture, argument, ASGI, asynchronous,
attachment, audit, Auth0, authentication, authorization, benchmark, bodies, body, browser, budget,
cache, Caddy, call, claim, class, classes, client, clock, command, commit, comparison,
compatibility, compatible, Compose, concept, concurrency, configuration, configure, connection,
console, constraint, container, contribute, contributing, core, CORS, cost, coverage, crash, cron,
data, database, debug, delivery, demo, dependencies, dependency, deploy, development, docker,
documentation, downgrade, embed, embedding, Entra, environment, error, evaluation, event, example,
exception, explanation, extend, failover, failure, fault, feature, field, file, form, framework,
function, fuzzing, gateway, get started, glossary, guardrail, guide, header, Helm, history, hook,
how-to, HTTP, human approval, id, idempotency, idempotent, identity provider, image, import,
incident, install, installation, invariant, issuer, JSON, JWT, key, Keycloak, Kubernetes, latency,
layer, Legation, libraries, library, lifespan, limit, limitation, list, log, logging, loop, MCP,
memory, message, metric, migrate, migration, mock, model, module, monitoring, mount, name, nginx,
notification, OAuth, OpenAPI, OpenTelemetry, order, output, overview, package, page, pagination,
parameter, performance, permission, poll, pooler, PostgreSQL, production, prompt, property test,
provider, proxy, Pydantic AI, Python, query, quickstart, quota, rate limit, readiness, reference,
release, replies, reply, request, response, REST, result, retention, retries, retry, role, route,
router, sans-IO, scaling, schema, screenshot, secret, security, server, serverless, setting,
shut-down, shutdown, sign in, signature, Slack, SQLite, state, status, stream, structured output,
style, summary, support, system, systemd, task, team, Telegram, test, testing, thread, timeout,
TLS, token, tool, trace, tracing, trail, transaction, troubleshooting, tutorial, type, typing,
unit, units of work, upgrade, upload, usage, user, validation, version, vulnerabilities,
vulnerability, watchdog, webhook, WebSocket, WhatsApp, worker, workflow
"""

# Phrases of a manner of speaking; a plain word says the same.
PHRASES: Final = (
    r"(?:is|are|was|were|be|been|being) told",
    r"tells? (?:itself|of itself)",
    "by and by",
    "whoever",
    "whomever",
    "whichever",
    "of which",
    "of whose",
    "none but",
    "as it were",
    "as if (?:it|they) were not there",
    "is known here",
    "not known here",
    "means? nothing to",
    r"(?:is|are) somebody else",
    "for ever",
    "anew",
    r"(?:goes|go|going|gone|went) on with",
    r"what (?:comes|came) (?:back|of it)",
    "in one's own",
    "one's own",
    r"is (?:asked|wanted) for",
    r"(?:is|are) looked at",
    r"(?:is|are) none",
    r"such a one",
    "plainly",
    "does not care",
    r"takes? (?:its|their) leave",
    "lets? go of",
)  # fmt: skip

_PARSER: Final = MarkdownIt("commonmark", {"html": True}).enable("table")
_GLOSSARY: Final = ROOT / "docs/explanation/glossary.md"
_ROLE: Final = re.compile(r"\{[\w:-]+\}$")
_NO_PROSE: Final = re.compile(
    r"^\([\w-]+\)=$|^\[\^[\w-]+\]:.*(?:\n[ ]+.*)*", re.MULTILINE
)  # targets, footnotes
_CODE: Final = re.compile(r"`[^`]*`")
_CODES: Final = re.compile(r"`[^`]*`(?:(?:, and|, or|,| and| or) `[^`]*`){2,}")
_END: Final = re.compile(r"(?<=[.!?])[\"”)*_]*\s+(?=[\"“(*]*[A-Z`0-9])")
_ABBREVIATION: Final = re.compile(r"\b(e\.g|i\.e|etc|cf|vs|Mr|Dr)\.\s")
_OPENING: Final = re.compile(
    r"[\"“(*]*(?:what|whose|who|whom|whoever|whatever|whomever)\b", re.IGNORECASE
)
_WHAT: Final = re.compile(r"\bwhat(?:ever)?\b", re.IGNORECASE)
_MANNER: Final = re.compile(r"\b(?:" + "|".join(PHRASES) + r")\b", re.IGNORECASE)


class Text(NamedTuple):
    """The parts of one page that are prose, in order: headings, sentences, and cells of tables."""

    headings: tuple[str, ...]
    sentences: tuple[str, ...]
    cells: tuple[str, ...]


class Page(NamedTuple):
    """The figures of one page, with the sentences and headings to mend."""

    name: str
    words: int
    sentences: int
    mean: float
    p90: int
    longest: int
    over: tuple[str, ...]
    openings: tuple[str, ...]
    clauses: int
    mannered: tuple[str, ...]
    headings: int
    bare: tuple[str, ...]


def pages() -> tuple[Path, ...]:
    """Return the files that are checked, in order."""
    own = ("README.md", "CONTRIBUTING.md", "SECURITY.md", "examples/README.md")
    return (*(ROOT / name for name in own), *sorted((ROOT / "docs").rglob("*.md")))


def read(markdown: str) -> Text:
    """Return the prose of a page: inline code counts as a word, and fenced code is left out."""
    headings: list[str] = []
    sentences: list[str] = []
    cells: list[str] = []
    kinds: list[str] = []
    for token in _PARSER.parse(_NO_PROSE.sub("", markdown)):
        if token.nesting == 1:
            kinds.append(token.type)
        elif token.nesting == -1:
            kinds.pop()
        elif token.type == "inline" and "thead_open" not in kinds:
            part = _plain(token)
            if kinds[-1] == "heading_open":
                headings.append(part)
            else:
                (cells if kinds[-1] == "td_open" else sentences).extend(_split(part))
    return Text(tuple(headings), tuple(sentences), tuple(cells))


def lacks_term(heading: str, terms: frozenset[str]) -> bool:
    """Return whether neither a name of the code nor a term of the reader stands in `heading`."""
    words = re.findall(r"[\w.+-]+", heading.lower())
    if "`" in heading or any("_" in word for word in words):
        return False
    spans = (
        " ".join(words[i:j]).strip(".")
        for i in range(len(words))
        for j in range(i + 1, min(i + 4, len(words)) + 1)
    )
    return not any(span in terms or span.removesuffix("s") in terms for span in spans)


def terms() -> frozenset[str]:
    """Return the nouns that a heading may have: the reader's, and the terms of the glossary."""
    table = _GLOSSARY.read_text(encoding="utf-8").partition("\n## Terms\n")[2].partition("\n## ")[0]
    rows = [line.split("|")[1] for line in table.splitlines() if line.startswith("| ")][1:]
    listed = (re.sub(r"\(.*\)", "", row).strip().lower() for row in rows)
    return frozenset((*listed, *" ".join(NOUNS.lower().split()).split(", ")))


def measure(name: str, markdown: str, known: frozenset[str]) -> Page:
    """Return the figures of one page."""
    text = read(markdown)
    lengths = sorted(_length(sentence) for sentence in text.sentences)
    statements = [part for part in (*text.sentences, *text.cells) if not part.endswith("?")]
    everything = [
        part for part in (*text.headings, *text.sentences, *text.cells) if not part.endswith("?")
    ]
    return Page(
        name,
        words=sum(lengths) + sum(_length(cell) for cell in text.cells),
        sentences=len(lengths),
        mean=round(sum(lengths) / len(lengths), 1) if lengths else 0.0,
        p90=lengths[len(lengths) * 9 // 10] if lengths else 0,
        longest=max((_length(part) for part in statements), default=0),
        over=tuple(part for part in statements if _length(part) > LONG),
        openings=tuple(part for part in statements if _OPENING.match(part)),
        clauses=sum(len(_WHAT.findall(part)) for part in everything),
        mannered=tuple(part for part in everything if _MANNER.search(_CODE.sub("", part))),
        headings=len(text.headings),
        bare=tuple(heading for heading in text.headings if lacks_term(heading, known)),
    )


def _length(part: str) -> int:
    """Return the number of words: a dash or a bullet is none."""
    return sum(any(letter.isalnum() or letter == "…" for letter in word) for word in part.split())


def _plain(token: Token) -> str:
    """Return the text of an inline token, with code as it stands and without the names of roles."""
    found = ""
    for child in token.children or ():
        if child.type == "code_inline":
            found = _ROLE.sub("", found) + f"`{child.content.replace(' ', '_')}`"
        elif child.type in ("softbreak", "hardbreak"):
            found += " "
        elif child.type in ("text", "html_entity"):
            found += child.content
    return found.strip()


def _split(part: str) -> Iterator[str]:
    """Yield the sentences of a paragraph or a cell; enumerated code counts as one word."""
    guarded = _ABBREVIATION.sub(r"\1, ", _CODES.sub("`…`", part))
    return (sentence.strip() for sentence in _END.split(guarded) if sentence.strip())


def _rows(found: list[Page]) -> Iterator[str]:
    """Yield the lines of the table, the total last."""
    yield f"{'page':38}  words sent.  mean  p90  max  >30  open  what mann. bare heads"
    for page in found:
        yield (
            f"{page.name:38}{page.words:7}{page.sentences:6}{page.mean:6}{page.p90:5}{page.longest:5}{len(page.over):5}"
            f"{len(page.openings):6}{page.clauses:6}{len(page.mannered):6}{len(page.bare):6}/{page.headings}"
        )


def _total(found: list[Page], texts: list[str]) -> Page:
    """Return the figures of all pages together."""
    return measure("total", "\n\n".join(texts), terms())._replace(
        headings=sum(page.headings for page in found)
    )


def main(arguments: list[str]) -> None:
    """Print the figures of all pages, or with every finding of the pages that are named."""
    names = [argument for argument in arguments if argument != "--json"]
    files = [file for file in pages() if not names or str(file.relative_to(ROOT)) in names]
    texts = [file.read_text(encoding="utf-8") for file in files]
    known = terms()
    found = [
        measure(str(file.relative_to(ROOT)), text, known)
        for file, text in zip(files, texts, strict=True)
    ]
    found.append(_total(found, texts))
    if "--json" in arguments:
        sys.stdout.write(
            json.dumps([page._asdict() for page in found], ensure_ascii=False, indent=2) + "\n"
        )
        return
    sys.stdout.write("\n".join(_rows(found)) + "\n")
    for page in found[:-1] if names else ():
        for kind in ("over", "openings", "mannered", "bare"):
            for part in getattr(page, kind):
                sys.stdout.write(f"{page.name}: {kind}: {part}\n")


if __name__ == "__main__":
    main(sys.argv[1:])
