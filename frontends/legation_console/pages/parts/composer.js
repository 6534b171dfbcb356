// @ts-check
// The field for the next message: files, an output schema and dependencies go with it.
import { html, nothing } from "../vendor/lit-html.js";
import { icon } from "./icons.js";
import { filesView } from "./run.js";
import { cut } from "./show.js";

/** @typedef {{files: File[], schema: string, dependencies: string, session: string}} Draft */

/**
 * @param {{
 *   state: Draft, last: import("../talk.js").Turn | undefined, waits: boolean,
 *   set: (change: Partial<Draft>) => void, send: (message: string) => void,
 * }} options
 */
export function composer({ state, last, waits, set, send }) {
  /** @param {any} event */
  const submit = (event) => {
    event.preventDefault();
    const area = event.currentTarget.elements.message;
    if (waits || (area.value.trim() === "" && state.files.length === 0)) return;
    send(area.value);
    area.value = "";
  };
  /** @param {KeyboardEvent & {currentTarget: any}} event */
  const key = (event) => {
    if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
    event.preventDefault();
    event.currentTarget.form.requestSubmit();
  };
  return html`<form class="composer" @submit=${submit}>
    ${filesView(state.files.map(({ name }) => name))}
    <textarea name="message" rows="2" aria-label="Message" placeholder="Write a message" @keydown=${key}></textarea>
    <div class="row spread">
      <div class="row"><label class="button bare file">${icon("file")}Files<input class="hidden" type="file" multiple aria-label="Files"
        @change=${(/** @type {any} */ event) => { set({ files: [...event.target.files] }); event.target.value = ""; }} /></label>
        ${state.files.length ? html`<button type="button" class="bare" @click=${() => set({ files: [] })}>Without files</button>` : nothing}</div>
      ${last?.busy && last.log.root ? html`<button type="button" @click=${() => last.cancel()}>${icon("stop")}Cancel</button>`
        : html`<button class="primary" ?disabled=${waits}>${icon("send")}Send</button>`}
    </div>
    <details class="options"><summary>Options</summary>
      ${area("Output schema", "A JSON schema: the answer has its form.", state.schema, (schema) => set({ schema }))}
      ${area("Dependencies", "A JSON object that tools and instructions are given.", state.dependencies, (dependencies) => set({ dependencies }))}
      <p class="quiet">Conversation ${cut(state.session)}</p>
    </details>
  </form>`;
}

/** @param {string} label @param {string} about @param {string} value @param {(value: string) => void} change */
function area(label, about, value, change) {
  const id = label.toLowerCase().replace(" ", "-");
  return html`<div class="field"><label for=${id}>${label}</label><p class="about" id="${id}-about">${about}</p>
    <textarea id=${id} class="mono" rows="3" spellcheck="false" aria-describedby="${id}-about" .value=${value}
      @input=${(/** @type {any} */ event) => change(event.target.value)}></textarea></div>`;
}
