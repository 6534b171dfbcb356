// @ts-check
// One run: its steps against time, its answer, what it cost, and what went wrong.
import { count, plural } from "../format.js";
import { attempt } from "../parts/attempt.js";
import { fork, isOwn, mayFork } from "../parts/branch.js";
import { follow } from "../parts/follow.js";
import { json } from "../parts/json.js";
import { argumentsView } from "../parts/requirement.js";
import { ago, badge, code, cut, facts, show, trouble } from "../parts/show.js";
import { Steps } from "../parts/steps.js";
import { waterfall } from "../parts/waterfall.js";
import { html, nothing } from "../vendor/lit-html.js";

/** @typedef {import("../../types/console").Context} Context */

const SETTLED = new Set(["COMPLETED", "CANCELLED", "ERROR"]);

/** @param {Context} ctx @param {string} id */
export function openRun(ctx, id) {
  const component = ctx.place.query.get("component") ?? "";
  const [kind, ...rest] = component.split(":");
  const name = rest.join(":");
  const base = kind === "team" ? "/teams/{team_id}/runs/{run_id}" : "/agents/{agent_id}/runs/{run_id}";
  const path = { [`${kind}_id`]: name, run_id: id };
  const state = {
    id, base, path, kind, name,
    database: ctx.place.query.get("db_id"),
    title: name,
    last: 0,
    top: 0,
    chosen: /** @type {import("../parts/steps.js").Step | null} */ (null),
    steps: new Steps(),
    lost: /** @type {Error | null} */ (null),
    run: ctx.load((signal) => ctx.api.ask("get", base, { path, signal })),
  };
  const over = () => SETTLED.has(state.run.value?.status) && state.steps.over;
  const where = () => (over() ? null
    : { path: `${base}/events`, options: { path, ...(state.last ? { query: { after: state.last } } : {}) } });
  follow(ctx, where, (event) => take(ctx, state, event), (lost) => ctx.set(state, { lost }))
    .then((error) => { if (error) ctx.set(state, { lost: error }); });
  return state;
}

/** @param {Context} ctx @param {any} state @param {import("../../types/console").StreamEvent} event */
function take(ctx, state, event) {
  state.last = Number(event.id.split(":").at(-1)) || state.last;
  state.steps.add(event.data, event.id);
  if (/^(Team)?Run(Paused|Completed|Error|Cancelled|Continued)$/.test(event.name)
    && event.data.run_id === state.id) state.run.reload();
  ctx.update();
}

/** @param {Context} ctx @param {any} state */
export function viewRun(ctx, state) {
  return html`
    ${state.lost ? trouble(state.lost) : nothing}
    ${show(state.run, (run) => html`
      <div class="row">${actions(ctx, state, run)}</div>
      <section>${facts([
        ["Status", badge(run.status)],
        [state.kind === "team" ? "Team" : "Agent", cut(run.team_name ?? run.agent_name ?? state.name)],
        ["User", cut(run.user_id || "–")],
        ["Session", session(ctx, state, run)],
        ["Model", cut(run.model ?? "–")],
        ["Tokens", html`${count(run.metrics?.total_tokens)} <span class="quiet">${count(run.metrics?.input_tokens)} in,
          ${count(run.metrics?.output_tokens)} out</span>`],
        ["Begun", ago(run.created_at)],
        ["Run", code(state.id)],
        ...origin(state, run),
        ...failure(run),
      ])}</section>`)}
    <section><h2>Steps</h2>
      ${waterfall({
        steps: state.steps.list,
        now: Date.now() / 1000,
        top: state.top,
        chosen: state.chosen,
        scroll: (top) => ctx.set(state, { top }),
        choose: (step) => ctx.set(state, { chosen: step === state.chosen ? null : step }),
      })}
      ${state.chosen ? viewStep(ctx, state, state.chosen) : nothing}
      ${state.steps.pieces ? html`<p class="quiet">${plural(state.steps.pieces, "piece")} of the answer left out.</p>` : nothing}
    </section>
    ${state.run.value ? answer(state.run.value) : nothing}`;
}

/** @param {Context} ctx @param {any} state @param {any} run */
function session(ctx, { kind }, run) {
  if (!ctx.can("GET /sessions/{session_id}")) return code(run.session_id);
  const database = ctx.place.query.get("db_id");
  const query = new URLSearchParams({ type: kind, ...(database && { db_id: database }) });
  return html`<a class="cut" href="#/sessions/${encodeURIComponent(run.session_id)}?${query}">${run.session_id}</a>`;
}

