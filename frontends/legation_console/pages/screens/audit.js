// @ts-check
// Audit: who did what, when, and by which scope it was allowed; the proof of it, and its export.
import { count, when } from "../format.js";
import { attempt } from "../parts/attempt.js";
import { chosen, filters, seconds } from "../parts/filters.js";
import { save } from "../parts/save.js";
import { badge, code, cut } from "../parts/show.js";
import { paged } from "../parts/table.js";
import { html, nothing } from "../vendor/lit-html.js";

/** @typedef {import("../../types/console").Context} Context */

/** @type {import("../../types/console").Screen} */
export const screen = {
  path: "audit",
  title: "Audit",
  group: "Operate",
  icon: "audit",
  needs: ["GET /audit"],
  open,
  view,
};

/** @type {import("../parts/filters.js").Filter[]} */
const FIELDS = [
  { name: "subject", label: "Who" },
  { name: "operation", label: "Operation" },
  { name: "resource", label: "Resource" },
  { name: "decision", label: "Decision", options: [["", "Any"], ["allow", "Allowed"], ["deny", "Denied"], ["open", "Open to all"]] },
  { name: "request_id", label: "Request" },
  { name: "db_id", label: "Database" },
  { name: "since", label: "Since", type: "datetime-local" },
  { name: "until", label: "Until", type: "datetime-local" },
];

/** @param {Context} ctx */
function open(ctx) {
  const { since, until, ...rest } = chosen(ctx);
  const query = { ...rest, since: seconds(since), until: seconds(until) };
  return { query, check: null, entries: ctx.pages((next, signal) => ctx.api.page("/audit", { query, signal }, next)) };
}

/** @param {Context} ctx @param {any} state */
function view(ctx, state) {
  return html`<p class="actions">
    <button type="button" ?disabled=${state.check?.runs} @click=${() => verify(ctx, state)}>Verify</button>
    <button type="button" @click=${() => exportTrail(ctx, state)}>Export</button>
  </p>${state.check ? verdicts(state.check) : nothing}${filters(ctx, FIELDS)}${paged(state.entries, {
    caption: "The trail, newest first",
    title: "Nothing in the trail fits",
    none: "Every decision of the platform about a change is written there; see what the filters leave.",
    columns: [
      { title: "When", kind: "fit", cell: (row) => when(row.at_us / 1e6) },
      { title: "Who", cell: (row) => (row.subject === null ? "nobody"
        : html`<a class="cut" title=${row.subject} href="#/audit?${new URLSearchParams({ subject: row.subject })}">${row.subject}</a>`) },
      { title: "Operation", kind: "main", cell: (row) => cut(row.operation) },
      { title: "Resource", kind: "wide", cell: (row) => code(row.resource) },
      { title: "Decision", kind: "fit", cell: (row) => badge(row.decision) },
      { title: "By", kind: "wide", cell: (row) => cut(row.scope) },
      { title: "Status", kind: "number", cell: (row) => row.status },
      { title: "Request", kind: "wide", cell: (row) => code(row.request_id) },
    ],
  })}`;
}

/** Follow the verification to its end. @param {Context} ctx @param {any} state */
async function verify(ctx, state) {
  const check = { runs: true, rows: 0, found: /** @type {any[]} */ ([]) };
  ctx.set(state, { check });
  await attempt(ctx, async () => {
    for await (const line of ctx.api.lines("/audit/verify", { query: { db_id: state.query.db_id }, signal: ctx.signal })) {
      if (line.kind === "token_expired") throw new Error(line.detail);
      if (line.kind === "verdict") check.found.push(line);
      else check.rows = line.rows;
      ctx.update();
    }
  });
  check.runs = false;
  ctx.update();
}

/** What is filtered by time and database is saved. @param {Context} ctx @param {any} state */
async function exportTrail(ctx, { query: { db_id, since, until } }) {
  await attempt(ctx, async () =>
    save(await ctx.api.send("get", "/audit/export", { query: { db_id, since, until }, signal: ctx.signal }), "audit.ndjson"));
}

/** @param {{runs: boolean, rows: number, found: any[]}} check */
function verdicts({ runs, rows, found }) {
  return html`<section class="card" aria-label="Verdict">
    ${runs ? html`<p role="status">${count(rows)} rows are verified so far …</p>` : nothing}
    ${found.map((one) => html`<h2>${one.database} ${one.broken ? badge("broken", "bad") : one.proven ? badge("intact", "good") : badge("not proven", "warn")}</h2>
      ${one.broken
        ? html`<p>Broken at number ${one.broken.seq} of <code>${one.broken.writer}</code>: ${one.broken.reason}</p>`
        : html`<p>${count(one.rows)} rows; ${one.signed} chains are signed, ${one.chained} are only chained; ${count(one.pruned)} rows were pruned.</p>
          ${one.findings.map((/** @type {any} */ at) => html`<p>To acknowledge: ${at.doubt} ${at.detail} ${code(at.head)}</p>`)}
          <ul>${one.heads.map((/** @type {string} */ head) => html`<li>${code(head)}</li>`)}</ul>`}`)}
  </section>`;
}
