// @ts-check
// One turn of a conversation: a message is sent, its events are followed until the run rests, over
// a connection that is lost and a sign-in that ends, and a paused run goes on with its answers.
import { ApiError } from "./api.js";
import { Log } from "./log.js";
import { answersOf } from "./parts/requirement.js";

/** @typedef {import("../types/console").Context} Context */
/** @typedef {import("./parts/copy.js").Asked} Asked */

const TRIES = 5;

export class Turn {
  /** @param {Context} ctx @param {Asked} asked */
  constructor(ctx, asked) {
    this.ctx = ctx;
    this.asked = asked;
    this.log = new Log();
    /** @type {Error | null} */
    this.error = null;
    this.busy = false;
    /** @type {import("./parts/requirement.js").Answer[]} */
    this.answers = [];
  }

  get group() {
    return `${this.asked.kind}s`;
  }

  /** The path of its runs, and the ids in it. */
  get place() {
    const parameter = `${this.asked.kind}_id`;
    return { path: `/${this.group}/{${parameter}}/runs`, ids: { [parameter]: this.asked.id, run_id: this.log.root } };
  }

  /** @param {FormData} form */
  send(form) {
    return this.work(async () => {
      const { path, ids } = this.place;
      await this.read(this.ctx.api.events("post", path, { path: ids, form, signal: this.ctx.signal }));
      await this.follow();
    });
  }

  /** Answer the calls that wait, and go on. */
  answer() {
    return this.work(async () => {
      const { path, ids } = this.place;
      const form = new FormData();
      form.set("tools", JSON.stringify(answersOf(this.log.run?.requirements ?? [], this.answers)));
      form.set("stream", "true");
      await this.read(this.ctx.api.events("post", `${path}/{run_id}/continue`, { path: ids, form, signal: this.ctx.signal }));
      this.answers = [];
      await this.follow();
    });
  }

  /** Hear the rest of a run that is under way, or that another one has answered. */
  goOn() {
    return this.work(() => this.follow(true));
  }

  async cancel() {
    const { path, ids } = this.place;
    try {
      await this.ctx.api.ask("post", `${path}/{run_id}/cancel`, { path: ids });
    } catch (error) {
      this.ctx.notify(/** @type {Error} */ (error).message, "bad");
    }
  }

  /** @param {() => Promise<void>} what */
  async work(what) {
    this.busy = true;
    this.error = null;
    this.ctx.update();
    try {
      await what();
    } catch (error) {
      if (this.ctx.signal.aborted) return;
      this.error = /** @type {Error} */ (error);
      if (error instanceof ApiError && error.status === 409) await this.look().catch(() => {});
    }
    this.busy = false;
    this.ctx.update();
  }

  /** Look at the run as it is now: somebody else has answered it. */
  async look() {
    const { path, ids } = this.place;
    const run = await this.ctx.api.ask("get", `${path}/{run_id}`, { path: ids, signal: this.ctx.signal });
    this.log = new Log();
    this.log.restore(run);
    if (!this.log.rests) await this.follow(true);
  }

  /** @param {AsyncGenerator<import("../types/console").StreamEvent>} events */
  async read(events) {
    try {
      for await (const event of events) {
        this.log.take(event);
        this.ctx.update();
      }
    } catch (error) {
      // What had begun goes on at the server, and is followed from where it was lost.
      if (this.ctx.signal.aborted || this.log.root === "" || !(error instanceof ApiError && error.status === 0)) throw error;
    }
  }

  /** Follow the events behind the last one until the run rests. @param {boolean} [anyway] Though it rests. */
  async follow(anyway = false) {
    for (let tries = 0; tries < TRIES && (anyway || !this.log.rests); tries += 1) {
      anyway = false;
      const before = this.log.last;
      if (tries > 0) await this.rest(400 * 2 ** tries);
      const { path, ids } = this.place;
      const headers = this.log.last === "" ? {} : { "last-event-id": this.log.last };
      try {
        await this.read(this.ctx.api.events("get", `${path}/{run_id}/events`, { path: ids, headers, signal: this.ctx.signal }));
      } catch (error) {
        if (!(error instanceof ApiError)) throw error;
        if (error.status === 401) await this.ctx.signedIn();
        else if (error.status !== 0 && error.status < 500) throw error;
      }
      if (this.log.last !== before) tries = 0;
    }
    if (!this.log.rests) throw new ApiError(0, "The server cannot be reached. The run goes on there; what it says can be heard later.", null);
  }

  /** @param {number} milliseconds @returns {Promise<void>} */
  rest(milliseconds) {
    return new Promise((done) => setTimeout(done, milliseconds));
  }
}
