// @ts-check
// A run as its events tell it: pieces become messages, calls get their results, members stand in
// the call that asked for them.  `docs/reference/events.md` has the rules.

/** @typedef {{kind: "text", id: string, text: string, thought: string}} TextItem */
/** @typedef {{kind: "tool", tool: any, child: string}} ToolItem */
/** @typedef {TextItem | ToolItem} Item */
/** @typedef {{
 *   id: string, parent: string, kind: "agent" | "team", component: string, name: string,
 *   status: string, items: Item[], content: unknown, metrics: any, error: string,
 *   requirements: any[], model: string,
 * }} Run */

const ENDS = ["COMPLETED", "ERROR", "CANCELLED"];

export class Log {
  constructor() {
    /** @type {Map<string, Run>} */
    this.runs = new Map();
    /** The run that was asked for, once it has begun. */
    this.root = "";
    /** The id of the last event, to go on behind it. */
    this.last = "";
  }

  /** @returns {Run | undefined} */
  get run() {
    return this.runs.get(this.root);
  }

  get ended() {
    return ENDS.includes(this.run?.status ?? "");
  }

  /** Whether the stream has said all it will say, for now. */
  get rests() {
    return this.ended || this.run?.status === "PAUSED";
  }

  /** @param {import("../types/console").StreamEvent} event */
  take({ id, name, data }) {
    if (id) this.last = id;
    const run = this.find(data);
    const word = name.replace(/^Team/, "");
    const act = ACTS[word];
    if (act) act(run, data, this);
  }

  /** @param {any} data @returns {Run} */
  find(data) {
    const known = this.runs.get(data.run_id);
    if (known) return known;
    const kind = data.team_id ? "team" : "agent";
    /** @type {Run} */
    const run = {
      id: data.run_id, parent: data.parent_run_id ?? "", kind, component: data[`${kind}_id`] ?? "",
      name: data[`${kind}_name`] ?? data[`${kind}_id`] ?? "", status: "RUNNING", items: [], content: undefined,
      metrics: null, error: "", requirements: [], model: data.model ?? "",
    };
    this.runs.set(run.id, run);
    if (this.root === "") this.root = run.id;
    return run;
  }

  /** Take a run as the interface shows one: of a conversation that was before. @param {any} data */
  restore(data) {
    const run = this.find(data);
    const tools = new Map((data.tools ?? []).map((/** @type {any} */ tool) => [tool.tool_call_id, tool]));
    for (const message of (data.messages ?? []).filter((/** @type {any} */ one) => one.role === "assistant" && !one.from_history)) {
      if (message.content || message.reasoning_content) {
        run.items.push({ kind: "text", id: message.id, text: textOf(message.content), thought: message.reasoning_content ?? "" });
      }
      for (const call of message.tool_calls ?? []) {
        const tool = tools.get(call.id) ?? { tool_call_id: call.id, tool_name: call.function?.name, tool_args: call.function?.arguments };
        run.items.push({ kind: "tool", tool, child: tool.child_run_id ?? "" });
      }
    }
    if (run.items.length === 0 && data.content && data.status === "COMPLETED") {
      run.items.push({ kind: "text", id: data.run_id, text: textOf(data.content), thought: "" });
    }
    Object.assign(run, { status: data.status ?? "COMPLETED", metrics: data.metrics ?? null, content: data.content, requirements: data.requirements ?? [] });
    if (run.status === "ERROR") run.error = textOf(data.content);
    for (const child of data.member_responses ?? []) this.restore(child);
    return run;
  }
}

/** @param {unknown} content */
export function textOf(content) {
  return typeof content === "string" ? content : content === null || content === undefined ? "" : JSON.stringify(content, null, 2);
}

/** @param {Run} run @param {string} id @returns {TextItem} */
function message(run, id) {
  const found = run.items.findLast((item) => item.kind === "text" && (id === "" || item.id === id));
  if (found?.kind === "text") return found;
  /** @type {TextItem} */
  const made = { kind: "text", id: id || `${run.id}.2`, text: "", thought: "" };
  run.items.push(made);
  return made;
}

/** @param {Run} run @param {any} tool @param {boolean} [add] */
function takeTool(run, tool, add = true) {
  const item = run.items.find((one) => one.kind === "tool" && one.tool.tool_call_id === tool.tool_call_id);
  if (item?.kind === "tool") item.tool = { ...item.tool, ...tool };
  else if (add) run.items.push({ kind: "tool", tool, child: tool.child_run_id ?? "" });
}

/** What each event does to its run. @type {Record<string, (run: Run, data: any, log: Log) => void>} */
const ACTS = {
  RunStarted(run, data, log) {
    run.status = "RUNNING";
    run.model = data.model ?? run.model;
    const parent = log.runs.get(data.parent_run_id ?? "");
    const call = parent?.items.find((item) => item.kind === "tool" && item.tool.tool_call_id === data.parent_tool_call_id);
    if (call?.kind === "tool") call.child = run.id;
  },
  ModelRequestStarted(run, data) {
    const asked = run.items.find((item) => item.kind === "text" && item.id === data.message_id);
    if (asked?.kind === "text") Object.assign(asked, { text: "", thought: "" });
    else run.items.push({ kind: "text", id: data.message_id, text: "", thought: "" });
  },
  RunContent(run, data) {
    const item = message(run, "");
    item.text += textOf(data.content);
    item.thought += data.reasoning_content ?? "";
  },
  ToolCallStarted(run, data) { takeTool(run, data.tool); },
  ToolCallCompleted(run, data) { takeTool(run, data.tool); },
  ToolCallError(run, data) { if (data.tool) takeTool(run, { ...data.tool, tool_call_error: true, error: data.error ?? data.content }); },
  RunPaused(run, data, log) {
    run.status = "PAUSED";
    run.requirements = data.requirements ?? [];
    for (const tool of data.tools ?? []) for (const one of log.runs.values()) takeTool(one, tool, false);
  },
  RunContinued(run, data, log) {
    run.status = "RUNNING";
    run.requirements = [];
    for (const tool of data.tools ?? []) for (const one of log.runs.values()) takeTool(one, tool, false);
  },
  RunCompleted(run, data) {
    run.status = "COMPLETED";
    run.content = data.content;
    run.metrics = data.metrics ?? null;
    const said = run.items.some((item) => item.kind === "text" && item.text !== "");
    if (!said && data.content) message(run, "").text = textOf(data.content);
  },
  RunCancelled(run) { run.status = "CANCELLED"; },
  RunError(run, data) {
    run.status = "ERROR";
    run.error = textOf(data.content ?? data.error ?? "The run has failed.");
  },
};
