// @ts-check
// Overview: whether it serves, what runs, and what wants attention.  The model of a screen.
import { ApiError } from "../api.js";
import { bytes, compact, count, duration, plural } from "../format.js";
import { chart, share } from "../parts/chart.js";
import { ago, badge, code, cut, show } from "../parts/show.js";
import { table } from "../parts/table.js";
import { html, nothing } from "../vendor/lit-html.js";

/** @typedef {import("../../types/console").Context} Context */
/** @typedef {ReturnType<typeof open>} State */

const HOURS = 24;

/** @type {import("../../types/console").Screen<State>} */
export const screen = { path: "overview", title: "Overview", group: "Watch", icon: "overview", needs: [], open, view };

/** @param {Context} ctx */
function open(ctx) {
  const { api } = ctx;
  /** @template T @param {string} operation @param {(signal: AbortSignal) => Promise<T>} fetch */
  const allowed = (operation, fetch) => (ctx.can(operation) ? ctx.load(fetch) : null);
  const state = {
    ready: ctx.load((signal) => readiness(ctx, signal)),
    summary: allowed("GET /runs/summary", (signal) => {
      const since = Math.floor(Date.now() / 3_600_000 - HOURS + 1) * 3600;
      return api.get("/runs/summary", { query: { by: "hour", since }, signal });
    }),
    nodes: allowed("GET /nodes", (signal) => api.get("/nodes", { signal })),
    posture: allowed("GET /posture", (signal) => api.get("/posture", { signal })),
    me: ctx.load((signal) => api.get("/me", { signal })),
  };
  ctx.every(10, () => {
    for (const load of Object.values(state)) load?.reload();
  });
  return state;
}

/** A platform that is not ready says so with 503, and still says what is wrong. @param {Context} ctx @param {AbortSignal} signal */
async function readiness(ctx, signal) {
  try {
    return await ctx.api.get("/ready", { signal });
  } catch (error) {
    if (error instanceof ApiError && error.body?.databases) return error.body;
    throw error;
  }
}

/** @param {Context} ctx @param {State} state */
function view(ctx, state) {
  return html`
    ${state.summary ? show(state.summary, runs) : nothing}
    ${show(state.ready, (ready) => html`
      <section aria-labelledby="state">
        <h2 id="state">State ${badge(ready.status)}</h2>
        ${databases(ready.databases)}
      </section>
      ${ready.channels ? channels(ready.channels) : nothing}`)}
    ${state.posture ? show(state.posture, posture) : nothing}
    ${state.nodes ? show(state.nodes, nodes) : nothing}
    ${show(state.me, limits)}`;
}

/** Runs of a day, hour by hour. @param {{data: any[], total: any}} found */
function runs({ data, total }) {
  const hours = new Map(data.map((one) => [Date.parse(one.key), one]));
  const now = Math.floor(Date.now() / 3_600_000) * 3_600_000;
  const columns = Array.from({ length: HOURS }, (_, index) => {
    const at = now - (HOURS - 1 - index) * 3_600_000, found = hours.get(at);
    const failed = found?.errors ?? 0;
    const parts = [
      { kind: "busy", word: "runs", value: (found?.runs ?? 0) - failed },
      { kind: "bad", word: "failed", value: failed },
    ];
    return { label: new Date(at).toLocaleTimeString(undefined, { hour: "2-digit", minute: "2-digit" }), parts };
  });
  return html`<section aria-labelledby="day">
    <h2 id="day">Runs of the last day</h2>
    <div class="tiles">
      ${tile("/runs", count(total.runs), "runs")}
      ${tile("/runs?status=PAUSED", count(total.states.PAUSED), "wait for a person")}
      ${tile("/runs?status=ERROR", count(total.errors), "failed")}
      ${tile("", compact(total.input_tokens + total.output_tokens), `tokens, ${compact(total.output_tokens)} of them out`)}
      ${tile("", duration(total.seconds_p95), `for 95 %, ${duration(total.seconds_p50)} for half`)}
    </div>
    ${total.runs ? chart({ name: "Runs by hour", columns }) : nothing}
  </section>`;
}

