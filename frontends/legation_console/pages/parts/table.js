// @ts-check
// A table: columns that say what is in a cell, rows that may lead somewhere, pages by cursor.
import { html, nothing } from "../vendor/lit-html.js";
import { plural } from "../format.js";
import { Pages } from "../store.js";
import { empty, show } from "./show.js";

/**
 * @template R
 * @typedef {{
 *   title: string,
 *   cell: (row: R) => import("../../types/console").View,
 *   kind?: "main" | "number" | "wide" | "wide number" | "fit" | "action",
 * }} Column The kind "main" takes the room there is; "wide" is left out on a narrow page.
 */

/**
 * @template R
 * @param {{
 *   caption: string,
 *   columns: Column<R>[],
 *   rows: R[],
 *   dropped?: number,
 *   href?: (row: R) => string,
 *   none?: import("../../types/console").View,
 * }} options The caption is read out; `href` is where the main cell leads to.
 *   Rows stand in groups: where those before them were `dropped`, they keep their places, and their elements.
 */
export function table({ caption, columns, rows, dropped = 0, href, none = "There is nothing here yet." }) {
  const row = (/** @type {R} */ one) => html`<tr>
    ${columns.map(({ cell, kind }) => html`<td class=${kind ?? ""}>
      ${kind === "main" && href ? html`<a href=${`#${href(one)}`}>${cell(one)}</a>` : cell(one)}
    </td>`)}
  </tr>`;
  const groups = Array(dropped / Pages.GROUP).fill(nothing);
  for (let at = 0; at < rows.length; at += Pages.GROUP) groups.push(rows.slice(at, at + Pages.GROUP).map(row));
  if (rows.length === 0) return html`<p class="none">${none}</p>`;
  return html`<div class="scroll">
    <table>
      <caption class="hidden">${caption}</caption>
      <thead>
        <tr>${columns.map(({ title, kind }) => html`<th scope="col" class=${kind ?? ""}>${title || html`<span class="hidden">Actions</span>`}</th>`)}</tr>
      </thead>
      <tbody>${groups}</tbody>
    </table>
  </div>`;
}

/**
 * A table that is fetched page by page.
 * @template R
 * @param {import("../store.js").Pages<R>} pages
 * @param {Omit<Parameters<typeof table<R>>[0], "rows"> & {title?: string}} options
 */
export function paged(pages, { title = "There is nothing here", ...options }) {
  return show(pages.page, () => {
    if (pages.rows.length === 0 && pages.next === null) return empty(title, options.none);
    return html`${pages.dropped ? html`<p class="quiet">${plural(pages.dropped, "row")} before these
        <button type="button" @click=${() => pages.reload()}>Back to the first</button></p>` : nothing}
      ${table({ ...options, rows: pages.rows, dropped: pages.dropped })}
      ${pages.next === null ? nothing : html`<p><button type="button" ?disabled=${pages.page.loading}
        @click=${() => pages.more()}>Show more</button></p>`}`;
  });
}
