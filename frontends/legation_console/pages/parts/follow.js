// @ts-check
// A stream of events that is followed for as long as a screen is shown, over losses of the connection.

const LONGEST = 5; // seconds between two tries
const AT_ONCE = 100; // events that are taken before the browser may draw

/**
 * Take the events of `path` until the visit is over.  A refusal that will stay one is returned.
 * @param {import("../../types/console").Context} ctx
 * @param {() => {path: string, options: any} | null} where Asked before each try; null ends it.
 * @param {(event: import("../../types/console").StreamEvent) => void} take
 * @param {(error: any) => void} [lost] Called with the reason when the connection is lost, with null when it is back.
 * @returns {Promise<Error | null>}
 */
export async function follow(ctx, where, take, lost = () => {}) {
  const { signal } = ctx;
  let seconds = 1, number = 0;
  for (let next = where(); next !== null && !signal.aborted; next = where()) {
    try {
      for await (const event of ctx.api.events("get", next.path, { ...next.options, signal })) {
        if (seconds > 1) lost(null);
        seconds = 1;
        take(event);
        if (++number % AT_ONCE === 0) await sleep(0, signal);
      }
    } catch (/** @type {any} */ error) {
      if (signal.aborted) return null;
      if ([400, 403, 404, 405, 422].includes(error.status)) return error;
      lost(error);
    }
    if (signal.aborted || where() === null) return null;
    await sleep(seconds, signal);
    seconds = Math.min(LONGEST, seconds * 2);
  }
  return null;
}

/**
 * Call `renew` whenever a run begins, pauses, goes on or ends, at most once a second.
 * @param {import("../../types/console").Context} ctx @param {() => void} renew
 */
export function live(ctx, renew) {
  if (!ctx.can("GET /runs/events")) return ctx.every(5, renew);
  let first = true, planned = false;
  const plan = () => {
    if (planned) return;
    planned = true;
    sleep(1, ctx.signal).then(() => { planned = false; if (!ctx.signal.aborted) renew(); });
  };
  follow(ctx, () => ({ path: "/runs/events", options: {} }), () => {
    if (!first) plan();
    first = false; // a stream begins with the counts as they are
  }, (error) => { if (error === null) plan(); });
}

/** @param {number} seconds @param {AbortSignal} signal @returns {Promise<void>} */
function sleep(seconds, signal) {
  return new Promise((done) => {
    const timer = setTimeout(done, seconds * 1000);
    signal.addEventListener("abort", () => { clearTimeout(timer); done(); }, { once: true });
  });
}
