// @ts-check
// Channels: what waits, what is in work, and the dead letters: send again, or discard.
import { count, duration, plural } from "../format.js";
import { attempt } from "../parts/attempt.js";
import { chosen, filters } from "../parts/filters.js";
import { ago, badge, code, cut, show } from "../parts/show.js";
import { paged, table } from "../parts/table.js";
import { html, nothing } from "../vendor/lit-html.js";

/** @typedef {import("../../types/console").Context} Context */

/** @type {import("../../types/console").Screen} */
export const screen = {
  path: "channels",
  title: "Channels",
  group: "Operate",
  icon: "channels",
  needs: ["GET /channels"],
  heading: (ctx) => ctx.place.ids[0] ?? "Channels",
  open: (ctx) => (ctx.place.ids[0] ? openOne(ctx, ctx.place.ids[0]) : openAll(ctx)),
  view: (ctx, state) => (state.id ? viewOne(ctx, state) : viewAll(state)),
};

/** @param {Context} ctx */
function openAll(ctx) {
  const channels = ctx.load((signal) => ctx.api.get("/channels", { signal }));
  ctx.every(5, () => channels.reload());
  return { channels };
}

/** @param {any} state */
function viewAll({ channels }) {
  return show(channels, (found) => table({
    caption: "Channels, with what waits in each",
    none: "No channel is configured.",
    rows: found.flatMap((/** @type {any} */ row) => [{ ...row, what: "messages" }, { ...row, what: "replies" }]),
    href: (row) => `/channels/${encodeURIComponent(row.id)}?what=${row.what}`,
    columns: [
      { title: "Channel", kind: "main", cell: (row) => html`${row.id} <span class="quiet">${row.what}</span>` },
      { title: "Kind", kind: "wide", cell: (row) => row.kind },
      { title: "Answered by", kind: "wide", cell: (row) => cut(row.agent_id ?? row.team_id) },
      { title: "Waiting", kind: "number", cell: (row) => count(row[row.what]?.ready) },
      { title: "In work", kind: "number", cell: (row) => count(row[row.what]?.in_work) },
      { title: "Oldest", kind: "number", cell: (row) => duration(row[row.what]?.oldest_seconds) },
      { title: "Dead", kind: "number", cell: (row) => {
        const dead = row[row.what]?.dead;
        return dead ? badge(count(dead), "bad") : count(dead);
      } },
    ],
  }));
}

/** @param {Context} ctx @param {string} id */
function openOne(ctx, id) {
  const { what = "replies", ...query } = chosen(ctx);
  const path = `/channels/{channel}/${what === "messages" ? "messages" : "replies"}`;
  const letters = ctx.pages((next, signal) => ctx.api.page(path, { path: { channel: id }, query, signal }, next));
  ctx.every(5, () => { if (!letters.appends) letters.reload(); });
  return { id, what, letters, dead: (query.state ?? "dead") === "dead", busy: false };
}

/** @param {Context} ctx @param {any} state */
function viewOne(ctx, state) {
  const { what, letters, id, dead, busy } = state;
  const can = (/** @type {string} */ route) => ctx.can(`POST /channels/{channel}/${route}`, id);
  const several = dead && letters.rows.length > 0;
  const one = what === "messages" ? can("messages/{message_id}/retry") : can("replies/{reply_id}/retry");
  return html`
    ${filters(ctx, [
      { name: "what", label: "Show", options: [["replies", "Replies"], ["messages", "Messages"]] },
      { name: "state", label: "That are", options: [["dead", "Dead letters"], ["ready", "Waiting"],
        what === "messages" ? ["done", "Done"] : ["sent", "Sent"]] },
    ])}
    <div class="row">
      ${several && can("retry") ? html`<button type="button" class="primary" ?disabled=${busy} @click=${() => each(ctx, state, "retry")}>Retry all</button>` : nothing}
      ${several && can("discard") ? html`<button type="button" class="danger" ?disabled=${busy} @click=${() => each(ctx, state, "discard")}>Discard all</button>` : nothing}
      ${can("test") ? html`<button type="button" @click=${() => test(ctx, state)}>Send a test message</button>` : nothing}
    </div>
    ${paged(letters, {
      caption: what === "messages" ? "Messages" : "Replies",
      title: dead ? "No dead letters" : "Nothing here",
      none: dead ? "What was given up on would be here, with the reason." : nothing,
      columns: [
        { title: what === "messages" ? "From" : "To", cell: (row) => cut(row.sender ?? row.recipient) },
        { title: "State", kind: "wide", cell: (row) => badge(row.state) },
        { title: "Error", kind: "main", cell: (row) => cut(row.error) },
        { title: "Attempts", kind: "wide number", cell: (row) => count(row.attempts) },
        { title: "Since", cell: (row) => ago(row.received_at ?? row.created_at) },
        { title: "Id", kind: "wide", cell: (row) => code(row.id) },
        ...(dead && one ? [{ title: "", kind: /** @type {const} */ ("action"), cell: (/** @type {any} */ row) => html`
          <button type="button" ?disabled=${busy} aria-label="Retry ${row.id}" @click=${() => again(ctx, state, row)}>Retry</button>` }] : []),
      ],
    })}`;
}

/** Send one again. @param {Context} ctx @param {any} state @param {any} row */
async function again(ctx, state, row) {
  ctx.set(state, { busy: true });
  const route = state.what === "messages" ? "messages/{message_id}/retry" : "replies/{reply_id}/retry";
  const path = { channel: state.id, message_id: row.id, reply_id: row.id };
  await attempt(ctx, () => ctx.api.ask("post", `/channels/{channel}/${route}`, { path }), "It is sent again.");
  ctx.set(state, { busy: false });
  state.letters.reload();
}

/** Retry or discard them all, a thousand a request. @param {Context} ctx @param {any} state @param {"retry" | "discard"} what */
async function each(ctx, state, what) {
  const word = what === "retry" ? "Retry" : "Discard";
  const sure = await ctx.confirm({
    title: `${word} all dead ${state.what}`,
    text: what === "retry" ? "Each is tried again, as if for the first time."
      : "They are not sent, and nobody can send them any more.",
    action: `${word} all`,
    danger: what === "discard",
    ...(what === "discard" ? { typed: state.id } : {}),
  });
  if (!sure) return;
  ctx.set(state, { busy: true });
  let sum = 0;
  await attempt(ctx, async () => {
    for (let left = 1; left > 0;) {
      const json = { what: state.what, ...(what === "discard" && { all: true }) };
      const done = await ctx.api.ask("post", `/channels/{channel}/${what}`, { path: { channel: state.id }, json });
      sum += done.ids.length;
      left = done.ids.length ? done.left : 0;
    }
    ctx.notify(`${plural(sum, "letter")}: ${what === "retry" ? "tried again" : "discarded"}.`, "good");
  });
  ctx.set(state, { busy: false });
  state.letters.reload();
}

/** @param {Context} ctx @param {any} state */
async function test(ctx, state) {
  const json = await ctx.ask({
    title: `Send a test message over ${state.id}`,
    text: "It is sent as every reply is, and stands in the list of replies.",
    action: "Send",
    schema: {
      type: "object",
      properties: { recipient: { type: "string", title: "To", minLength: 1, maxLength: 256 } },
      required: ["recipient"],
    },
  });
  if (json === null) return;
  const send = () => ctx.api.ask("post", "/channels/{channel}/test", { path: { channel: state.id }, json });
  if (await attempt(ctx, send, "The message is on its way.")) state.letters.reload();
}
