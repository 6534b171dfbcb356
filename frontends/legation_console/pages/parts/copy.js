// @ts-check
// A request as a command of curl, and a run as a test: to try again elsewhere.

/** @typedef {import("../log.js").Run} Run */
/** @typedef {{kind: "agent" | "team", id: string, message: string, session: string, schema: string, dependencies: string, files: string[]}} Asked */

/** @param {string} text For a POSIX shell. */
function quote(text) {
  return `'${text.replace(/'/g, `'\\''`)}'`;
}

/** @param {string} address @param {Asked} asked @param {boolean} token Whether one is needed. */
export function curl(address, asked, token) {
  const fields = [
    ["message", asked.message], ["session_id", asked.session], ["stream", "true"],
    ["output_schema", asked.schema], ["dependencies", asked.dependencies],
  ].filter(([, value]) => value);
  const lines = [
    `curl -N ${quote(address)}`,
    ...(token ? [`-H "Authorization: Bearer $TOKEN"`] : []),
    ...fields.map(([name, value]) => `--form-string ${quote(`${name}=${value}`)}`),
    ...asked.files.map((name) => `-F ${quote(`files=@${name}`)}`),
  ];
  return lines.join(" \\\n  ");
}

/** A value as Python writes it. @param {any} value @returns {string} */
function python(value) {
  if (value === null || value === undefined) return "None";
  if (typeof value === "boolean") return value ? "True" : "False";
  if (typeof value === "number") return String(value);
  if (typeof value === "string") return JSON.stringify(value).replace(/\u007f/g, "\\x7f");
  if (Array.isArray(value)) return `[${value.map(python).join(", ")}]`;
  return `{${Object.entries(value).map(([name, one]) => `${python(name)}: ${python(one)}`).join(", ")}}`;
}

/**
 * A test that plays this run: the model says what it said, the tools are called.
 * @param {Asked} asked @param {Run} run
 */
export function pytest(asked, run) {
  const steps = run.items.filter((item) => item.kind === "tool" || item.text).map((item) =>
    item.kind === "tool" ? `call(${python(item.tool.tool_name)}, **${python(item.tool.tool_args ?? {})})` : python(item.text));
  const tools = run.items.flatMap((item) => (item.kind === "tool" ? [item.tool.tool_name] : []));
  const name = `test_${asked.id.replace(/\W/g, "_")}`;
  return `from legation_testing import Client, ScriptedModel, call

from app import platform  # yours: the platform, or what makes it


def ${name}() -> None:
    model = ScriptedModel([
${steps.map((step) => `        ${step},`).join("\n")}
    ])
    platform.replace_models(lambda component: model if component.id == ${python(asked.id)} else component.model)

    with Client(platform) as client:
        run = client.${asked.kind === "team" ? "run_team" : "run"}(${python(asked.id)}, ${python(asked.message)})

    assert run.status == ${python(run.status)}
    assert [tool["tool_name"] for tool in run["tools"] or []] == ${python(tools)}
`;
}

/** @param {string} text @param {(text: string, kind?: "good" | "bad") => void} notify @param {string} what */
export async function copy(text, notify, what) {
  try {
    await navigator.clipboard.writeText(text);
    notify(`${what} is in the clipboard.`);
  } catch {
    notify("The browser did not let this page write to the clipboard.", "bad");
  }
}
