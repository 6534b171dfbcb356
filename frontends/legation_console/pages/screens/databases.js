// @ts-check
// Databases: where the schema of each one stands, what a migration would do, and doing it.
import { bytes, count, plural, when } from "../format.js";
import { attempt } from "../parts/attempt.js";
import { badge, code, facts, show } from "../parts/show.js";
import { table } from "../parts/table.js";
import { html, nothing } from "../vendor/lit-html.js";

/** @typedef {import("../../types/console").Context} Context */

const EARLIEST = "2.0.0"; // the plan down to it names every version in between
const MIGRATE = "POST /databases/{db_id}/migrate";

/** @type {import("../../types/console").Screen} */
export const screen = {
  path: "databases",
  title: "Databases",
  group: "Operate",
  icon: "databases",
  needs: ["GET /databases"],
  heading: (ctx) => ctx.place.ids[0] ?? "Databases",
  open: (ctx) => (ctx.place.ids[0] ? openOne(ctx, ctx.place.ids[0]) : openAll(ctx)),
  view: (ctx, state) => (state.id ? viewOne(ctx, state) : viewAll(state)),
};

/** @param {Context} ctx */
function openAll(ctx) {
  const databases = ctx.load((signal) => ctx.api.get("/databases", { signal }));
  ctx.every(10, () => databases.reload());
  return { databases };
}

/** @param {any} state */
function viewAll({ databases }) {
  return show(databases, (rows) => table({
    caption: "Databases",
    rows,
    href: (row) => `/databases/${encodeURIComponent(row.id)}`,
    columns: [
      { title: "Database", kind: "main", cell: (row) => row.id },
      { title: "State", kind: "fit", cell: (row) => badge(row.state, row.serving ? undefined : "bad") },
      { title: "Schema", cell: version },
      { title: "Engine", kind: "wide", cell: (row) => row.engine },
      { title: "Nodes", kind: "number", cell: (row) => count(row.cluster?.nodes) },
    ],
  }));
}

/** @param {any} row */
function version({ version: now, latest }) {
  return now === latest ? now : `${now ?? "none"} → ${latest}`;
}

/** @param {Context} ctx @param {string} id */
function openOne(ctx, id) {
  const path = { db_id: id };
  /** @param {string | null} to */
  const plan = (to) => ctx.load((signal) =>
    ctx.api.get("/databases/{db_id}/migrations/plan", { path, query: { target_version: to }, signal }));
  return {
    id,
    busy: false,
    done: "",
    plan: plan(ctx.place.query.get("to")),
    down: plan(EARLIEST),
    base: ctx.load((signal) => ctx.api.get("/databases/{db_id}", { path, signal })),
    history: ctx.load((signal) => ctx.api.get("/databases/{db_id}/migrations", { path, signal })),
    size: ctx.can("GET /databases/{db_id}/size", id)
      ? ctx.load((signal) => ctx.api.get("/databases/{db_id}/size", { path, signal })) : null,
  };
}

/** @param {Context} ctx @param {any} state */
function viewOne(ctx, state) {
  return html`
    <section>${show(state.base, (base) => facts([
      ["State", badge(base.state, base.serving ? undefined : "bad")],
      ["Schema", version(base)],
      ["Engine", base.engine],
      ["Nodes", count(base.cluster?.nodes)],
      ["In words", base.detail],
    ]))}</section>
    <section><h2>Migrate</h2>${show(state.plan, (plan) => viewPlan(ctx, state, plan))}</section>
    ${state.size ? html`<section><h2>Size</h2>${show(state.size, viewSize)}</section>` : nothing}
    <section><h2>History</h2>${show(state.history, ({ data }) => table({
      caption: "Migrations so far",
      rows: data,
      columns: [
        { title: "When", kind: "fit", cell: (row) => when(row.at_us / 1e6) },
        { title: "From", cell: (row) => row.from_version },
        { title: "To", cell: (row) => row.to_version },
        { title: "By", kind: "main", cell: (row) => row.actor },
        { title: "Request", kind: "wide", cell: (row) => (row.request_id ? code(row.request_id) : "–") },
      ],
    }))}</section>`;
}

