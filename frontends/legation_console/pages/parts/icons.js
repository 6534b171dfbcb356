// @ts-check
// Icons: a few strokes in a square of 16.  They stand beside a word, so that they need no name.
import { svg, html } from "../vendor/lit-html.js";

/** @type {Record<string, string>} */
const PATHS = {
  overview: "M2 9h5V2H2zM9 14h5V7H9zM2 14h5v-3H2zM9 5h5V2H9z",
  agents: "M8 8a3 3 0 1 0 0-6 3 3 0 0 0 0 6zM2.5 14c.6-2.6 2.8-4 5.5-4s4.9 1.4 5.5 4",
  playground: "M2 3h12v8H7l-3 3v-3H2z",
  runs: "M2 4h7M2 8h12M5 12h6",
  approvals: "M8 14A6 6 0 1 0 8 2a6 6 0 0 0 0 12zM5.5 8.2l1.7 1.7 3.3-3.6",
  sessions: "M3 2h10v12H3zM6 5.5h4M6 8h4M6 10.5h2",
  channels: "M2 8h3l2-5 2.5 10L12 8h2",
  databases: "M2.5 4c0-1.1 2.5-2 5.5-2s5.5.9 5.5 2-2.5 2-5.5 2-5.5-.9-5.5-2zM2.5 4v8c0 1.1 2.5 2 5.5 2s5.5-.9 5.5-2V4M2.5 8c0 1.1 2.5 2 5.5 2s5.5-.9 5.5-2",
  audit: "M4 2h6l3 3v9H4zM6.5 8h4M6.5 11h4",
  access: "M8 2l5 2v4c0 3-2 5-5 6-3-1-5-3-5-6V4z",
  incidents: "M8 2l6.5 11.5h-13zM8 6.5v3M8 11.5v.2",
  settings: "M2 4.5h6M12 4.5h2M2 11.5h2M8 11.5h6M10 6.5a2 2 0 1 0 0-4 2 2 0 0 0 0 4zM6 13.5a2 2 0 1 0 0-4 2 2 0 0 0 0 4z",
  menu: "M2 4h12M2 8h12M2 12h12",
  out: "M6 2H3v12h3M10 5l3 3-3 3M13 8H6",
  copy: "M5 5h8v9H5zM3 11V2h8",
  close: "M4 4l8 8M12 4l-8 8",
  tool: "M9.5 2.5a3.5 3.5 0 0 0-3.3 4.7L2 11.4 4.6 14l4.2-4.2a3.5 3.5 0 0 0 4.7-3.3L11.5 8.5 9 7.5 8 5l2-2z",
  file: "M4 2h5l3 3v9H4zM9 2v3h3",
  send: "M8 13V3M4 7l4-4 4 4",
  stop: "M4 4h8v8H4z",
  plus: "M8 3v10M3 8h10",
  again: "M13 8a5 5 0 1 1-1.5-3.5L13 6M13 2.5V6H9.5",
  edit: "M3 13l.8-3L11 2.8l2.2 2.2L6 12.2z",
  branch: "M5 2v12M5 9c4 0 6-1 6-5M9 6l2-2 2 2",
};

/** @param {string} name */
export function icon(name) {
  return html`<svg class="icon" viewBox="0 0 16 16" aria-hidden="true">${svg`<path d=${PATHS[name] ?? ""} />`}</svg>`;
}
