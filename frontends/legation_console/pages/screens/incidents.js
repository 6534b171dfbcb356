// @ts-check
// Incidents: the errors whose ids callers were shown, with where they happened.
import { when } from "../format.js";
import { chosen, filters, seconds } from "../parts/filters.js";
import { code, cut } from "../parts/show.js";
import { paged } from "../parts/table.js";
import { html } from "../vendor/lit-html.js";

/** @typedef {import("../../types/console").Context} Context */

/** @type {import("../../types/console").Screen} */
export const screen = {
  path: "incidents",
  title: "Incidents",
  group: "Watch",
  icon: "incidents",
  needs: ["GET /incidents"],
  open,
  view,
};

/** @type {import("../parts/filters.js").Filter[]} */
const FIELDS = [
  { name: "since", label: "Since", type: "datetime-local" },
  { name: "until", label: "Until", type: "datetime-local" },
];

/** @param {Context} ctx */
function open(ctx) {
  const { since, until } = chosen(ctx);
  const query = { since: seconds(since), until: seconds(until) };
  const incidents = ctx.pages((next, signal) => ctx.api.page("/incidents", { query, signal }, next));
  ctx.every(15, () => { if (!incidents.appends) incidents.reload(); });
  return { incidents };
}

/** @param {Context} ctx @param {any} state */
function view(ctx, { incidents }) {
  return html`${filters(ctx, FIELDS)}${paged(incidents, {
    caption: "Incidents, newest first",
    title: "No incident",
    none: "Nobody was shown an error of this platform.",
    columns: [
      { title: "When", kind: "fit", cell: (row) => when(row.at) },
      { title: "Incident", cell: (row) => code(row.incident) },
      { title: "Error", kind: "main", cell: (row) => cut(row.error_type) },
      { title: "Where", kind: "wide", cell: (row) => code(row.place) },
      { title: "Doing", kind: "wide", cell: (row) => cut(row.operation) },
      { title: "Run", cell: (row) => (row.run_id ? html`<a href="#/runs/${row.run_id}?${
        new URLSearchParams({ component: row.component ?? "", db_id: row.db_id ?? "" })}">${cut(row.component || row.run_id)}</a>` : "–") },
      { title: "Node", kind: "wide", cell: (row) => cut(row.node) },
    ],
  })}`;
}
