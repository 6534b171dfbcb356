// @ts-check
// The frame around each screen: the menu, the heading, notes in passing; and the page to sign in.
import { html, nothing } from "../vendor/lit-html.js";
import { duration } from "../format.js";
import { icon } from "./icons.js";
import { trouble } from "./show.js";

/** @typedef {import("../../types/console").Screen} Screen */
/** @typedef {{id: string, name: string, version: string}} Platform */
/** @typedef {import("../session.js").Session} Session */

/**
 * @param {{
 *   platform: Platform, rights: import("../rights.js").Rights, session: Session, screens: Screen[],
 *   current: Screen | undefined, heading: string, menu: boolean, toggle: (open: boolean) => void,
 *   leave: () => void, notes: {text: string, kind: string}[],
 *   content: import("../../types/console").View, over: import("../../types/console").View,
 * }} shown
 */
export function layout({ platform, rights, session, screens, current, heading, menu, toggle, leave, notes, content, over }) {
  const groups = [...new Set(screens.map(({ group }) => group))];
  /** @param {Event} event */
  const skip = (event) => {
    event.preventDefault();
    /** @type {HTMLElement | null} */ (document.querySelector("main h1"))?.focus();
  };
  return html`<div class="frame ${menu ? "menu-open" : ""}">
      <header>
        <a class="skip" href="#" @click=${skip}>Skip to the content</a>
        <p class="platform" title=${platform.name}>${platform.name}</p>
        <button type="button" class="menu-button" aria-expanded=${menu} aria-controls="menu" @click=${() => toggle(!menu)}>
          ${icon(menu ? "close" : "menu")}<span>Menu</span>
        </button>
      </header>
      <div id="menu" class="side">
        <nav aria-label="Screens">
          ${groups.map((group) => html`<h2>${group}</h2>
            <ul>${screens.filter((screen) => screen.group === group).map((screen) => html`<li>
              <a href="#/${screen.path}" aria-current=${screen === current ? "page" : nothing}
                @click=${() => toggle(false)}>${icon(screen.icon)}${screen.title}</a></li>`)}
            </ul>`)}
        </nav>
        ${who(rights, session, leave)}
      </div>
      <main><h1 tabindex="-1" title=${heading}>${heading}</h1>${content}</main>
    </div>
    <div class="notes" role="status">${notes.map(({ text, kind }) => html`<p class=${kind}>${text}</p>`)}</div>
    ${over}`;
}

/** @param {import("../rights.js").Rights} rights @param {Session} session @param {() => void} leave */
function who(rights, session, leave) {
  const left = session.ends === null ? null : session.ends - Date.now() / 1000;
  return html`<footer>
    <p class="cut" title=${rights.name}>${rights.name}</p>
    ${rights.me.admin ? html`<p class="quiet">Administrator</p>` : nothing}
    ${left === null ? nothing : html`<p class="quiet">${left > 0 ? `Signed in for ${duration(left < 60 ? left : Math.floor(left / 60) * 60).replace(/ 0 [a-z]+$/, "")} more` : "The sign-in has ended"}</p>`}
    ${session.token === null ? nothing : html`<button type="button" class="bare" @click=${leave}>${icon("out")}Sign out</button>`}
  </footer>`;
}

/**
 * The page to sign in; `again`: as a dialog over a screen whose token has ended.
 * @param {{session: Session, platform: Platform, use: (token: string) => void, go: () => void, again?: boolean}} options
 */
export function signIn({ session, platform, use, go, again = false }) {
  /** @param {any} event */
  const submit = (event) => {
    event.preventDefault();
    use(event.target.elements.token.value);
  };
  const fields = html`${session.trouble ? html`<p class="trouble" role="alert">${session.trouble}</p>` : nothing}
    ${session.provider ? html`<button type="button" class="primary large" @click=${go}>Sign in at ${session.provider}</button>
      <p class="or"><span>or</span></p>` : nothing}
    <form @submit=${submit}>
      <div class="field">
        <label for="token">Token</label>
        <textarea id="token" name="token" class="mono" rows="4" required spellcheck="false" autocomplete="off"
          aria-describedby="token-about"></textarea>
        <p class="about" id="token-about">A JSON Web Token for this platform. It stays in this tab, and is sent to this server alone.</p>
      </div>
      <button class=${session.provider ? "large" : "primary large"}>Sign in</button>
    </form>`;
  if (again) return html`<dialog class="sign-in" aria-labelledby="again"><h2 id="again">Sign in again</h2>${fields}</dialog>`;
  return html`<main class="sign-in"><p class="platform" title=${platform.name}>${platform.name}</p><h1>Sign in</h1>${fields}
    <p class="quiet">For a first try: <code>legation console platform.toml --key keys/private.pem</code></p></main>`;
}

/** What is there before anything else is. @param {Platform} platform @param {Error | null} error @param {() => void} again */
export function welcome(platform, error, again) {
  return error === null
    ? html`<p class="opening" role="status">${platform.name} …</p>`
    : html`<main class="sign-in"><h1>${platform.name}</h1>${trouble(error, again)}</main>`;
}
