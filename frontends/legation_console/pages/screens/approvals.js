// @ts-check
// Approvals: the calls that wait for a person, oldest first, and the answer to each.
import { plural } from "../format.js";
import { attempt } from "../parts/attempt.js";
import { chosen, filters } from "../parts/filters.js";
import { live } from "../parts/follow.js";
import { argumentsView } from "../parts/requirement.js";
import { ago, badge, code, cut, empty, facts, show } from "../parts/show.js";
import { html, nothing } from "../vendor/lit-html.js";

/** @typedef {import("../../types/console").Context} Context */

const RESOLVE = "POST /approvals/{approval_id}/resolve";

/** @type {import("../../types/console").Screen} */
export const screen = {
  path: "approvals",
  title: "Approvals",
  group: "Work",
  icon: "approvals",
  needs: ["GET /approvals"],
  heading: (ctx) => (ctx.place.ids[0] ? "Approval" : "Approvals"),
  open: (ctx) => (ctx.place.ids[0] ? openOne(ctx, ctx.place.ids[0]) : openAll(ctx)),
  view: (ctx, state) => (ctx.place.ids[0] ? viewOne(ctx, state) : viewAll(ctx, state)),
};

/** The stream of changes has the runs that one may read; an approval may be of another.
 * @param {Context} ctx @param {import("../store.js").Load<any>} load */
function watch(ctx, load) {
  live(ctx, () => load.reload());
  ctx.every(3, () => load.reload());
}

/** @param {Context} ctx */
function openAll(ctx) {
  const query = /** @type {any} */ ({ status: "pending", limit: 100, ...chosen(ctx) });
  const approvals = ctx.load((signal) => ctx.api.get("/approvals", { query, signal }));
  watch(ctx, approvals);
  return { approvals, status: query.status };
}

/** @param {Context} ctx @param {string} id */
function openOne(ctx, id) {
  const approval = ctx.load((signal) => ctx.api.get("/approvals/{approval_id}", { path: { approval_id: id }, signal }));
  watch(ctx, approval);
  return { approvals: approval, id };
}

/** @param {Context} ctx @param {any} state */
function viewAll(ctx, state) {
  return html`
    ${filters(ctx, [
      { name: "status", label: "Status", options: [["pending", "Waiting"], ["approved", "Approved"], ["rejected", "Rejected"]] },
      { name: "agent_id", label: "Agent" },
      { name: "team_id", label: "Team" },
      { name: "user_id", label: "User" },
    ])}
    ${show(state.approvals, ({ data, meta }) => (data.length
      ? html`<p class="quiet" role="status">${plural(meta.total_count, "approval")}</p>
        ${(state.status === "pending" ? [...data].reverse() : data).map((/** @type {any} */ one) => viewCard(ctx, state, one))}`
      : empty(state.status === "pending" ? "Nobody waits" : "Nothing here",
        "A run pauses before a call that a person has to allow; it is shown here.")))}`;
}

/** @param {Context} ctx @param {any} state */
function viewOne(ctx, state) {
  return html`${show(state.approvals, (approval) => viewCard(ctx, state, approval))}
    <p><a href="#/approvals">All approvals</a></p>`;
}

/** @param {Context} ctx @param {any} state @param {any} approval */
function viewCard(ctx, state, approval) {
  const { run_id: run, status, requirements, tool_name: tool } = approval;
  const { team_id: team, agent_id: agent } = approval;
  const component = team ? `team:${team}` : `agent:${agent}`;
  const reads = ctx.can(team ? "GET /teams/{team_id}/runs/{run_id}" : "GET /agents/{agent_id}/runs/{run_id}", team ?? agent);
  const open = status === "pending" && ctx.can(RESOLVE);
  const [first] = Object.values(approval.tool_args ?? {});
  const name = `${tool ?? "the call"}${typeof first === "string" ? ` ${first.slice(0, 40)}` : ""}`;
  return html`<article class="approval" aria-label="${tool ?? "call"} for ${approval.user_id || "nobody"}">
    <h2>${tool ?? "A call"} ${badge(status)}</h2>
    ${viewCalls(requirements)}
    ${facts([
      ["Asked by", cut(approval.source_name || component)],
      ["For", cut(approval.user_id || "–")],
      ["Waits since", ago(approval.created_at)],
      ["Run", reads ? html`<a class="cut" href="#/runs/${run}?${new URLSearchParams({ component, db_id: approval.context?.db_id ?? "" })}">${run}</a>` : code(run)],
      ...(approval.resolved_by ? [/** @type {[string, any]} */ (["Answered by", cut(approval.resolved_by)])] : []),
    ])}
    ${open ? html`<div class="row">
      <button type="button" class="primary" aria-label="Approve ${name}" @click=${() => resolve(ctx, state, approval, "approved")}>Approve</button>
      <button type="button" class="danger" aria-label="Reject ${name}" @click=${() => resolve(ctx, state, approval, "rejected")}>Reject</button>
    </div>` : nothing}
  </article>`;
}

/** @param {any[] | null} requirements */
function viewCalls(requirements) {
  return (requirements ?? []).map(({ tool_execution: { tool_name: name, tool_args: args, in_doubt: doubt } }, _, all) => html`<div class="call">
    ${all.length > 1 ? html`<b>${name}</b>` : nothing} ${doubt ? badge("whether it was made is not known", "warn") : nothing}
    ${argumentsView(args ?? {})}</div>`);
}

/** @param {Context} ctx @param {any} state @param {any} approval @param {"approved" | "rejected"} status */
async function resolve(ctx, state, approval, status) {
  const yes = status === "approved";
  const outside = yes ? (approval.requirements ?? []).filter((/** @type {any} */ one) =>
    one.tool_execution?.external_execution_required) : [];
  /** @type {Record<string, import("../../types/console").Schema>} */
  const results = Object.fromEntries(outside.map((/** @type {any} */ one) =>
    [one.id, { type: "string", title: `The result of ${one.tool_execution.tool_name}`, minLength: 1 }]));
  const note = { type: "string", title: "Note", maxLength: 1000, description: yes ? "The agent reads it." : "The agent reads why." };
  const value = /** @type {any} */ (await ctx.ask({
    title: `${yes ? "Approve" : "Reject"} ${approval.tool_name ?? "the call"}`,
    action: yes ? "Approve" : "Reject",
    danger: !yes,
    text: viewCalls(approval.requirements),
    schema: { type: "object", properties: { ...results, note }, required: Object.keys(results) },
    value: {},
  }));
  if (value === null) return;
  const { note: said, ...given } = value;
  const data = { ...(said && { note: said }), ...(outside.length && { results: given }) };
  const json = { status, ...(Object.keys(data).length && { resolution_data: data }) };
  const path = { approval_id: approval.id };
  await attempt(ctx, () => ctx.api.post("/approvals/{approval_id}/resolve", { path, json }),
    yes ? "Approved: the run goes on." : "Rejected: the run goes on without it.");
  state.approvals.reload();
}
