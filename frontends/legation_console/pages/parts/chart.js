// @ts-check
// A chart of columns, as SVG.  It is a picture with a name; its numbers are in the title of each
// column, and in a table that screen readers read.
import { html, svg } from "../vendor/lit-html.js";
import { count } from "../format.js";

/**
 * @param {{
 *   name: string,
 *   columns: {label: string, parts: {kind: string, word: string, value: number}[]}[],
 * }} options The parts of a column are drawn one on another; `kind` is the class of their colour.
 */
export function chart({ name, columns }) {
  const sums = columns.map(({ parts }) => parts.reduce((sum, { value }) => sum + value, 0));
  const most = Math.max(1, ...sums);
  const words = columns.map(({ label, parts }) =>
    `${label}: ${parts.map(({ word, value }) => `${count(value)} ${word}`).join(", ")}`);
  return html`<figure class="chart">
    <svg viewBox="0 0 ${Math.max(columns.length, 1) * 10} 100" preserveAspectRatio="none" role="img" aria-label=${name}>
      ${columns.map(({ parts }, index) => column(parts, index, most, words[index] ?? ""))}
    </svg>
    <figcaption><span>${columns[0]?.label}</span><span class="quiet">${name}, at most ${count(most)}</span><span>${columns.at(-1)?.label}</span></figcaption>
    <ul class="hidden">${words.map((text) => html`<li>${text}</li>`)}</ul>
  </figure>`;
}

/** @param {{kind: string, value: number}[]} parts @param {number} index @param {number} most @param {string} words */
function column(parts, index, most, words) {
  let top = 100;
  return svg`<g><title>${words}</title>
    <rect class="room" x=${index * 10} y="0" width="10" height="100" />
    ${parts.map(({ kind, value }) => {
      const height = (value / most) * 96;
      top -= height;
      return svg`<rect class=${kind} x=${index * 10 + 1} y=${top} width="8" height=${height} />`;
    })}
  </g>`;
}

/** A share of something, as a bar. @param {number} value @param {number} whole @param {string} name */
export function share(value, whole, name) {
  const width = whole > 0 ? Math.min(100, (value / whole) * 100) : 0;
  return html`<svg class="share" viewBox="0 0 100 4" preserveAspectRatio="none" role="img" aria-label=${name}>
    ${svg`<rect class="room" width="100" height="4" /><rect class=${width > 90 ? "bad" : "busy"} width=${width} height="4" />`}
  </svg>`;
}
