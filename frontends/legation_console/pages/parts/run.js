// @ts-check
// A run as a conversation shows it: what was said, each call with its result, members in theirs.
import { html, nothing } from "../vendor/lit-html.js";
import { count, duration } from "../format.js";
import { icon } from "./icons.js";
import { json } from "./json.js";
import { badge, cut } from "./show.js";

/** @typedef {import("../log.js").Run} Run */
/** @typedef {import("../log.js").Log} Log */

const LONG = 100_000; // characters of one message that are drawn

/** @param {Log} log @param {Run} run @returns {import("../../types/console").View} */
export function runView(log, run) {
  return html`<div class="run">
    ${run.items.map((item) => (item.kind === "tool" ? toolView(log, item) : textView(item, run)))}
    ${run.error ? html`<p class="trouble">${run.error}</p>` : nothing}
    ${run.status === "CANCELLED" ? html`<p>${badge("CANCELLED", "plain")}</p>` : nothing}
    ${run.metrics && run.parent === "" ? html`<p class="quiet small">${sums(run)}</p>` : nothing}
  </div>`;
}

/** @param {Run} run */
function sums({ metrics, model }) {
  const parts = [model, `${count(metrics.input_tokens ?? 0)} tokens in, ${count(metrics.output_tokens ?? 0)} out`, duration(metrics.duration)];
  return parts.filter(Boolean).join(" · ");
}

/** @param {import("../log.js").TextItem} item @param {Run} run */
function textView({ text, thought }, run) {
  if (!text && !thought) return nothing;
  const shown = text.length > LONG ? `${text.slice(0, LONG)} …` : text;
  const value = structured(run, text);
  return html`${thought ? html`<details class="thought"><summary>Thoughts</summary><pre>${thought}</pre></details>` : nothing}
    ${value === undefined ? html`<pre class="said">${shown}</pre>` : json(value, { open: 3 })}`;
}

/** An answer that is JSON, once it is whole. @param {Run} run @param {string} text */
function structured(run, text) {
  if (run.status !== "COMPLETED" || !/^\s*[[{]/.test(text)) return undefined;
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}

/** @param {Log} log @param {import("../log.js").ToolItem} item */
function toolView(log, { tool, child }) {
  const member = log.runs.get(child);
  return html`<details class="call" ?open=${member !== undefined}>
    <summary>${icon("tool")}<b class="cut" title=${tool.tool_name}>${tool.tool_name}</b>
      <span class="quiet cut">${brief(tool.tool_args)}</span>${stateOf(tool)}</summary>
    <div class="inside">
      <p class="label">Arguments</p>${json(tool.tool_args ?? {})}
      ${member ? html`<div class="member" role="group" aria-label=${member.name}><p class="name">${cut(member.name)} ${badge(member.status)}</p>${runView(log, member)}</div>` : nothing}
      ${tool.result === null || tool.result === undefined || member ? nothing : html`<p class="label">Result</p><pre>${result(tool.result)}</pre>`}
      ${tool.error ? html`<p class="trouble">${tool.error}</p>` : nothing}
      ${tool.confirmation_note ? html`<p class="label">Note</p><p>${tool.confirmation_note}</p>` : nothing}
    </div>
  </details>`;
}

/** @param {unknown} value */
function result(value) {
  return (typeof value === "string" ? value : JSON.stringify(value, null, 2)).slice(0, LONG);
}

/** @param {unknown} args */
function brief(args) {
  const text = typeof args === "string" ? args : JSON.stringify(args ?? {});
  return text === "{}" ? "" : text.slice(0, 200);
}

/** @param {any} tool */
function stateOf(tool) {
  if (tool.confirmed === false) return badge("rejected");
  if (tool.tool_call_error) return badge("failed");
  const time = tool.metrics?.duration;
  if (tool.result !== null && tool.result !== undefined) return html`<span class="quiet">${time === undefined ? "done" : duration(time)}</span>`;
  if (tool.confirmed === true) return badge("approved");
  return tool.requires_confirmation || tool.external_execution_required ? badge("waits for a person", "warn") : badge("at work", "busy");
}

/** The files of a message, by name. @param {string[]} names */
export function filesView(names) {
  return names.length === 0 ? nothing : html`<ul class="files">${names.map((name) => html`<li>${icon("file")}${cut(name)}</li>`)}</ul>`;
}