/** @param {any} state @param {string} id */
function address({ kind, name, database }, id) {
  return `/runs/${encodeURIComponent(id)}?${new URLSearchParams({ component: `${kind}:${name}`, ...(database && { db_id: database }) })}`;
}

/** What a run is a fork of. @param {any} state @param {any} run @returns {[string, any][]} */
function origin(state, { forked_from: from }) {
  if (!from) return [];
  const at = from.at ? ` at ${from.at}` : ", from its beginning";
  return [["Fork of", html`<a href="#${address(state, from.run_id)}">another run</a>${at}`]];
}

/** @param {any} run @returns {[string, any][]} */
function failure(run) {
  if (!run.error_type && run.status !== "ERROR") return [];
  return [
    ["Error", html`${badge(run.error_type ?? "failed", "bad")} ${run.error_message ?? ""}`],
    ...(run.incident ? [/** @type {[string, any]} */ (["Incident", code(run.incident)])] : []),
  ];
}

/** @param {Context} ctx @param {any} state @param {any} run */
function actions(ctx, state, run) {
  const cancel = `POST ${state.base}/cancel`;
  const stop = async () => {
    await attempt(ctx, () => ctx.api.ask("post", `${state.base}/cancel`, { path: state.path }), "The run is cancelled.");
    state.run.reload();
  };
  return html`
    ${run.status === "PAUSED" && ctx.can("GET /approvals/{approval_id}")
      ? html`<a class="button primary" href="#/approvals/${state.id}.${state.last}">Answer it</a>` : nothing}
    ${!SETTLED.has(run.status) && ctx.can(cancel, state.name)
      ? html`<button type="button" class="danger" @click=${stop}>Cancel the run</button>` : nothing}`;
}

/** The words that ask whether to fork at a step. @type {Record<string, string>} */
const FORKS = {
  run: "A new run begins anew, with the same message.",
  model: "A new run has all that came before, and asks the model again.",
  tool: "A new run has all that came before, and makes this call again. With a result, it is not made.",
};

/** @param {Context} ctx @param {any} state @param {import("../parts/steps.js").Step} step */
async function forkAt(ctx, state, { kind, at }) {
  /** @type {import("../../types/console").Schema} */
  const schema = { properties: {} };
  if (kind === "tool") schema.properties = { outcome: { type: "string", title: "Result of the call", maxLength: 10_000 } };
  const text = `${FORKS[kind]} This run stays as it is.`;
  const fields = /** @type {any} */ (await ctx.ask({ title: "Fork from this step", text, action: "Fork", schema, value: {} }));
  if (!fields) return;
  /** @type {Record<string, string>} */
  const form = kind === "run" ? {} : { at };
  if (fields.outcome !== undefined) form.outcome = fields.outcome;
  await fork(ctx, state.kind, state.name, state.id, form, (made) => ctx.go(address(state, made.run_id)));
}

/** @param {Context} ctx @param {any} state @param {import("../parts/steps.js").Step} step */
function viewStep(ctx, state, step) {
  const { label, events, depth, kind } = step;
  const run = state.run.value, rests = depth < 2 && kind in FORKS && mayFork(ctx, state.kind, state.name, run);
  const forks = rests && isOwn(ctx, run) && !run.parent_run_id;
  const tool = events.at(-1)?.tool;
  return html`<div class="step" role="region" aria-label="Step ${label}">
    ${forks ? html`<button type="button" @click=${() => forkAt(ctx, state, step)}>Fork from this step</button>` : nothing}
    ${tool ? html`<h3>${label}</h3>${argumentsView(tool.tool_args ?? {})}
      ${tool.result === null ? nothing : html`<pre class="text" tabindex="0">${tool.result}</pre>`}` : nothing}
    ${events.map((event) => html`<details ?open=${!tool}><summary>${event.event}</summary>${json(event)}</details>`)}
  </div>`;
}

/** @param {any} run */
function answer(run) {
  const { content, requirements = [] } = run;
  const text = typeof content === "string" ? content : JSON.stringify(content ?? null, null, 2);
  return html`
    ${requirements.length ? html`<section><h2>Waits for</h2>${requirements.map((/** @type {any} */ one) =>
      html`<div class="call"><b>${one.tool_execution?.tool_name}</b>${argumentsView(one.tool_execution?.tool_args ?? {})}</div>`)}</section>` : nothing}
    <section><h2>Answer</h2>${content === undefined || content === null ? html`<p class="none">None yet.</p>`
      : html`<pre class="text" tabindex="0">${text}</pre>`}</section>
    <details><summary>As JSON</summary>${json(run)}</details>`;
}
