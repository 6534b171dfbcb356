// @ts-check
// Sessions: find one, read its conversation, change its state, take it along or delete it.
import { count, when } from "../format.js";
import { attempt } from "../parts/attempt.js";
import { chosen, filters } from "../parts/filters.js";
import { save } from "../parts/save.js";
import { ago, badge, code, cut, facts, show } from "../parts/show.js";
import { paged, table } from "../parts/table.js";
import { html, nothing } from "../vendor/lit-html.js";

/** @typedef {import("../../types/console").Context} Context */

/** @type {import("../../types/console").Screen} */
export const screen = {
  path: "sessions",
  title: "Sessions",
  group: "Work",
  icon: "sessions",
  needs: ["GET /sessions"],
  heading: (ctx, state) => state.session?.value?.session_name || ctx.place.ids[0] || "Sessions",
  open: (ctx) => (ctx.place.ids[0] ? openOne(ctx, ctx.place.ids[0]) : openAll(ctx)),
  view: (ctx, state) => (state.id ? viewOne(ctx, state) : viewAll(ctx, state)),
};

/** @type {import("../parts/filters.js").Filter[]} */
const FIELDS = [
  { name: "session_name", label: "Name" },
  { name: "user_id", label: "User" },
  { name: "component_id", label: "Agent or team" },
  { name: "type", label: "Of", options: [["agent", "Agents"], ["team", "Teams"]] },
];

/** @param {Context} ctx */
function openAll(ctx) {
  /** @type {Record<string, any>} */
  const query = { limit: 50, ...chosen(ctx) };
  /** @type {{query: Record<string, any>, databases: string[], sessions: any}} */
  const state = { query, databases: [], sessions: null };
  state.sessions = ctx.pages(async (next, signal) => {
    if (ctx.can("GET /databases") && state.databases.length === 0) {
      state.databases = (await ctx.api.get("/databases", { signal })).map(({ id }) => id);
      if (state.databases.length > 1) query.db_id ||= state.databases[0]; // of several one has to be named
    }
    return ctx.api.page("/sessions", { query, signal }, next);
  });
  return state;
}

/** @param {Context} ctx @param {any} state */
function viewAll(ctx, { sessions, databases, query: { type = "agent", db_id: database = "" } }) {
  const query = new URLSearchParams({ type, ...(database && { db_id: database }) });
  const known = databases.length ? { options: databases.map((/** @type {string} */ id) => [id, id]) } : {};
  const fields = databases.length === 1 ? FIELDS : [...FIELDS, { name: "db_id", label: "Database", ...known }];
  return html`${filters(ctx, fields)}${paged(sessions, {
    caption: "Sessions, newest first",
    title: "No session fits",
    none: "A session begins with its first run.",
    href: (row) => `/sessions/${encodeURIComponent(row.session_id)}?${query}`,
    columns: [
      { title: "Session", kind: "main", cell: (row) => cut(row.session_name || row.session_id) },
      { title: "User", cell: (row) => cut(row.user_id ?? "–") },
      { title: "Answered by", kind: "wide", cell: (row) => cut(row.agent_id ?? row.team_id ?? "–") },
      { title: "Last run", kind: "fit", cell: (row) => (row.last_status ? badge(row.last_status) : "–") },
      { title: "Changed", cell: (row) => ago(row.updated_at) },
    ],
  })}`;
}

/** @param {Context} ctx @param {string} id */
function openOne(ctx, id) {
  const options = { path: { session_id: id }, query: chosen(ctx) };
  return {
    id,
    options,
    draft: /** @type {string | null} */ (null),
    fault: "",
    session: ctx.load((signal) => ctx.api.get("/sessions/{session_id}", { ...options, signal })),
    runs: ctx.load((signal) => ctx.api.get("/sessions/{session_id}/runs", { ...options, signal })),
  };
}

