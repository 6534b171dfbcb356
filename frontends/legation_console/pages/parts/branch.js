// @ts-check
// Branches: a run, or a conversation up to it, goes on in a session of its own.  What it is a branch
// of stays as it is.
import { html, nothing } from "../vendor/lit-html.js";
import { attempt } from "./attempt.js";
import { icon } from "./icons.js";

/** @typedef {import("../../types/console").Context} Context */

const SESSION = "/sessions/{session_id}/fork";
const AT_REST = ["COMPLETED", "ERROR", "CANCELLED", "PAUSED"];

/** Whether the caller may fork a run that rests. @param {Context} ctx @param {string} kind @param {string} id @param {any} run */
export function mayFork(ctx, kind, id, run) {
  return AT_REST.includes(run?.status) && ctx.can(`POST /${kind}s/{${kind}_id}/runs/{run_id}/fork`, id);
}

/** Whether a run is one of the caller's: those of others are for reading. @param {Context} ctx @param {any} run */
export function isOwn({ rights: { me } }, run) {
  return me.admin || !me.authorization || run?.user_id === me.sub;
}

/**
 * Fork a run, and call `then` with the fork, which goes on at the server.
 * @param {Context} ctx @param {string} kind @param {string} id @param {string} run_id
 * @param {Record<string, string>} fields @param {(made: {run_id: string, session_id: string}) => void} then
 */
export function fork(ctx, kind, id, run_id, fields, then) {
  const form = new FormData();
  for (const [name, value] of Object.entries({ ...fields, background: "true" })) form.set(name, value);
  const path = { [`${kind}_id`]: id, run_id };
  return attempt(ctx, async () => then(await ctx.api.ask("post", `/${kind}s/{${kind}_id}/runs/{run_id}/fork`, { path, form })));
}

/** Where a conversation is, and what it is a branch of. @param {string} kind @param {string} id @param {string} session @param {string} [from] */
export function conversation(kind, id, session, from = "") {
  return `/playground/${kind}/${encodeURIComponent(id)}?${new URLSearchParams({ session, ...(from && { from }) })}`;
}

/** What can be done with one exchange. @param {Context} ctx @param {import("../talk.js").Turn} turn @param {any} it */
export function branchView(ctx, { asked: { kind, id, session, message }, log: { run } }, it) {
  if (!run || !ctx.can("GET /sessions/{session_id}/runs")) return nothing;
  /** @param {{session_id: string}} made */
  const show = ({ session_id }) => ctx.go(conversation(kind, id, session_id, session));
  const edit = async () => {
    const text = { type: "string", title: "Message", minLength: 1, maxLength: 100_000 };
    const schema = { type: "object", properties: { message: text }, required: ["message"] };
    const about = "It is asked in a new branch. This conversation stays as it is.";
    const fields = /** @type {any} */ (await ctx.ask({ title: "Edit the message", text: about, action: "Ask again", schema, value: { message } }));
    if (fields) await fork(ctx, kind, id, run.id, fields, show);
  };
  const branch = () => attempt(ctx, async () => show(/** @type {any} */ (await ctx.api.post(SESSION, {
    path: { session_id: session }, query: { db_id: it?.db_id, type: kind }, json: { run_id: run.id },
  }))));
  return html`${mayFork(ctx, kind, id, run) ? html`
      <button type="button" class="bare" @click=${() => fork(ctx, kind, id, run.id, {}, show)}>${icon("again")}Regenerate</button>
      <button type="button" class="bare" @click=${edit}>${icon("edit")}Edit</button>` : nothing}
    ${run.status !== "PAUSED" && ctx.can(`POST ${SESSION}`)
      ? html`<button type="button" class="bare" @click=${branch}>${icon("branch")}Branch from here</button>` : nothing}`;
}
