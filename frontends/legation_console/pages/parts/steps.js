// @ts-check
// The steps of a run, read from its events: what its waterfall draws.
//
// Events tell whole seconds, calls of tools microseconds, and ids of runs milliseconds.  A request to
// a model begins when what came before it in its run was over; it ends when a call that it asked for
// begins, or with its run, or else within the second of its event.

/**
 * @typedef {{kind: "run" | "model" | "tool" | "pause", label: string, depth: number,
 *   start: number, end: number | null, failed: boolean, tokens: number | null,
 *   events: any[], at: string}} Step
 * @typedef {{step: Step, clock: number, paused: number, model: Step | null, pause: Step | null}} Member
 */

const ENDS = new Set(["RunCompleted", "RunPaused", "RunError", "RunCancelled"]);

/** The steps of one run and its members, in the order in which they began. */
export class Steps {
  constructor() {
    /** @type {Step[]} */
    this.list = [];
    /** @type {Map<string, Member>} */
    this.members = new Map();
    /** @type {Map<string, Step>} */
    this.calls = new Map();
    /** Pieces of text, which are no steps. */
    this.pieces = 0;
    /** Whether the run as a whole has ended, and not only paused. */
    this.over = false;
    /** The id of the last event. */
    this.at = "";
  }

  /** Take the next event. @param {any} event @param {string} [at] Its id. */
  add(event, at = "") {
    this.at = at;
    const name = event.event.replace(/^Team/, "");
    if (name === "RunContent" || name === "RunContentCompleted") {
      this.pieces += 1;
      return;
    }
    const member = this.members.get(event.run_id) || this.begin(event);
    member.clock = Math.max(member.clock, event.created_at);
    if (name === "ModelRequestStarted") {
      member.model = this.push("model", event.model || "model", member, event);
    } else if (name === "ModelRequestCompleted") {
      answer(member, event);
    } else if (name.startsWith("ToolCall")) {
      this.call(member, name, event);
    } else {
      member.step.events.push(event);
      if (name === "RunContinued") resume(member, event.created_at);
      if (ENDS.has(name)) this.end(member, name, event);
    }
  }

  /** @param {any} event @returns {Member} */
  begin(event) {
    const above = this.members.get(event.parent_run_id);
    const start = Math.max(event.created_at, born(event), above ? above.clock : 0);
    const label = event.team_name || event.agent_name || event.team_id || event.agent_id || "run";
    const depth = above ? above.step.depth + 2 : 0;
    const step = this.step("run", label, depth, start);
    const member = {step, clock: start, paused: 0, model: null, pause: null};
    this.members.set(event.run_id, member);
    return member;
  }

  /** @param {Step["kind"]} kind @param {string} label @param {number} depth
   * @param {number} start @param {any[]} events @returns {Step} */
  step(kind, label, depth, start, events = []) {
    /** @type {Step} */
    const step = { kind, label, depth, start, end: null, failed: false, tokens: null, events, at: this.at };
    this.list.push(step);
    return step;
  }

  /** @param {Step["kind"]} kind @param {string} label @param {Member} member @param {any} event */
  push(kind, label, member, event) {
    return this.step(kind, label, member.step.depth + 1, member.clock, [event]);
  }

  /** @param {Member} member @param {string} name @param {any} event */
  call(member, name, event) {
    const {tool_call_id: id, tool_name: label, metrics, tool_call_error: failed} = event.tool;
    const key = `${event.run_id} ${id}`;
    const known = this.calls.get(key);
    const step = known || this.push("tool", label, member, event);
    this.calls.set(key, step);
    if (name === "ToolCallStarted") return;
    if (known) step.events.push(event);
    step.failed ||= failed === true || name === "ToolCallError";
    step.end = Math.max(step.start, event.created_at);
    if (metrics && metrics.end_time) {
      settle(member, metrics.start_time);
      step.start = metrics.start_time;
      step.end = metrics.end_time;
    }
    member.clock = Math.max(member.clock, step.end || 0);
  }

  /** @param {Member} member @param {string} name @param {any} event */
  end(member, name, event) {
    this.over = member.step.depth === 0 && name !== "RunPaused";
    const {start} = member.step;
    const exact = start + (event.metrics?.duration ?? 0) + member.paused;
    settle(member, exact);
    if (exact > member.clock && exact - member.clock < 1) member.clock = exact;
    member.step.end = member.clock;
    member.step.failed = name === "RunError" || name === "RunCancelled";
    if (member.model && member.model.end === null) member.model.end = member.clock;
    if (name === "RunPaused") member.pause = this.push("pause", "waits for an answer", member, event);
  }
}

/** When the run of `event` was made, where its id says so (UUID version 7) and it began at once.
 * @param {any} event */
function born({run_id: id, created_at: at}) {
  const made = /^[0-9a-f]{8}-[0-9a-f]{4}-7/.test(id) ? parseInt(id.replace("-", "").slice(0, 12), 16) / 1000 : 0;
  return made - at < 1 ? made : 0;
}

/** End the request to the model of `member`. @param {Member} member @param {any} event */
function answer(member, event) {
  const step = member.model;
  if (!step) return;
  step.end = Math.max(step.start + (event.time_to_first_token || 0), event.created_at);
  step.tokens = event.total_tokens;
  step.events.push(event);
  member.clock = Math.max(member.clock, step.end);
}

/** End the last request at `exact`, where that is within the second that is known.
 * @param {Member} member @param {number} exact */
function settle({model}, exact) {
  if (model && model.end !== null && exact > model.end && exact - model.end < 1) model.end = exact;
}

/** @param {Member} member @param {number} at */
function resume(member, at) {
  member.step.end = null;
  if (member.pause) {
    member.pause.end = Math.max(member.pause.start, at);
    member.paused += member.pause.end - member.pause.start;
  }
  member.pause = null;
  member.model = null;
}
