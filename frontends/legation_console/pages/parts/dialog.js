// @ts-check
// A question in a dialog of the browser: it holds the focus, and Escape leaves it.
import { html, nothing } from "../vendor/lit-html.js";
import { form, initial } from "./form.js";

/** @typedef {import("../../types/console").Question & {schema?: import("../../types/console").Schema, value?: any}} Question */

export class Dialogs {
  /** @param {() => void} changed */
  constructor(changed) {
    this.changed = changed;
    /** @type {{question: Question, value: any, word: string, answer: (value: any) => void}[]} */
    this.open = [];
  }

  /** @param {Question} question @returns {Promise<any>} */
  ask(question) {
    return new Promise((answer) => {
      const value = question.value ?? (question.schema ? initial(question.schema) : true);
      this.open.push({ question, value, word: "", answer });
      this.changed();
    });
  }

  /** @param {any} answer */
  close(answer) {
    this.open.pop()?.answer(answer);
    this.changed();
  }

  view() {
    const top = this.open.at(-1);
    if (top === undefined) return nothing;
    const { title, text, action, danger, typed, schema } = top.question;
    /** @param {SubmitEvent} event */
    const submit = (event) => {
      event.preventDefault();
      this.close(top.value);
    };
    return html`<dialog aria-labelledby="question" @cancel=${(/** @type {Event} */ event) => { event.preventDefault(); this.close(null); }}>
      <form @submit=${submit}>
        <h2 id="question">${title}</h2>
        ${text ? html`<div class="text">${text}</div>` : nothing}
        ${schema ? form(schema, top.value, (value) => { top.value = value; this.changed(); }) : nothing}
        ${typed ? html`<div class="field"><label for="typed">Type <b>${typed}</b> to go on</label>
          <input id="typed" autocomplete="off" @input=${(/** @type {any} */ event) => { top.word = event.target.value; this.changed(); }} /></div>` : nothing}
        <div class="actions">
          <button type="button" @click=${() => this.close(null)}>Cancel</button>
          <button class=${danger ? "danger" : "primary"} ?disabled=${typed !== undefined && top.word !== typed}>${action}</button>
        </div>
      </form>
    </dialog>`;
  }

  /** Open what was drawn: only a script can make a dialog hold the focus. */
  static reveal() {
    for (const dialog of document.querySelectorAll("dialog")) if (!dialog.open) dialog.showModal();
  }
}