/** @param {Context} ctx @param {any} state @param {any} plan */
function viewPlan(ctx, state, plan) {
  const base = state.base.value ?? {};
  const moves = [...plan.moves, ...(state.down.value?.moves ?? [])].map((move) => move.version);
  const versions = [...new Set([base.latest, base.version, plan.to_version, EARLIEST, ...moves])]
    .filter(Boolean).sort((one, other) => other.localeCompare(one, "en", { numeric: true }));
  const go = (/** @type {any} */ event) =>
    ctx.go(`/databases/${encodeURIComponent(state.id)}?to=${event.target.value}`, { replace: true });
  return html`
    <div class="filters"><label>To version<select @change=${go}>${versions.map((one) =>
        html`<option value=${one} .selected=${one === plan.to_version}>${one}</option>`)}</select></label>
      ${plan.moves.length && ctx.can(MIGRATE, state.id) ? html`
        <button type="button" ?disabled=${state.busy} @click=${() => run(ctx, state, plan, true)}>Dry run</button>
        <button type="button" class=${plan.loses.length ? "danger" : "primary"} ?disabled=${state.busy}
          @click=${() => run(ctx, state, plan, false)}>Migrate</button>` : nothing}
    </div>
    <p role="status">${state.done}</p>
    ${plan.moves.length ? html`<ol class="moves">${plan.moves.map(viewMove)}</ol>`
      : html`<p class="none">The schema is at ${plan.to_version}: there is nothing to do.</p>`}`;
}

/** @param {any} move */
function viewMove({ direction, version, title, loses, statements }) {
  return html`<li>
    <h3>${badge(direction, direction === "up" ? "good" : "warn")} ${version}</h3>
    <p>${title}</p>
    ${loses.length ? html`<p>Lost with it:</p><ul class="losses">${loses.map((/** @type {string} */ one) =>
      html`<li>${one}</li>`)}</ul>` : nothing}
    <details><summary>${plural(statements.length, "statement")}</summary>
      <pre tabindex="0">${statements.join(";\n")}</pre></details>
  </li>`;
}

/** @param {Context} ctx @param {any} state @param {any} plan @param {boolean} dry */
async function run(ctx, state, { loses, moves, to_version: to }, dry) {
  const lossy = loses.length > 0;
  const sure = dry || await ctx.confirm({
    title: `Migrate ${state.id} to ${to}`,
    text: lossy ? html`<p>This cannot be undone. What is lost:</p>
        <ul>${loses.map((/** @type {string} */ one) => html`<li>${one}</li>`)}</ul>`
      : `${plural(moves.length, "step")} in one transaction: it is done whole, or not at all.`,
    action: "Migrate",
    danger: lossy,
    ...(lossy ? { typed: state.id } : {}),
  });
  if (!sure) return;
  ctx.set(state, { busy: true, done: "" });
  const query = { target_version: to, dry_run: dry, allow_data_loss: lossy };
  await attempt(ctx, async () => {
    const answer = await ctx.api.post("/databases/{db_id}/migrate", { path: { db_id: state.id }, query });
    ctx.set(state, { done: dry ? `Dry run: ${answer.message}` : answer.message });
    for (const load of dry ? [] : [state.base, state.plan, state.down, state.history, state.size]) load?.reload();
  });
  ctx.set(state, { busy: false });
}

/** @param {any} size */
function viewSize({ tables, bytes: whole }) {
  return html`<p>${bytes(whole)} in all.</p>${tables === null ? html`<p class="quiet">Its tables are too large to be counted.</p>` : table({
    caption: "Size by table",
    rows: tables,
    columns: [
      { title: "Table", kind: "main", cell: (row) => row.name },
      { title: "Rows, about", kind: "number", cell: (row) => count(row.rows) },
      { title: "With indexes", kind: "number", cell: (row) => bytes(row.bytes) },
    ],
  })}`;
}
