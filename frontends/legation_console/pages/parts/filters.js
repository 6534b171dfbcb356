// @ts-check
// A form over a list.  What is chosen stands in the address, so that a list can be sent on.
import { html, nothing } from "../vendor/lit-html.js";

/**
 * @typedef {{name: string, label: string, type?: string, options?: [string, string][]}} Filter
 * The first option is the one that is meant where nothing is chosen.
 */

/** @param {import("../../types/console").Context} ctx @param {Filter[]} fields */
export function filters(ctx, fields) {
  const { ids, path, query } = ctx.place;
  const base = `/${[path, ...ids.map(encodeURIComponent)].join("/")}`;
  const submit = (/** @type {SubmitEvent} */ event) => {
    event.preventDefault();
    const form = /** @type {HTMLFormElement} */ (event.currentTarget);
    const values = [...new FormData(form)].filter(([, value]) => value !== "");
    ctx.go(`${base}?${new URLSearchParams(/** @type {[string, string][]} */ (values))}`);
  };
  return html`<form class="filters" role="search" @submit=${submit}>
    ${fields.map((field) => input(field, query.get(field.name) ?? ""))}
    <button type="submit">Filter</button>
    ${query.size ? html`<a class="button" href="#${base}">Clear</a>` : nothing}
  </form>`;
}

/** @param {Filter} filter @param {string} value */
function input({ name, label, type = "text", options }, value) {
  return html`<label>${label}${options
    ? html`<select name=${name}>${options.map(([one, word], index) =>
        html`<option value=${one} .selected=${one === value || (index === 0 && !value)}>${word}</option>`)}</select>`
    : html`<input name=${name} type=${type} autocomplete="off" .value=${value} />`}</label>`;
}

/** The values that are chosen. @param {import("../../types/console").Context} ctx */
export function chosen(ctx) {
  return /** @type {Record<string, string>} */ (Object.fromEntries(ctx.place.query));
}

/** A time of an `<input type="datetime-local">` in whole seconds. @param {string | undefined} value */
export function seconds(value) {
  const found = value ? new Date(value).getTime() : NaN;
  return Number.isNaN(found) ? undefined : Math.floor(found / 1000);
}