/** @param {Context} ctx @param {any} state */
function viewOne(ctx, state) {
  return show(state.session, (session) => html`
    <div class="row">
      ${ctx.can("GET /sessions/{session_id}/export") ? html`<button type="button" @click=${() => exportSession(ctx, state)}>Export</button>` : nothing}
      ${ctx.can("POST /sessions/{session_id}/rename") ? html`<button type="button" @click=${() => rename(ctx, state)}>Rename</button>` : nothing}
      ${ctx.can("DELETE /sessions/{session_id}") ? html`<button type="button" class="danger" @click=${() => remove(ctx, state)}>Delete</button>` : nothing}
    </div>
    <section>${facts([
      ["Session", code(session.session_id)],
      ["User", cut(session.user_id || "–")],
      ["Answered by", cut(session.agent_id ?? session.team_id ?? "–")],
      ["Tokens", count(session.total_tokens)],
      ["Begun", when(session.created_at)],
      ["Changed", ago(session.updated_at)],
    ])}</section>
    <section><h2>Conversation</h2>
      ${session.chat_history?.length ? html`<ol class="chat">${session.chat_history.map(viewMessage)}</ol>`
        : html`<p class="none">Nothing was said yet.</p>`}
    </section>
    <section><h2>State</h2>${viewState(ctx, state, session)}</section>
    <section><h2>Runs</h2>${show(state.runs, (rows) => table({
      caption: "Runs of this session",
      rows,
      href: (row) => `/runs/${row.run_id}?${runQuery(row, state)}`,
      columns: [
        { title: "Run", kind: "main", cell: (row) => cut(row.run_input || row.run_id) },
        { title: "Status", kind: "fit", cell: (row) => badge(row.status) },
        { title: "Tokens", kind: "number", cell: (row) => count(row.metrics?.total_tokens) },
        { title: "Begun", cell: (row) => ago(row.created_at) },
      ],
    }))}</section>`);
}

/** @param {any} row @param {any} state */
function runQuery(row, { options }) {
  const component = row.team_id ? `team:${row.team_id}` : `agent:${row.agent_id}`;
  return new URLSearchParams({ component, ...(options.query.db_id && { db_id: options.query.db_id }) });
}

/** @param {any} message */
function viewMessage({ role, content, tool_calls: calls = [] }) {
  const text = typeof content === "string" ? content : JSON.stringify(content, null, 2);
  return html`<li class=${role}><b>${role}</b>
    ${text ? html`<p>${text}</p>` : nothing}
    ${calls.map((/** @type {any} */ { function: called }) => html`<p>${code(`${called?.name} ${called?.arguments}`)}</p>`)}</li>`;
}

/** @param {Context} ctx @param {any} state @param {any} session */
function viewState(ctx, state, session) {
  const text = state.draft ?? JSON.stringify(session.session_state ?? {}, null, 2);
  if (!ctx.can("PATCH /sessions/{session_id}")) return html`<pre tabindex="0">${text}</pre>`;
  return html`<textarea aria-label="State as JSON" rows="8" spellcheck="false" class="mono" .value=${text} aria-invalid=${state.fault !== ""}
      @input=${(/** @type {any} */ event) => ctx.set(state, { draft: event.target.value, fault: "" })}></textarea>
    ${state.fault ? html`<p class="trouble" role="alert">${state.fault}</p>` : nothing}
    <div class="row">
      <button type="button" class="primary" ?disabled=${state.draft === null} @click=${() => change(ctx, state)}>Save the state</button>
      ${state.draft === null ? nothing
        : html`<button type="button" @click=${() => ctx.set(state, { draft: null, fault: "" })}>Undo</button>`}
    </div>`;
}

/** @param {Context} ctx @param {any} state */
async function change(ctx, state) {
  try {
    const json = { session_state: JSON.parse(state.draft) };
    await ctx.api.patch("/sessions/{session_id}", { ...state.options, json });
    await state.session.reload();
    ctx.set(state, { draft: null });
    ctx.notify("The state is saved.", "good");
  } catch (error) {
    ctx.set(state, { fault: /** @type {Error} */ (error).message });
  }
}

/** @param {Context} ctx @param {any} state */
async function rename(ctx, state) {
  const name = { type: "string", title: "Name", minLength: 1 };
  const json = /** @type {any} */ (await ctx.ask({
    title: "Rename the session",
    action: "Rename",
    schema: { type: "object", properties: { session_name: name }, required: ["session_name"] },
    value: { session_name: state.session.value.session_name },
  }));
  if (json === null) return;
  await attempt(ctx, () => ctx.api.post("/sessions/{session_id}/rename", { ...state.options, json }));
  state.session.reload();
}

/** @param {Context} ctx @param {any} state */
async function remove(ctx, state) {
  const sure = await ctx.confirm({
    title: `Delete ${(state.session.value.session_name || state.id).slice(0, 80)}`,
    text: "Its conversation, its state and its runs are deleted with it.",
    action: "Delete",
    danger: true,
  });
  if (!sure) return;
  const gone = () => ctx.api.delete("/sessions/{session_id}", state.options);
  if (await attempt(ctx, gone, "The session is deleted.")) ctx.go("/sessions", { replace: true });
}

/** @param {Context} ctx @param {any} state */
async function exportSession(ctx, state) {
  await attempt(ctx, async () =>
    save(await ctx.api.send("get", "/sessions/{session_id}/export", state.options), `${state.id}.json`));
}