/** @param {string} place @param {string} value @param {string} words */
function tile(place, value, words) {
  const inside = html`<b>${value}</b><span>${words}</span>`;
  return place ? html`<a class="tile" href="#${place}">${inside}</a>` : html`<div class="tile">${inside}</div>`;
}

/** @param {Record<string, any>} found By id, as the caller may see each. */
function databases(found) {
  return table({
    caption: "Databases",
    rows: Object.values(found),
    columns: [
      { title: "Database", kind: "main", cell: (one) => cut(one.id) },
      { title: "State", kind: "fit", cell: (one) => badge(one.state) },
      { title: "Engine", kind: "wide", cell: (one) => one.engine ?? "–" },
      { title: "Schema", kind: "wide", cell: (one) => one.version ?? "–" },
      { title: "Nodes", kind: "number", cell: (one) => count(one.cluster?.nodes) },
    ],
  });
}

/** @param {any[]} found */
function channels(found) {
  return html`<section aria-labelledby="channels"><h2 id="channels">Channels</h2>${table({
    caption: "Channels",
    rows: found,
    columns: [
      { title: "Channel", kind: "main", cell: (one) => cut(one.id) },
      { title: "Waiting", kind: "number", cell: (one) => count(one.messages?.ready) },
      { title: "In work", kind: "number", cell: (one) => count(one.messages?.in_work) },
      { title: "Replies waiting", kind: "wide number", cell: (one) => count(one.replies?.ready) },
      { title: "Dead", kind: "number", cell: (one) => dead((one.messages?.dead ?? 0) + (one.replies?.dead ?? 0)) },
    ],
  })}</section>`;
}

/** @param {number} letters */
function dead(letters) {
  return letters ? badge(count(letters), "bad") : "0";
}

/** @param {{data: {path: string, message: string}[]}} found */
function posture({ data }) {
  if (data.length === 0) return nothing;
  return html`<section aria-labelledby="unsafe">
    <h2 id="unsafe">${plural(data.length, "unsafe setting")}</h2>
    <ul class="findings">${data.map(({ path, message }) => html`<li><code>${path}</code> ${message}</li>`)}</ul>
  </section>`;
}

/** @param {{data: any[]}} found */
function nodes({ data }) {
  return html`<section aria-labelledby="nodes">
    <h2 id="nodes">Nodes</h2>
    ${table({
      caption: "Nodes that live, by database",
      rows: data,
      columns: [
        { title: "Node", kind: "main", cell: (one) => code(one.node) },
        { title: "Database", cell: (one) => cut(one.db_id) },
        { title: "Release", kind: "wide", cell: (one) => one.release },
        { title: "Since", kind: "wide", cell: (one) => ago(one.since) },
        { title: "Last beat", kind: "number", cell: (one) => `${duration(one.beat_seconds)} ago` },
        { title: "State", kind: "fit", cell: (one) => (one.draining ? badge("draining") : badge(one.this ? "answers you" : "lives", "good")) },
      ],
    })}
  </section>`;
}

/** @param {{limits: any[]}} me */
function limits({ limits }) {
  const limited = limits.filter((one) => one.limit !== null);
  return html`<section aria-labelledby="shares">
    <h2 id="shares">Your limits</h2>
    ${table({
      caption: "What you may take, and how much of it is taken",
      rows: limited,
      columns: [
        { title: "Share", kind: "main", cell: (one) => cut(`${one.share.replace("_", " ")}${one.database ? ` in ${one.database}` : ""}`) },
        { title: "Taken", kind: "number", cell: (one) => amount(one, one.used) },
        { title: "Of", kind: "number", cell: (one) => amount(one, one.limit) },
        { title: "", kind: "wide", cell: (one) => share(one.used, one.limit, `${one.share}: ${one.used} of ${one.limit}`) },
      ],
    })}
  </section>`;
}

/** @param {{unit: string}} one @param {number} value */
function amount(one, value) {
  return one.unit === "bytes" ? bytes(value) : compact(value);
}
