// @ts-check
// Runs: all that the caller may see, newest first; each leads to its steps.
import { compact, duration } from "../format.js";
import { chosen, filters, seconds } from "../parts/filters.js";
import { live } from "../parts/follow.js";
import { ago, badge, cut } from "../parts/show.js";
import { paged } from "../parts/table.js";
import { html } from "../vendor/lit-html.js";
import { openRun, viewRun } from "./run.js";

/** @typedef {import("../../types/console").Context} Context */

/** @type {import("../../types/console").Screen} */
export const screen = {
  path: "runs",
  title: "Runs",
  group: "Watch",
  icon: "runs",
  needs: ["GET /runs"],
  heading: (ctx, state) => (ctx.place.ids[0] ? state.title ?? "Run" : "Runs"),
  open: (ctx) => (ctx.place.ids[0] ? openRun(ctx, ctx.place.ids[0]) : openAll(ctx)),
  view: (ctx, state) => (ctx.place.ids[0] ? viewRun(ctx, state) : viewAll(ctx, state)),
};

const STATES = ["PENDING", "RUNNING", "PAUSED", "COMPLETED", "CANCELLED", "ERROR"];

/** @type {import("../parts/filters.js").Filter[]} */
const FIELDS = [
  { name: "status", label: "Status", options: [["", "Any"], ...STATES.map((one) => /** @type {[string, string]} */ ([one, one.toLowerCase()]))] },
  { name: "component", label: "Agent or team" },
  { name: "user_id", label: "User" },
  { name: "error_type", label: "Error" },
  { name: "since", label: "Since", type: "datetime-local" },
  { name: "until", label: "Until", type: "datetime-local" },
];

/** @param {Context} ctx */
function openAll(ctx) {
  const { since, until, component = "", ...rest } = chosen(ctx);
  const named = component && !component.includes(":") ? `agent:${component}` : component;
  const query = { ...rest, component: named, since: seconds(since), until: seconds(until) };
  const runs = ctx.pages((next, signal) => ctx.api.page("/runs", { query, signal }, next));
  live(ctx, () => { if (!runs.appends) runs.reload(); });
  return { runs };
}

/** @param {Context} ctx @param {any} state */
function viewAll(ctx, { runs }) {
  return html`${filters(ctx, FIELDS)}${paged(runs, {
    caption: "Runs, newest first",
    title: runs.next === null ? "No run fits" : "No run on this page",
    none: "Runs are kept as long as their sessions.",
    href: (row) => `/runs/${row.run_id}?${new URLSearchParams({ component: `${row.component.kind}:${row.component.id}`, db_id: row.db_id })}`,
    columns: [
      { title: "Run", kind: "main", cell: (row) => html`${row.component.name || row.component.id} <span class="quiet">${row.component.kind}</span>` },
      { title: "Status", kind: "fit", cell: (row) => badge(row.status) },
      { title: "User", kind: "wide", cell: (row) => cut(row.user_id || "–") },
      { title: "Begun", kind: "fit", cell: (row) => ago(row.created_at) },
      { title: "Took", kind: "number", cell: (row) => took(row) },
      { title: "Tokens", kind: "wide number", cell: (row) => compact(row.tokens?.total_tokens) },
      { title: "Error", kind: "wide", cell: (row) => cut(row.error_type ?? "") },
    ],
  })}`;
}

/** @param {any} row */
function took({ started_at: begun, ended_at: ended }) {
  if (!begun || !ended) return "–";
  const length = (Date.parse(ended) - Date.parse(begun)) / 1000; // of times in whole seconds
  return length < 1 ? "< 1 s" : duration(length);
}
