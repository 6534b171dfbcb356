// @ts-check
// The steps of a run against time.  Of thousands, those that can be seen are drawn.
import { compact, duration } from "../format.js";
import { html, nothing, svg } from "../vendor/lit-html.js";

const ROW = 30; // pixels, as in console.css
const AROUND = 12; // rows that are drawn above and below those that are seen
const SEEN = 24;

/** @typedef {import("./steps.js").Step} Step */

/**
 * @param {{
 *   steps: Step[],
 *   now: number,
 *   top: number,
 *   chosen: Step | null,
 *   scroll: (top: number) => void,
 *   choose: (step: Step) => void,
 * }} options `top` is how far the list is scrolled, in pixels; `now` ends what is not over.
 */
export function waterfall({ steps, now, top, chosen, scroll, choose }) {
  const [root] = steps;
  if (!root) return html`<p class="none">Nothing has happened yet.</p>`;
  const begin = root.start;
  const end = Math.max(begin + 0.001, ...steps.slice(0, 1).map((step) => step.end ?? now), latest(steps, now));
  const first = Math.max(0, Math.floor(top / ROW) - AROUND);
  const shown = steps.slice(first, first + SEEN + 2 * AROUND);
  const below = steps.length - first - shown.length;
  return html`<div class="waterfall">
    <div class="axis" aria-hidden="true"><span></span>
      <span class="ticks">${[0, 0.25, 0.5, 0.75, 1].map((part) => html`<i>${duration((end - begin) * part)}</i>`)}</span>
      <span></span></div>
    <ol aria-label="Steps" @scroll=${(/** @type {any} */ event) => scroll(event.target.scrollTop)}>
      ${space(first)}
      ${shown.map((step, index) => row(step, first + index + 1, { begin, end, now, count: steps.length, chosen, choose }))}
      ${space(below)}
    </ol>
  </div>`;
}

/** The room of rows that are not drawn. @param {number} rows */
function space(rows) {
  if (rows <= 0) return nothing;
  return html`<li aria-hidden="true"><svg class="space" width="1" height=${rows * ROW}></svg></li>`;
}

/** The end of the last step. @param {Step[]} steps @param {number} now */
function latest(steps, now) {
  let found = 0;
  for (const { end, start } of steps) found = Math.max(found, end ?? Math.max(start, now));
  return found;
}

/** @type {Record<Step["kind"], string>} */
const WORDS = { run: "Run", model: "Model", tool: "Tool", pause: "Pause" };

/** @param {Step} step @param {number} place @param {any} frame */
function row(step, place, { begin, end, now, count, chosen, choose }) {
  const whole = end - begin;
  const left = clamp((step.start - begin) / whole, 1);
  const width = clamp(((step.end ?? now) - step.start) / whole, 1 - left);
  const seconds = step.end === null ? null : step.end - step.start;
  const length = seconds === null ? "goes on" : duration(seconds);
  return html`<li aria-setsize=${count} aria-posinset=${place}>
    <button type="button" aria-expanded=${step === chosen} class=${step.kind} @click=${() => choose(step)}>
      <span class="name d${Math.min(step.depth, 8)}" title=${step.label}><small>${WORDS[step.kind]}</small>
        ${step.label}${step.failed ? html`<b class="failed">failed</b>` : nothing}</span>
      <svg class="track" aria-hidden="true">${svg`<rect class="${step.kind} ${step.failed ? "bad" : ""}"
        x=${percent(left)} width=${percent(width)} y=${step.kind === "run" ? 4 : 0} height=${step.kind === "run" ? 4 : 12} rx="2" />`}</svg>
      <span class="length">${length}${step.tokens ? html` <small>${compact(step.tokens)} tok</small>` : nothing}</span>
    </button>
  </li>`;
}

/** @param {number} share @param {number} most */
function clamp(share, most) {
  return Math.max(0, Math.min(most, share));
}

/** @param {number} share */
function percent(share) {
  return `${(share * 100).toFixed(3)}%`;
}
