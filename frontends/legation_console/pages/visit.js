// @ts-check
// The visit of a place: a screen, its state, and what it may do with the console while it is shown.
import { ApiError } from "./api.js";
import { Load, Pages } from "./store.js";

/** @typedef {import("../types/console").Context} Context */
/** @typedef {{
 *   api: import("./api.js").Api, rights: import("./rights.js").Rights, platform: Context["platform"],
 *   dialogs: import("./parts/dialog.js").Dialogs, draw: () => void, notify: Context["notify"], idle: () => boolean,
 * }} World */

export class Visit {
  /** @param {import("../types/console").Screen} screen @param {import("../types/console").Place} place @param {World} world */
  constructor(screen, place, world) {
    this.screen = screen;
    this.stop = new AbortController();
    /** @type {Load<any>[]} */
    this.loads = [];
    this.ctx = this.context(place, world);
    /** @type {any} */
    this.state = undefined;
  }

  begin() {
    this.state = this.screen.open(this.ctx);
  }

  /** @type {(() => void)[]} */
  waiting = [];

  /** Fetch again what a token that has ended did not bring. @param {import("./rights.js").Rights} rights */
  goOn(rights) {
    this.ctx.rights = rights;
    for (const load of this.loads) if (load.error instanceof ApiError && load.error.status === 401) load.reload();
    for (const done of this.waiting.splice(0)) done();
  }

  /** @param {import("../types/console").Place} place @param {World} world @returns {Context} */
  context(place, { api, rights, platform, dialogs, draw, notify, idle }) {
    const signal = this.stop.signal;
    const changed = () => { if (!signal.aborted) draw(); };
    /** @template {Load<any>} L @param {L} load */
    const keep = (load) => { this.loads.push(load); return load; };
    /** @type {Context} */
    const ctx = {
      api, rights, place, platform, signal, notify,
      can: (operation, id) => ctx.rights.can(operation, id),
      update: changed,
      set: (state, change) => { Object.assign(state, change); changed(); },
      load: (fetch) => keep(new Load(fetch, signal, changed)),
      pages: (fetch) => {
        const pages = new Pages(fetch, signal, changed);
        keep(pages.page);
        return pages;
      },
      every: (seconds, what) => {
        const timer = setInterval(() => { if (!document.hidden && !idle()) what(); }, seconds * 1000);
        signal.addEventListener("abort", () => clearInterval(timer));
      },
      go: (to, { replace = false } = {}) => { replace ? location.replace(`#${to}`) : (location.hash = to); },
      remember: (to) => history.replaceState(history.state, "", `#${to}`),
      signedIn: () => new Promise((done) => this.waiting.push(done)),
      confirm: async (question) => (await dialogs.ask(question)) !== null,
      ask: (question) => dialogs.ask(question),
    };
    return ctx;
  }
}
