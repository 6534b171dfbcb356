// @ts-check
// Agents and teams: what is hosted, with models, tools and members; `#/agents/team/desk` is one.
import { plural } from "../format.js";
import { icon } from "../parts/icons.js";
import { json } from "../parts/json.js";
import { badge, code, cut, empty, facts, show } from "../parts/show.js";
import { table } from "../parts/table.js";
import { html, nothing } from "../vendor/lit-html.js";

/** @typedef {import("../../types/console").Context} Context */
/** @typedef {{kind: "agent" | "team", it: any}} Component */
/** @typedef {ReturnType<typeof open>} State */

/** @type {import("../../types/console").Screen<State>} */
export const screen = {
  path: "agents",
  title: "Agents and teams",
  group: "Work",
  icon: "agents",
  needs: ["GET /agents", "GET /teams"],
  open,
  view,
  heading: (ctx, state) => (ctx.place.ids.length < 2 ? "Agents and teams" : state.one?.value?.it.name ?? ctx.place.ids[1] ?? ""),
};

/** Everything that is hosted and that the caller may see. @param {Context} ctx @param {AbortSignal} signal @returns {Promise<Component[]>} */
export async function components(ctx, signal) {
  const [agents, teams] = await Promise.all([
    ctx.can("GET /agents") ? ctx.api.get("/agents", { signal }) : [],
    ctx.can("GET /teams") ? ctx.api.get("/teams", { signal }) : [],
  ]);
  return [
    ...agents.map((/** @type {any} */ it) => ({ kind: /** @type {"agent"} */ ("agent"), it })),
    ...teams.map((/** @type {any} */ it) => ({ kind: /** @type {"team"} */ ("team"), it })),
  ];
}

/** @param {Context} ctx */
function open(ctx) {
  const [kind, id] = ctx.place.ids;
  return {
    all: id === undefined ? ctx.load((signal) => components(ctx, signal)) : null,
    one: id === undefined ? null : ctx.load((signal) => find(ctx, kind ?? "", id, signal)),
  };
}

/** @param {Context} ctx @param {string} kind @param {string} id @param {AbortSignal} signal @returns {Promise<Component>} */
async function find({ api }, kind, id, signal) {
  if (kind === "team") return { kind, it: await api.get("/teams/{team_id}", { path: { team_id: id }, signal }) };
  return { kind: "agent", it: await api.get("/agents/{agent_id}", { path: { agent_id: id }, signal }) };
}

/** @param {Context} ctx @param {State} state */
function view(ctx, { all, one }) {
  if (one !== null) return show(one, (found) => detail(ctx, found));
  return all === null ? nothing : show(all, (found) => {
    if (found.length === 0) return empty("Nothing is hosted here", "Or your token shows none of it.");
    return html`${list(found.filter(({ kind }) => kind === "agent"), "Agents")}${list(found.filter(({ kind }) => kind === "team"), "Teams")}`;
  });
}

/** @param {Component[]} found @param {string} title */
function list(found, title) {
  if (found.length === 0) return nothing;
  const id = title.toLowerCase();
  return html`<section aria-labelledby=${id}>
    <h2 id=${id}>${title} <span class="quiet">${found.length}</span></h2>
    ${table({
      caption: title,
      rows: found,
      href: ({ kind, it }) => `/agents/${kind}/${encodeURIComponent(it.id)}`,
      columns: [
        { title: "Name", kind: "main", cell: ({ it }) => cut(it.name) },
        { title: "Does", kind: "wide", cell: ({ it }) => cut(it.description ?? it.role ?? "–") },
        { title: "Model", cell: ({ it }) => cut(it.model?.model ?? it.model?.name ?? "–") },
        title === "Teams"
          ? { title: "Members", kind: "number", cell: ({ it }) => it.members?.length ?? 0 }
          : { title: "Tools", kind: "number", cell: ({ it }) => toolsOf(it).length },
      ],
    })}
  </section>`;
}

/** @param {any} it @returns {any[]} */
function toolsOf(it) {
  return it.tools?.tools ?? [];
}

/** @param {Context} ctx @param {Component} found */
function detail(ctx, { kind, it }) {
  const path = kind === "team" ? "POST /teams/{team_id}/runs" : "POST /agents/{agent_id}/runs";
  return html`
    ${it.description ? html`<p class="lead">${it.description}</p>` : nothing}
    ${ctx.can(path, it.id) ? html`<p class="row"><a class="button" href="#/playground/${kind}/${encodeURIComponent(it.id)}">${icon("playground")}Talk to it</a></p>` : nothing}
    <section>${facts([
      [kind === "team" ? "Team" : "Agent", code(it.id)],
      ["Model", `${it.model?.model ?? "–"} (${it.model?.provider ?? "–"})`],
      ["Database", cut(it.db_id)],
      ...(it.role ? [/** @type {[string, unknown]} */ (["Role", it.role])] : []),
      ...(it.mode ? [/** @type {[string, unknown]} */ (["Mode", it.mode])] : []),
    ])}</section>
    ${it.system_message?.instructions ? html`<section><h2>Instructions</h2><pre class="paper">${it.system_message.instructions}</pre></section>` : nothing}
    ${toolsOf(it).length ? html`<section><h2>Tools <span class="quiet">${toolsOf(it).length}</span></h2>${toolsOf(it).map(toolView)}</section>` : nothing}
    ${it.members?.length ? html`<section><h2>Members</h2>${members(it.members)}</section>` : nothing}`;
}

/** @param {any} tool */
function toolView(tool) {
  /** @type {[string, any][]} */
  const properties = Object.entries(tool.parameters?.properties ?? {});
  return html`<details class="call">
    <summary>${icon("tool")}<b class="cut" title=${tool.name}>${tool.name}</b><span class="quiet cut">${tool.description}</span>
      ${tool.requires_confirmation ? badge("asks a person", "warn") : nothing}${tool.external_execution ? badge("the client executes it", "warn") : nothing}</summary>
    <div class="inside"><p>${tool.description}</p>
      <p class="label">${plural(properties.length, "parameter")}</p>
      <dl class="arguments">${properties.map(([name, schema]) => html`<div><dt><code>${name}</code></dt>
        <dd>${typeOf(schema)}${tool.parameters.required?.includes(name) ? nothing : html` <span class="quiet">optional</span>`}
          ${schema.description ? html`<span class="about">${schema.description}</span>` : nothing}</dd></div>`)}</dl>
      ${properties.length ? html`<p class="label">Schema</p>${json(tool.parameters, { open: 0 })}` : nothing}</div>
  </details>`;
}

/** The type of a parameter, in a few words. @param {any} schema @returns {string} */
function typeOf(schema) {
  if (schema.enum) return schema.enum.map((/** @type {unknown} */ one) => JSON.stringify(one)).join(" or ");
  const any = schema.anyOf ?? schema.oneOf;
  if (any) return any.map(typeOf).join(" or ");
  return schema.type === "array" ? `list of ${typeOf(schema.items ?? {})}` : String(schema.type ?? "anything");
}

/** @param {any[]} found @returns {import("../../types/console").View} */
function members(found) {
  return html`<ul class="tree">${found.map((it) => html`<li>
    <a href="#/agents/${it.members ? "team" : "agent"}/${encodeURIComponent(it.id)}">${cut(it.name)}</a>
    <span class="quiet">${it.members ? "team" : it.role ?? "agent"} · ${it.model?.model ?? "–"}</span>
    ${it.members?.length ? members(it.members) : nothing}</li>`)}</ul>`;
}
