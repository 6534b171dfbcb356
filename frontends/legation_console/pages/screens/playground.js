// @ts-check
// Playground: talk to an agent or a team, see each call, answer what waits for a person.
// `#/playground/agent/concierge?session=…` is one conversation; a reload comes back to it.
import { Log } from "../log.js";
import { branchView, conversation } from "../parts/branch.js";
import { icon } from "../parts/icons.js";
import { composer } from "../parts/composer.js";
import { copy, curl, pytest } from "../parts/copy.js";
import { isAnswered, requirementView } from "../parts/requirement.js";
import { filesView, runView } from "../parts/run.js";
import { show, trouble } from "../parts/show.js";
import { Turn } from "../talk.js";
import { html, nothing } from "../vendor/lit-html.js";
import { components } from "./agents.js";

/** @typedef {import("../../types/console").Context} Context */
/** @typedef {ReturnType<typeof open>} State */

const START = { agent: "POST /agents/{agent_id}/runs", team: "POST /teams/{team_id}/runs" };

/** @type {import("../../types/console").Screen<State>} */
export const screen = { path: "playground", title: "Playground", group: "Work", icon: "playground", needs: Object.values(START), open, view };

/** @param {Context} ctx */
function open(ctx) {
  const [kind, id] = ctx.place.ids;
  const session = ctx.place.query.get("session");
  const from = ctx.place.query.get("from") ?? "";
  const state = {
    kind: kind === "team" ? /** @type {const} */ ("team") : /** @type {const} */ ("agent"),
    id: id ?? "",
    session: session ?? crypto.randomUUID(),
    from,
    schema: "",
    dependencies: "",
    /** @type {File[]} */
    files: [],
    /** @type {Turn[]} */
    turns: [],
    /** @type {import("../store.js").Load<import("./agents.js").Component[]>} */
    all: ctx.load(async (signal) => {
      const found = (await components(ctx, signal)).filter(({ kind, it }) => ctx.can(START[kind], it.id));
      const first = found[0];
      if (id === undefined && first) ctx.go(`/playground/${first.kind}/${encodeURIComponent(first.it.id)}`, { replace: true });
      else if (session !== null) await restore(ctx, state, found, signal);
      return found;
    }),
  };
  return state;
}

/** Bring back what was said before. @param {Context} ctx @param {State} state @param {import("./agents.js").Component[]} found @param {AbortSignal} signal */
async function restore(ctx, state, found, signal) {
  const it = target(state, found);
  if (!it || !ctx.can("GET /sessions/{session_id}/runs")) return;
  const query = { db_id: it.it.db_id, type: state.kind };
  const runs = await ctx.api.ask("get", "/sessions/{session_id}/runs", { path: { session_id: state.session }, query, signal }).catch(() => []);
  state.turns = runs.filter((/** @type {any} */ run) => !run.parent_run_id && (run.agent_id ?? run.team_id) === state.id).map((/** @type {any} */ run) => {
    const turn = new Turn(ctx, asked(state, textOf(run.run_input), []));
    turn.log = new Log();
    turn.log.restore(run);
    return turn;
  });
  const last = state.turns.at(-1);
  if (last && !last.log.ended) last.work(() => last.look());
}

/** @param {unknown} input */
function textOf(input) {
  return typeof input === "string" ? input : JSON.stringify(input ?? "");
}

/** @param {State} state @param {import("./agents.js").Component[]} found */
function target(state, found) {
  return found.find(({ kind, it }) => kind === state.kind && it.id === state.id);
}

/** @param {State} state @param {string} message @param {string[]} files @returns {import("../parts/copy.js").Asked} */
function asked({ kind, id, session, schema, dependencies }, message, files) {
  return { kind, id, session, message, files, schema, dependencies };
}

