// @ts-check
// Signing in: a token that is pasted, that stands in the address (`#token=`), or that an identity
// provider gives (code flow with PKCE, RFC 7636).  It is kept for this tab alone, and never sent
// to anybody but the platform.

/** @typedef {{state: string, verifier: string, issuer: string, place: string}} Flow */

export class Session {
  /** @param {DOMStringMap} settings Of the page. @param {string} root */
  constructor(settings, root) {
    this.settings = settings;
    this.root = root;
    this.name = `legation ${root}`;
    /** What went wrong when signing in, as a sentence. */
    this.trouble = "";
  }

  /** @returns {string | null} */
  get token() {
    return sessionStorage.getItem(this.name);
  }

  /** Whether people can sign in at an identity provider. */
  get provider() {
    return this.settings.issuer ? new URL(this.settings.issuer).host : "";
  }

  /** Whether a token is needed before anything is shown. */
  get needed() {
    return this.settings.authorization === "on" && this.token === null;
  }

  /** @param {string} token */
  use(token) {
    this.trouble = "";
    sessionStorage.setItem(this.name, token.trim().replace(/^bearer\s+/i, ""));
  }

  leave() {
    sessionStorage.removeItem(this.name);
  }

  /** When the token ends, in seconds since the epoch; null where it does not say. */
  get ends() {
    try {
      const part = (this.token ?? "").split(".")[1] ?? "";
      const claims = JSON.parse(atob(part.replace(/-/g, "+").replace(/_/g, "/")));
      return typeof claims.exp === "number" ? claims.exp : null;
    } catch {
      return null;
    }
  }

  /** Take what the address brings, and take it out of the address and of the history. */
  async begin() {
    const fragment = new URLSearchParams(location.hash.slice(1));
    const query = new URLSearchParams(location.search);
    const token = fragment.get("token");
    if (token) {
      history.replaceState(null, "", location.pathname);
      this.use(token);
    } else if (query.has("state") && (query.has("code") || query.has("error"))) {
      const flow = this.takeFlow();
      history.replaceState(null, "", location.pathname + (flow?.place ?? ""));
      await this.finish(query, flow).catch((error) => {
        this.trouble = error.message;
      });
    }
  }

  /** @returns {Flow | null} */
  takeFlow() {
    const kept = sessionStorage.getItem(`${this.name} flow`);
    sessionStorage.removeItem(`${this.name} flow`);
    return kept === null ? null : JSON.parse(kept);
  }

  /** Go to the identity provider; it sends back to this page. */
  async go() {
    if (!globalThis.isSecureContext) {
      throw new Error("Signing in there needs HTTPS: this page was opened without it.");
    }
    const found = await this.discover();
    const verifier = random(), state = random();
    /** @type {Flow} */
    const flow = { state, verifier, issuer: found.issuer, place: location.hash };
    sessionStorage.setItem(`${this.name} flow`, JSON.stringify(flow));
    const digest = await crypto.subtle.digest("SHA-256", new TextEncoder().encode(verifier));
    const address = new URL(found.authorization_endpoint);
    const asked = {
      response_type: "code",
      client_id: this.settings.clientId ?? "",
      redirect_uri: this.back,
      scope: this.settings.scope ?? "openid",
      audience: this.settings.audience ?? "",
      state,
      code_challenge: encode(new Uint8Array(digest)),
      code_challenge_method: "S256",
    };
    for (const [name, value] of Object.entries(asked)) if (value) address.searchParams.set(name, value);
    location.assign(address.href);
  }

  /** Where the provider sends back to. */
  get back() {
    return `${this.root}console`;
  }

  /** @param {URLSearchParams} query @param {Flow | null} flow */
  async finish(query, flow) {
    if (flow === null || flow.state !== query.get("state")) {
      throw new Error("The answer of the identity provider was not asked for in this tab. Sign in again.");
    }
    const from = query.get("iss"); // RFC 9207
    if (from !== null && from !== flow.issuer) throw new Error("Another identity provider has answered.");
    if (query.has("error")) {
      throw new Error(`The identity provider says: ${query.get("error_description") ?? query.get("error")}`);
    }
    const found = await this.discover();
    const body = new URLSearchParams({
      grant_type: "authorization_code",
      code: query.get("code") ?? "",
      redirect_uri: this.back,
      client_id: this.settings.clientId ?? "",
      code_verifier: flow.verifier,
    });
    const answer = await fetch(found.token_endpoint, { method: "POST", body, credentials: "omit" }).catch(() => {
      throw new Error(`${this.provider} cannot be asked for a token: it must be reachable, and allow this page (CORS).`);
    });
    const given = await answer.json().catch(() => ({}));
    if (!answer.ok) throw new Error(`The identity provider says: ${given.error_description ?? given.error ?? answer.status}`);
    if (String(given.access_token ?? "").split(".").length !== 3) {
      throw new Error("The identity provider gave a token that is no JWT. It may want an audience or another scope: see [console].");
    }
    this.use(given.access_token);
  }

  /** The configuration of the provider (OpenID Connect Discovery 1.0 section 4). */
  async discover() {
    const issuer = this.settings.issuer ?? "";
    const address = `${issuer.replace(/\/$/, "")}/.well-known/openid-configuration`;
    const answer = await fetch(address, { credentials: "omit" }).catch(() => null);
    const found = answer?.ok ? await answer.json().catch(() => null) : null;
    if (found === null) throw new Error(`${this.provider} does not say how to sign in there.`);
    if (found.issuer !== issuer) throw new Error(`${this.provider} calls itself another issuer.`);
    for (const address of [found.authorization_endpoint, found.token_endpoint]) {
      if (!/^(https:|http:\/\/(localhost|127\.0\.0\.1|\[::1\])[:/])/.test(String(address))) {
        throw new Error(`${this.provider} is not reached by HTTPS.`);
      }
    }
    return found;
  }
}

function random() {
  return encode(crypto.getRandomValues(new Uint8Array(32)));
}

/** Base64 for addresses, without padding. @param {Uint8Array} data */
function encode(data) {
  return btoa(String.fromCharCode(...data)).replace(/\+/g, "-").replace(/\//g, "_").replace(/=/g, "");
}
