// @ts-check
// Settings: every key in force, and where its value comes from.  Secrets are not among them.
import { badge, code, show } from "../parts/show.js";
import { table } from "../parts/table.js";
import { html } from "../vendor/lit-html.js";

/** @typedef {import("../../types/console").Context} Context */

/** @type {import("../../types/console").Screen} */
export const screen = {
  path: "settings",
  title: "Settings",
  group: "Operate",
  icon: "settings",
  needs: ["GET /config/effective"],
  open: (ctx) => ({
    text: "",
    all: false,
    settings: ctx.load((signal) => ctx.api.get("/config/effective", { signal })),
  }),
  view,
};

/** @param {Context} ctx @param {any} state */
function view(ctx, state) {
  return html`
    <form class="filters" role="search" @submit=${(/** @type {Event} */ event) => event.preventDefault()}>
      <label>Find a key<input type="search" .value=${state.text}
        @input=${(/** @type {any} */ event) => ctx.set(state, { text: event.target.value })} /></label>
      <label class="tick"><input type="checkbox" .checked=${state.all}
        @change=${(/** @type {any} */ event) => ctx.set(state, { all: event.target.checked })} /> Defaults too</label>
    </form>
    ${show(state.settings, ({ data }) => {
      const rows = data.filter((/** @type {any} */ row) =>
        row.path.includes(state.text) && (state.all || row.source !== "default"));
      return rows.length ? groups(rows).map(([name, members]) => group(name, members))
        : html`<p class="none">No key fits.</p>`;
    })}`;
}

/** @param {string} name @param {any[]} rows */
function group(name, rows) {
  return html`<section><h2>${name}</h2>${table({
    caption: name,
    rows,
    columns: [
      { title: "Key", cell: (row) => code(row.path.slice(name.length + 1) || row.path) },
      { title: "Value", kind: "main", cell: (row) => value(row.value) },
      { title: "From", cell: (row) => badge(row.source, row.source === "environment" ? "busy" : "plain") },
    ],
  })}</section>`;
}

/** The keys by their table. @param {any[]} rows @returns {[string, any[]][]} */
function groups(rows) {
  /** @type {Map<string, any[]>} */
  const found = new Map();
  for (const row of rows) {
    const name = row.path.slice(0, Math.max(0, row.path.lastIndexOf("."))) || row.path;
    const members = found.get(name);
    if (members) members.push(row);
    else found.set(name, [row]);
  }
  return [...found];
}

/** @param {unknown} found */
function value(found) {
  if (found === null) return html`<span class="quiet">not set</span>`;
  return code(typeof found === "string" ? found : JSON.stringify(found));
}
