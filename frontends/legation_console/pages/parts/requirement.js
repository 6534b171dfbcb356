// @ts-check
// A call that waits for a person: what is asked, and a form for the answer, made from schemas.
import { html, nothing } from "../vendor/lit-html.js";
import { form } from "./form.js";
import { json } from "./json.js";

/** @typedef {import("../../types/console").Schema} Schema */
/** @typedef {{confirmed?: boolean, confirmation_note?: string, result?: unknown}} Answer */

/** @type {Schema} */
const NOTE = { properties: { confirmation_note: { type: "string", title: "Note", maxLength: 2000, description: "The model reads it when you reject." } } };
/** @type {Schema} */
const RESULT = { properties: { result: { title: "Result", type: "string", maxLength: 100_000, description: "What the call has brought, as text or as JSON." } }, required: ["result"] };

/** How a call is to be answered. @param {any} tool @returns {"execute" | "doubt" | "confirm"} */
function kindOf(tool) {
  if (tool.in_doubt) return "doubt";
  return tool.external_execution_required ? "execute" : "confirm";
}

const WORDS = {
  confirm: "wants to be approved",
  execute: "is yours to execute",
  doubt: "was interrupted: its outcome is not known",
};

/**
 * @param {any} requirement As a paused run shows it.
 * @param {Answer} answer What was filled in so far.
 * @param {(answer: Answer) => void} change
 * @param {Schema} [schema] Of the arguments of the tool, for their names.
 */
export function requirementView(requirement, answer, change, schema) {
  const tool = requirement.tool_execution ?? requirement;
  const kind = kindOf(tool);
  const choose = (/** @type {boolean} */ confirmed) => change({ ...answer, confirmed, result: undefined });
  return html`<fieldset class="requirement">
    <legend><code>${tool.tool_name}</code> ${WORDS[kind]}</legend>
    ${requirement.member_agent_name ? html`<p class="quiet">For ${requirement.member_agent_name}</p>` : nothing}
    ${argumentsView(tool.tool_args ?? {}, schema)}
    ${kind === "execute" ? nothing : html`<div class="row" role="group" aria-label="Answer to ${tool.tool_name}">
      <button type="button" class=${answer.confirmed === true ? "chosen good" : ""} aria-pressed=${answer.confirmed === true}
        @click=${() => choose(true)}>${kind === "doubt" ? "Call it again" : "Approve"}</button>
      <button type="button" class=${answer.confirmed === false ? "chosen bad" : ""} aria-pressed=${answer.confirmed === false}
        @click=${() => choose(false)}>${kind === "doubt" ? "Leave it" : "Reject"}</button>
    </div>`}
    ${kind === "confirm" ? form(NOTE, answer, (value) => change({ ...answer, .../** @type {Answer} */ (value) })) : nothing}
    ${kind === "execute" ? form(RESULT, answer, (value) => change({ ...answer, .../** @type {Answer} */ (value) })) : nothing}
  </fieldset>`;
}

/** The arguments, named as their schema names them. @param {Record<string, unknown>} args @param {Schema} [schema] */
export function argumentsView(args, schema) {
  const entries = Object.entries(args);
  if (entries.length === 0) return html`<p class="quiet">Without arguments.</p>`;
  return html`<dl class="arguments">${entries.map(([name, value]) => html`<div>
    <dt>${schema?.properties?.[name]?.title ?? name}</dt>
    <dd>${value !== null && typeof value === "object" ? json(value, { open: 2 }) : String(value)}
      ${schema?.properties?.[name]?.description ? html`<span class="about">${schema.properties[name].description}</span>` : nothing}</dd>
  </div>`)}</dl>`;
}

/** Whether a call has its answer. @param {any} requirement @param {Answer | undefined} answer */
export function isAnswered(requirement, answer) {
  const tool = requirement.tool_execution ?? requirement;
  return kindOf(tool) === "execute" ? Boolean(answer?.result) : answer?.confirmed !== undefined;
}

/** The calls with their answers, as `continue` takes them. @param {any[]} requirements @param {Answer[]} answers */
export function answersOf(requirements, answers) {
  return requirements.map((requirement, index) => {
    const { confirmed, confirmation_note, result } = answers[index] ?? {};
    const found = { confirmed, confirmation_note: confirmed === false ? confirmation_note : undefined, result: readResult(result) };
    const given = Object.fromEntries(Object.entries(found).filter(([, value]) => value !== undefined));
    return { ...(requirement.tool_execution ?? requirement), ...given, requirement_id: requirement.id };
  });
}

/** JSON where it is an object or a list, else text. @param {unknown} text */
function readResult(text) {
  if (typeof text !== "string" || !/^\s*[[{]/.test(text)) return text;
  try {
    return JSON.parse(text);
  } catch {
    return text;
  }
}
