// @ts-check
// Requests to the platform: one token, JSON in and out, refusals as sentences, pages and events.

/** A refusal of the platform, or no answer at all (status 0); its message is a sentence to show. */
export class ApiError extends Error {
  /** @param {number} status @param {string} message @param {any} body @param {Headers} [headers] */
  constructor(status, message, body, headers) {
    super(message);
    this.status = status;
    this.body = body;
    this.code = body?.error_code ?? "";
    /** @type {{path: string, message: string}[]} */
    this.faults = body?.errors ?? [];
    this.retryAfter = Number(headers?.get("retry-after") ?? 0);
    this.requestId = headers?.get("x-request-id") ?? "";
  }
}

export class Api {
  /**
   * @param {string} root The address of the platform, with a slash at its end.
   * @param {() => string | null} token
   * @param {() => void} refused Called when the token is not taken any more.
   */
  constructor(root, token, refused) {
    this.root = root;
    this.token = token;
    this.refused = refused;
  }

  /**
   * @template {import("../types/api").PathOf<"get">} P
   * @param {P} path @param {import("../types/api").Options<P, "get">} [options]
   * @returns {Promise<import("../types/api").Answer<P, "get">>}
   */
  get(path, options = {}) {
    return this.ask("get", path, options);
  }

  /**
   * @template {import("../types/api").PathOf<"post">} P
   * @param {P} path @param {import("../types/api").Options<P, "post">} [options]
   * @returns {Promise<import("../types/api").Answer<P, "post">>}
   */
  post(path, options = {}) {
    return this.ask("post", path, options);
  }

  /**
   * @template {import("../types/api").PathOf<"patch">} P
   * @param {P} path @param {import("../types/api").Options<P, "patch">} [options]
   * @returns {Promise<import("../types/api").Answer<P, "patch">>}
   */
  patch(path, options = {}) {
    return this.ask("patch", path, options);
  }

  /**
   * @template {import("../types/api").PathOf<"delete">} P
   * @param {P} path @param {import("../types/api").Options<P, "delete">} [options]
   * @returns {Promise<unknown>}
   */
  delete(path, options = {}) {
    return this.ask("delete", path, options);
  }

  /** @param {string} method @param {string} path @param {any} options @returns {Promise<any>} */
  async ask(method, path, options) {
    const answer = await this.send(method, path, options);
    return answer.status === 204 ? null : answer.json();
  }

  /**
   * Fetch a page of a list that goes on under `Link: <…>; rel="next"`.
   * @param {string} path @param {any} options @param {string | null} next Of the page before.
   * @returns {Promise<import("../types/console").PageOf<any>>}
   */
  async page(path, options, next) {
    const query = next === null ? options.query : Object.fromEntries(new URLSearchParams(next));
    const answer = await this.send("get", path, { ...options, query });
    const body = await answer.json();
    const link = /<\??([^>]*)>;\s*rel="?next"?/.exec(answer.headers.get("link") ?? "");
    const found = link === null ? null : (link[1] ?? "").replace(/^[^?]*\?/, "");
    return { rows: Array.isArray(body) ? body : (body.data ?? []), next: found };
  }

  /**
   * Send a request.  A refusal is thrown.
   * @param {string} method @param {string} path As in the document: `/agents/{agent_id}`.
   * @param {any} options @returns {Promise<Response>}
   */
  async send(method, path, { path: ids, query, json, form, headers, signal } = {}) {
    const token = this.token();
    const init = {
      method: method.toUpperCase(),
      headers: {
        accept: "application/json",
        ...(token ? { authorization: `Bearer ${token}` } : {}),
        ...(json === undefined ? {} : { "content-type": "application/json" }),
        ...headers,
      },
      body: json === undefined ? form : JSON.stringify(json),
      signal,
      cache: /** @type {RequestCache} */ ("no-store"),
      credentials: /** @type {RequestCredentials} */ ("same-origin"),
    };
    /** @type {Response} */
    let answer;
    try {
      answer = await fetch(this.address(path, ids, query), init);
    } catch (error) {
      if (signal?.aborted) throw error;
      throw new ApiError(0, "The server does not answer. Is it running, and are you online?", null);
    }
    if (answer.ok) return answer;
    const body = await answer.json().catch(() => null);
    if (answer.status === 401 && token === this.token()) this.refused();
    const detail = typeof body?.detail === "string" ? body.detail : `The server answered ${answer.status}.`;
    throw new ApiError(answer.status, detail, body, answer.headers);
  }

  /** @param {string} path @param {Record<string, any>} [ids] @param {Record<string, any>} [query] */
  address(path, ids = {}, query = {}) {
    const filled = path.replace(/\{(\w+)\}/g, (_, name) => encodeURIComponent(ids[name]));
    const url = new URL(this.root + filled.slice(1));
    for (const [name, value] of Object.entries(query)) {
      for (const one of Array.isArray(value) ? value : [value]) {
        if (one !== undefined && one !== null && one !== "") url.searchParams.append(name, String(one));
      }
    }
    return url.href;
  }

  /**
   * Send a request and yield the events of its answer (server-sent events).
   * @param {string} method @param {string} path @param {any} options
   * @returns {AsyncGenerator<import("../types/console").StreamEvent>}
   */
  async *events(method, path, options = {}) {
    const headers = { accept: "text/event-stream", ...options.headers };
    const answer = await this.send(method, path, { ...options, headers });
    for await (const block of pieces(answer, "\n\n", options.signal)) {
      const event = readEvent(block);
      if (event !== null) yield event;
    }
  }

  /**
   * Send a request and yield the objects of its answer, one on each line (NDJSON).
   * @param {string} path @param {any} options @returns {AsyncGenerator<any>}
   */
  async *lines(path, options) {
    const answer = await this.send("get", path, { ...options, headers: { accept: "application/x-ndjson" } });
    for await (const line of pieces(answer, "\n", options.signal)) yield JSON.parse(line);
  }
}

/**
 * The texts of an answer that end with `end`, as they come.
 * @param {Response} answer @param {string} end @param {AbortSignal | undefined} signal @returns {AsyncGenerator<string>}
 */
async function* pieces(answer, end, signal) {
  if (answer.body === null) return;
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  try {
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return;
      const blocks = (rest + value).split(end);
      rest = blocks.pop() ?? "";
      yield* blocks;
    }
  } catch (error) {
    if (signal?.aborted) throw error;
    throw new ApiError(0, "The connection to the server was lost.", null);
  } finally {
    reader.cancel().catch(() => {});
  }
}

/** @param {string} block @returns {import("../types/console").StreamEvent | null} */
function readEvent(block) {
  let id = "", name = "message";
  const data = [];
  for (const line of block.split("\n")) {
    if (line.startsWith("id:")) id = line.slice(3).trim();
    else if (line.startsWith("event:")) name = line.slice(6).trim();
    else if (line.startsWith("data:")) data.push(line.slice(5).trimStart());
  }
  return data.length ? { id, name, data: JSON.parse(data.join("\n")) } : null;
}
