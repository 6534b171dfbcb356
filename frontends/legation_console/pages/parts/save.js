// @ts-check
// A file that the browser saves: what a request was answered with.

/** @param {Response} answer @param {string} name */
export async function save(answer, name) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(await answer.blob());
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
}
