// @ts-check
// Access: what a token may do and why, a request tried before it is made, and the keys in force.
import { attempt } from "../parts/attempt.js";
import { ago, badge, code, cut, facts, show } from "../parts/show.js";
import { table } from "../parts/table.js";
import { html, nothing } from "../vendor/lit-html.js";

/** @typedef {import("../../types/console").Context} Context */

const KEYS = "GET /access/keys";
const EXPLAIN = "POST /access/explain";
const METHODS = ["GET", "POST", "PATCH", "PUT", "DELETE"];

/** @type {import("../../types/console").Screen} */
export const screen = {
  path: "access",
  title: "Access",
  group: "Operate",
  icon: "access",
  needs: [],
  open,
  view,
};

/** @param {Context} ctx */
function open(ctx) {
  return {
    show: "",
    method: "GET",
    path: "",
    bearer: "",
    answer: /** @type {any} */ (null),
    keys: ctx.can(KEYS) ? ctx.load((signal) => ctx.api.get("/access/keys", { signal })) : null,
  };
}

/** @param {Context} ctx @param {any} state */
function view(ctx, state) {
  const { routes } = ctx.rights.me;
  const rows = routes.filter((/** @type {any} */ line) => state.show === "" || line.allowed === (state.show === "allowed"));
  return html`
    <section><h2>Try a request</h2>${viewForm(ctx, state)}
      <div role="status">${state.answer ? viewAnswer(state.answer) : nothing}</div></section>
    ${state.keys ? html`<section><h2>Keys</h2>${show(state.keys, viewKeys)}</section>` : nothing}
    <section><h2>Rights</h2>
      <div class="filters"><label>Routes
        <select @change=${(/** @type {any} */ event) => ctx.set(state, { show: event.target.value })}>
          <option value="">All</option><option value="allowed">Allowed</option><option value="denied">Denied</option>
        </select></label></div>
      ${table({
        caption: `What ${ctx.rights.name} may do`,
        rows,
        columns: [
          { title: "Route", kind: "main", cell: (row) => code(`${row.method} ${row.route}`) },
          { title: "Needs", kind: "wide", cell: (row) => cut(row.needs) },
          { title: "Allowed", cell: (row) => (row.allowed ? badge("yes", "good") : badge("no", "bad")) },
          { title: "By", kind: "wide", cell: (row) => cut(row.only ? `only ${row.only.join(", ")}` : (row.by ?? "–")) },
        ],
      })}
    </section>`;
}

/** @param {Context} ctx @param {any} state */
function viewForm(ctx, state) {
  const write = (/** @type {any} */ event) => ctx.set(state, { [event.target.name]: event.target.value });
  return html`<form class="filters" @submit=${(/** @type {Event} */ event) => explain(ctx, state, event)}>
    <label>Method<select name="method" @change=${write}>
      ${METHODS.map((one) => html`<option .selected=${one === state.method}>${one}</option>`)}</select></label>
    <label class="grow">Path<input name="path" required spellcheck="false" autocomplete="off"
      placeholder="/agents/concierge/runs" .value=${state.path} @input=${write} /></label>
    ${ctx.can(EXPLAIN) ? html`<label class="whole">As the bearer of this token, or of these claims as JSON; empty: you
      <textarea name="bearer" rows="2" spellcheck="false" class="mono" .value=${state.bearer} @input=${write}></textarea></label>` : nothing}
    <button class="primary">Explain</button>
  </form>`;
}

/** @param {Context} ctx @param {any} state @param {Event} event */
async function explain(ctx, state, event) {
  event.preventDefault();
  const { method, path } = state;
  const bearer = state.bearer.trim();
  ctx.set(state, { answer: null });
  await attempt(ctx, async () => {
    const whose = bearer.startsWith("{") ? { claims: JSON.parse(bearer) } : bearer ? { token: bearer } : {};
    const answer = ctx.can(EXPLAIN)
      ? await ctx.api.post("/access/explain", { json: { method, path, ...whose } })
      : await ctx.api.post("/me/explain", { json: { method, path } });
    ctx.set(state, { answer });
  });
}

/** @param {any} answer */
function viewAnswer(answer) {
  const { allowed, caller, method, route } = answer;
  return html`<p>${allowed ? badge("Allowed", "good") : badge("Denied", "bad")} ${reason(answer)}</p>
    ${facts([
      ...(route ? [/** @type {[string, any]} */ (["Route", code(`${method} ${route}`)])] : []),
      ...(caller ? [
        /** @type {[string, any]} */ (["Subject", cut(caller.sub ?? "nobody by name")]),
        /** @type {[string, any]} */ (["Scopes", caller.scopes.length ? caller.scopes.join(", ") : "none"]),
      ] : []),
    ])}`;
}

/** The reason, as a sentence. @param {any} answer */
function reason({ allowed, because, by, needs, only, missing, allow }) {
  if (because) return `The token is refused: ${because}.`;
  if (only) return `It needs ${needs}. ${by} opens ${only.join(", ")}.`;
  if (allowed) return `It needs ${needs}. The token has it: ${by}.`;
  if (missing) return `It needs ${needs}, and the token has neither. Ask for ${missing}.`;
  if (allow) return `There is no such method here; the path takes ${allow.join(", ")}.`;
  return needs ? `It needs ${needs}.` : "There is no such route.";
}

/** @param {any} keys */
function viewKeys({ data, meta }) {
  if (!meta.authorization) return html`<p>Authorization is off: no token is asked for.</p>`;
  return html`
    ${facts([["Algorithm", meta.algorithm], ["In force", meta.loaded_at ? ago(meta.loaded_at) : "since the start"]])}
    ${table({
      caption: "Keys in force",
      rows: data,
      columns: [
        { title: "Key", kind: "main", cell: (row) => code(row.key_id) },
        { title: "kid", cell: (row) => cut(row.kid) },
        { title: "From", cell: (row) => row.source },
      ],
    })}
    ${meta.notes.map((/** @type {string} */ note) => html`<p class="quiet">${note}</p>`)}
    ${meta.trouble ? html`<div class="trouble"><p>Newer keys were not taken.</p><ul>${meta.trouble.reasons.map(
      (/** @type {any} */ one) => html`<li>${one.path}: ${one.message}</li>`)}</ul></div>` : nothing}`;
}
