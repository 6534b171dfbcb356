// @ts-check
// A form that is made of a JSON schema.  What has no field of its own is written as JSON.
import { html, nothing } from "../vendor/lit-html.js";

/** @typedef {import("../../types/console").Schema} Schema */
/** @typedef {(value: unknown) => void} Change */

let number = 0;
/** @type {WeakMap<Schema, string>} */
const ids = new WeakMap();

/** @param {Schema} schema */
function idOf(schema) {
  const id = ids.get(schema) ?? `field-${++number}`;
  ids.set(schema, id);
  return id;
}

/**
 * Return the fields for a value of `schema`.  `change` is given the whole new value.
 * @param {Schema} schema @param {any} value @param {Change} change
 * @returns {import("../../types/console").View}
 */
export function form(schema, value, change) {
  if (schema.properties === undefined) return field(schema, schema.title ?? "Value", value, change, true);
  const required = schema.required ?? [];
  return html`<div class="fields">
    ${Object.entries(schema.properties).map(([name, part]) =>
      field(part, part.title ?? name, value?.[name], (one) => change(replace(value, name, one)), required.includes(name)))}
  </div>`;
}

/** The value that a form begins with. @param {Schema} schema @returns {any} */
export function initial(schema) {
  if (schema.default !== undefined) return schema.default;
  if (schema.properties === undefined) return schema.type === "boolean" ? false : undefined;
  const made = Object.entries(schema.properties).map(([name, part]) => [name, initial(part)]);
  return Object.fromEntries(made.filter(([, one]) => one !== undefined));
}

/** @param {any} value @param {string} name @param {unknown} one */
function replace(value, name, one) {
  const { [name]: _, ...rest } = value ?? {};
  return one === undefined ? rest : { ...rest, [name]: one };
}

/** @param {Schema} schema @returns {Schema} What remains when null is left out. */
function plain(schema) {
  const any = schema.anyOf ?? schema.oneOf;
  const rest = any?.filter((one) => one.type !== "null");
  return rest?.length === 1 ? { ...schema, ...rest[0], anyOf: undefined, oneOf: undefined } : schema;
}

/** @param {Schema} given @param {string} label @param {any} value @param {Change} change @param {boolean} required */
function field(given, label, value, change, required) {
  const schema = plain(given), id = idOf(given);
  const about = schema.description ? html`<p class="about" id="${id}-about">${schema.description}</p>` : nothing;
  if (schema.properties !== undefined) {
    return html`<fieldset><legend>${label}</legend>${about}${form(schema, value, change)}</fieldset>`;
  }
  const described = schema.description ? `${id}-about` : nothing;
  if (schema.type === "boolean") {
    return html`<div class="field tick"><input type="checkbox" id=${id} aria-describedby=${described} .checked=${Boolean(value)}
      @change=${(/** @type {any} */ event) => change(event.target.checked)} /><label for=${id}>${label}</label>${about}</div>`;
  }
  return html`<div class="field"><label for=${id}>${label}</label>${required ? nothing : html` <span class="quiet">optional</span>`}
    ${about}${input(schema, id, described, value, change, required)}</div>`;
}

/** @param {Schema} schema @param {string} id @param {any} described @param {any} value @param {Change} change @param {boolean} required */
function input(schema, id, described, value, change, required) {
  /** @param {(text: string) => unknown} read @returns {(event: any) => void} */
  const changed = (read) => (event) => change(event.target.value === "" && !required ? undefined : read(event.target.value));
  if (schema.enum !== undefined) {
    const options = schema.enum.map((one) => JSON.stringify(one));
    return html`<select id=${id} aria-describedby=${described} ?required=${required} @change=${changed((text) => JSON.parse(text))}>
      ${value === undefined || !required ? html`<option value="" ?selected=${value === undefined}></option>` : nothing}
      ${options.map((one, index) => html`<option value=${one} ?selected=${one === JSON.stringify(value)}>${schema.enum?.[index]}</option>`)}
    </select>`;
  }
  if (schema.type === "number" || schema.type === "integer") {
    return html`<input type="number" id=${id} aria-describedby=${described} ?required=${required} step=${schema.type === "integer" ? 1 : "any"}
      min=${schema.minimum ?? nothing} max=${schema.maximum ?? nothing} .value=${value ?? ""} @input=${changed(Number)} />`;
  }
  if (schema.type === "string") {
    const long = (schema.maxLength ?? 200) > 200 || String(value ?? "").length > 80;
    return long
      ? html`<textarea id=${id} aria-describedby=${described} ?required=${required} rows="3" .value=${value ?? ""} @input=${changed(String)}></textarea>`
      : html`<input type="text" id=${id} aria-describedby=${described} ?required=${required} maxlength=${schema.maxLength ?? nothing} .value=${value ?? ""} @input=${changed(String)} />`;
  }
  return html`<textarea id=${id} class="mono" aria-describedby=${described} ?required=${required} rows="4" spellcheck="false"
    .value=${value === undefined ? "" : JSON.stringify(value, null, 2)} @change=${(/** @type {any} */ event) => readJson(event.target, change)}></textarea>`;
}

/** @param {HTMLTextAreaElement} area @param {Change} change */
function readJson(area, change) {
  area.setCustomValidity("");
  try {
    change(area.value.trim() === "" ? undefined : JSON.parse(area.value));
  } catch {
    area.setCustomValidity("This is not JSON.");
    area.reportValidity();
  }
}
