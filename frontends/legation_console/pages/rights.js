// @ts-check
// What the caller may do, as `GET /me` says.  A screen, a button and a menu exist only by it.

export class Rights {
  /** @param {any} me */
  constructor(me) {
    this.me = me;
    /** @type {Map<string, {allowed: boolean, only?: string[], by?: string}>} */
    this.routes = new Map(me.routes.map((/** @type {any} */ line) => [`${line.method} ${line.route}`, line]));
  }

  /**
   * @param {string} operation A method and the path of the document: `GET /agents/{agent_id}`.
   * @param {string} [id] Of the thing that is named there; without it, of any.
   */
  can(operation, id) {
    const line = this.routes.get(operation);
    if (line === undefined || !line.allowed) return false;
    return id === undefined || line.only === undefined || line.only.includes(id);
  }

  /** @param {import("../types/console").Screen} screen */
  sees(screen) {
    return screen.needs.length === 0 || screen.needs.some((operation) => this.can(operation));
  }

  /** The name of the caller, to show. */
  get name() {
    if (!this.me.authorization) return "Everybody (authorization is off)";
    return this.me.sub ?? "Nobody by name";
  }
}
