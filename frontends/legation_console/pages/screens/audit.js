// @ts-check
// Audit: who did what, when, and by which scope it was allowed.
import { when } from "../format.js";
import { chosen, filters, seconds } from "../parts/filters.js";
import { badge, code, cut } from "../parts/show.js";
import { paged } from "../parts/table.js";
import { html } from "../vendor/lit-html.js";

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
  { name: "since", label: "Since", type: "datetime-local" },
  { name: "until", label: "Until", type: "datetime-local" },
];

/** @param {Context} ctx */
function open(ctx) {
  const { since, until, ...rest } = chosen(ctx);
  const query = { ...rest, since: seconds(since), until: seconds(until) };
  return { entries: ctx.pages((next, signal) => ctx.api.page("/audit", { query, signal }, next)) };
}

/** @param {Context} ctx @param {any} state */
function view(ctx, { entries }) {
  return html`${filters(ctx, FIELDS)}${paged(entries, {
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
