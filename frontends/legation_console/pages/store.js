// @ts-check
// The state of a visit: values that are being fetched, and lists that come page by page.
// Each says when it changed, and the console is drawn again; nothing else is kept anywhere.

/** A value that is fetched. @template T */
export class Load {
  /**
   * @param {(signal: AbortSignal) => Promise<T>} fetch
   * @param {AbortSignal} signal
   * @param {() => void} changed
   */
  constructor(fetch, signal, changed) {
    this.fetch = fetch;
    this.signal = signal;
    this.changed = changed;
    /** @type {T | undefined} */
    this.value = undefined;
    /** @type {Error | null} */
    this.error = null;
    this.loading = false;
    this.number = 0;
    this.reload();
  }

  /** Fetch it again; what is there stays until then.  Of two at once the later one counts. */
  async reload() {
    const number = ++this.number;
    this.loading = true;
    try {
      const value = await this.fetch(this.signal);
      if (number !== this.number) return;
      this.value = value;
      this.error = null;
    } catch (error) {
      if (number !== this.number || this.signal.aborted) return;
      this.error = /** @type {Error} */ (error);
    }
    this.loading = false;
    if (!this.signal.aborted) this.changed();
  }
}

/** A list that is fetched page by page; at most `MOST` rows of it are kept. @template T */
export class Pages {
  static MOST = 150;
  /** Rows are dropped in groups, so that those that stay are not drawn anew: see `table`. */
  static GROUP = 50;

  /**
   * @param {(next: string | null, signal: AbortSignal) => Promise<import("../types/console").PageOf<T>>} fetch
   * @param {AbortSignal} signal
   * @param {() => void} changed
   */
  constructor(fetch, signal, changed) {
    /** @type {T[]} */
    this.rows = [];
    /** How many rows before these are no longer shown. */
    this.dropped = 0;
    /** @type {string | null} */
    this.next = null;
    /** Whether the next page is appended. */
    this.appends = false;
    this.page = new Load(async (stop) => {
      const found = await fetch(this.appends ? this.next : null, stop);
      const rows = this.appends ? [...this.rows, ...found.rows] : found.rows;
      const over = Math.ceil(Math.max(0, rows.length - Pages.MOST) / Pages.GROUP) * Pages.GROUP;
      this.dropped = (this.appends ? this.dropped : 0) + over;
      this.rows = rows.slice(over);
      this.next = found.next;
      return this.rows;
    }, signal, changed);
  }

  /** Fetch the first page again. */
  reload() {
    this.appends = false;
    return this.page.reload();
  }

  /** Fetch the page behind the last row. */
  more() {
    this.appends = true;
    return this.page.reload();
  }
}