/** @param {Context} ctx @param {State} state */
function view(ctx, state) {
  return show(state.all, (found) => {
    const it = target(state, found);
    const last = state.turns.at(-1);
    const waits = last !== undefined && (last.busy || last.log.run?.status === "PAUSED");
    return html`<div class="playground">
      <div class="filters">
        <label>Agent or team
          <select @change=${(/** @type {any} */ event) => ctx.go(`/playground/${event.target.value}`)}>
            ${it ? nothing : html`<option value="" selected>Choose one</option>`}
            ${found.map(({ kind, it: one }) => html`<option value="${kind}/${encodeURIComponent(one.id)}" ?selected=${one === it?.it}>${one.name.slice(0, 60)}${kind === "team" ? " (team)" : ""}</option>`)}
          </select></label>
        ${state.turns.length ? html`<button type="button" @click=${() => ctx.go(conversation(state.kind, state.id, crypto.randomUUID()))}>${icon("plus")}New conversation</button>` : nothing}
      </div>
      ${state.from ? html`<p class="quiet">This is a branch of <a href="#${conversation(state.kind, state.id, state.from)}">another conversation</a>, which stays as it is.</p>` : nothing}
      <div class="conversation" aria-live="polite" aria-busy=${last?.busy ?? false}>
        ${state.turns.length === 0 ? html`<p class="quiet start">${it?.it.description ?? "What you write is sent to it, and everything it does is shown here."}</p>` : nothing}
        ${state.turns.map((turn) => turnView(ctx, turn, it?.it))}
      </div>
      ${it && last?.log.run?.status !== "PAUSED" ? composer({ state, last, waits, set: (change) => ctx.set(state, change), send: (message) => send(ctx, state, message) }) : nothing}
    </div>`;
  });
}

/** @param {Context} ctx @param {Turn} turn @param {any} it */
function turnView(ctx, turn, it) {
  const { log, asked } = turn, run = log.run;
  const token = document.body.dataset.authorization === "on";
  const { path, ids } = turn.place;
  return html`<article class="turn" aria-label="A message and its answer">
    <div class="mine"><pre>${asked.message}</pre>${filesView(asked.files)}</div>
    ${run ? runView(log, run) : nothing}
    ${turn.busy ? html`<p class="waiting dots" role="status" aria-label="At work"><i></i><i></i><i></i></p>` : nothing}
    ${turn.error ? trouble(turn.error, run ? () => turn.goOn() : undefined) : nothing}
    ${run?.status === "PAUSED" && !turn.busy ? answerView(ctx, turn, it) : nothing}
    ${run && !turn.busy ? html`<div class="row tools">
      ${branchView(ctx, turn, it)}
      <button type="button" class="bare" @click=${() => copy(curl(ctx.api.address(path, ids), asked, token), ctx.notify, "The command")}>${icon("copy")}Copy as curl</button>
      <button type="button" class="bare" @click=${() => copy(pytest(asked, run), ctx.notify, "The test")}>${icon("copy")}Copy as pytest</button>
      ${ctx.can("GET /runs") ? html`<a class="quiet" href="#/runs/${encodeURIComponent(run.id)}?component=${/** @type {any} */ (ids).team_id ? "team" : "agent"}:${Object.values(ids)[0]}">Show the run</a>` : nothing}
    </div>` : nothing}
  </article>`;
}

/** @param {Context} ctx @param {Turn} turn @param {any} it */
function answerView(ctx, turn, it) {
  const requirements = turn.log.run?.requirements ?? [];
  const tools = it?.tools?.tools ?? [];
  const ready = requirements.every((one, index) => isAnswered(one, turn.answers[index]));
  /** @param {SubmitEvent} event */
  const submit = (event) => {
    event.preventDefault();
    turn.answer();
  };
  return html`<form class="answer" @submit=${submit}>
    ${requirements.map((one, index) => requirementView(one, turn.answers[index] ?? {}, (answer) => {
      turn.answers[index] = answer;
      ctx.update();
    }, tools.find((/** @type {any} */ tool) => tool.name === (one.tool_execution ?? one).tool_name)?.parameters))}
    <div class="row"><button class="primary" ?disabled=${!ready}>Go on</button>
      <button type="button" @click=${() => turn.cancel().then(() => turn.goOn())}>Cancel the run</button></div>
  </form>`;
}

/** @param {Context} ctx @param {State} state @param {string} message */
function send(ctx, state, message) {
  const { files, schema, dependencies, session } = state;
  const form = new FormData();
  const fields = { message, session_id: session, stream: "true", output_schema: schema.trim(), dependencies: dependencies.trim() };
  for (const [name, value] of Object.entries(fields)) if (value) form.set(name, value);
  for (const file of files) form.append("files", file);
  const turn = new Turn({ ...ctx, update: () => follow(ctx) }, asked(state, message, files.map(({ name }) => name)));
  ctx.remember(conversation(state.kind, state.id, session, state.from));
  ctx.set(state, { turns: [...state.turns, turn], files: [] });
  turn.send(form);
  requestAnimationFrame(() => requestAnimationFrame(() => scrollTo({ top: document.body.scrollHeight })));
}

/** Draw again, and stay at the end where somebody reads there. @param {Context} ctx */
function follow(ctx) {
  const near = innerHeight + scrollY > document.body.scrollHeight - 120;
  ctx.update();
  if (near) requestAnimationFrame(() => scrollTo({ top: document.body.scrollHeight }));
}
