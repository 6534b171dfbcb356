// @ts-check
// A JSON value to look into: what is large is folded, and drawn when it is opened.
import { html, nothing } from "../vendor/lit-html.js";

const MOST = 200; // members that are drawn of one object
const LONGEST = 20_000; // characters that are drawn of one text

/** @param {unknown} value @param {{open?: number}} [options] How many levels are open at first. */
export function json(value, { open = 1 } = {}) {
  return html`<div class="json">${node(value, "", open)}</div>`;
}

/** @param {unknown} value @param {string} name @param {number} open @returns {import("../../types/console").View} */
function node(value, name, open) {
  const key = name === "" ? nothing : html`<span class="key">${name}</span>: `;
  if (value === null || typeof value !== "object") return html`<div>${key}${leaf(value)}</div>`;
  const members = Object.entries(value);
  const brackets = Array.isArray(value) ? "[]" : "{}";
  if (members.length === 0) return html`<div>${key}${brackets}</div>`;
  const sum = `${brackets[0]} ${members.length} ${brackets[1]}`;
  return html`<details ?open=${open > 0} @toggle=${unfold}>
    <summary>${key}<span class="quiet">${sum}</span></summary>
    <div class="members">
      ${members.slice(0, MOST).map(([key, one]) => node(one, key, open - 1))}
      ${members.length > MOST ? html`<div class="quiet">and ${members.length - MOST} more</div>` : nothing}
    </div>
  </details>`;
}

/** Leave the event to this one: an opened member is not the opening of what it is in. @param {Event} event */
function unfold(event) {
  event.stopPropagation();
}

/** @param {unknown} value */
function leaf(value) {
  const text = typeof value === "string" ? JSON.stringify(value.slice(0, LONGEST)) : String(value);
  return html`<span class=${value === null ? "null" : typeof value}>${text}</span>`;
}
