// @ts-check
// Something that a person asked for and that may be refused.

/**
 * Do it, and say why when it went wrong.
 * @param {import("../../types/console").Context} ctx @param {() => Promise<unknown>} what
 * @param {string} [done] What is said when it went well.
 */
export async function attempt(ctx, what, done = "") {
  try {
    await what();
  } catch (error) {
    if (!ctx.signal.aborted) ctx.notify(/** @type {Error} */ (error).message, "bad");
    return false;
  }
  if (done) ctx.notify(done, "good");
  return true;
}
