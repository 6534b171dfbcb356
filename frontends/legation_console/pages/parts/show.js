// @ts-check
// What each screen shows of a value that is fetched, of a state, and of a name that may be long.
import { html, nothing } from "../vendor/lit-html.js";
import { since, when } from "../format.js";

/**
 * Show a value when it is there: first that it is coming, then the value, or why it is not there.
 * What was there before stays while it is fetched again, and when that fails.
 * @template T
 * @param {import("../store.js").Load<T>} load
 * @param {(value: T) => import("../../types/console").View} view
 */
export function show(load, view) {
  return html`${load.error ? trouble(load.error, () => load.reload()) : nothing}
    ${load.value !== undefined
      ? view(load.value)
      : load.error
        ? nothing
        : html`<div class="waiting" role="status" aria-label="Loading"><i></i><i></i><i></i></div>`}`;
}

/** A sentence about what went wrong. @param {Error & {requestId?: string}} error @param {() => void} [again] */
export function trouble(error, again) {
  return html`<div class="trouble" role="alert">
    <p>${error.message}</p>
    ${error.requestId ? html`<p class="quiet">Request <code>${error.requestId}</code></p>` : nothing}
    ${again ? html`<button type="button" @click=${again}>Try again</button>` : nothing}
  </div>`;
}

/** A page without content says why. @param {string} title @param {import("../../types/console").View} [text] */
export function empty(title, text = nothing) {
  return html`<div class="empty"><h2>${title}</h2><p>${text}</p></div>`;
}

/** @type {Record<string, string>} */
const KINDS = {
  COMPLETED: "good", current: "good", ready: "good", ok: "good", done: "good", sent: "good", approved: "good", allow: "good",
  RUNNING: "busy", PENDING: "busy", waiting: "busy", "in work": "busy",
  PAUSED: "warn", pending: "warn", draining: "warn", behind: "warn",
  ERROR: "bad", FAILED: "bad", dead: "bad", failed: "bad", unreachable: "bad", "not ready": "bad", rejected: "bad", deny: "bad",
};

/** A state: its word, and a colour beside it. @param {string} state @param {string} [kind] good, busy, warn, bad or plain */
export function badge(state, kind = KINDS[state] ?? "plain") {
  return html`<span class="badge ${kind}">${state}</span>`;
}

/** A text on one line, cut where there is no room; whole when the pointer rests on it. @param {unknown} text */
export function cut(text) {
  return html`<span class="cut" title=${String(text ?? "")}>${text ?? "–"}</span>`;
}

/** An id, to read and to copy. @param {string} id */
export function code(id) {
  return html`<code class="cut" title=${id}>${id}</code>`;
}

/** How long ago, and exactly when the pointer rests on it. @param {number | string | null | undefined} value */
export function ago(value) {
  return html`<time title=${when(value)}>${since(value)}</time>`;
}

/** Names and values. @param {[string, import("../../types/console").View][]} pairs */
export function facts(pairs) {
  return html`<dl class="facts">
    ${pairs.map(([name, value]) => html`<div><dt>${name}</dt><dd>${value}</dd></div>`)}
  </dl>`;
}
