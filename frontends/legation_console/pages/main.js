// @ts-check
// The console begins here: it signs in, asks what the caller may do, and shows one screen at a time.
// The address behind `#` says which: `#/runs/r1?status=ERROR`.
import { Api, ApiError } from "./api.js";
import { Rights } from "./rights.js";
import { Session } from "./session.js";
import { Visit } from "./visit.js";
import { Dialogs } from "./parts/dialog.js";
import { layout, signIn, welcome } from "./parts/layout.js";
import { trouble } from "./parts/show.js";
import { html, render } from "./vendor/lit-html.js";
import { screen as access } from "./screens/access.js";
import { screen as agents } from "./screens/agents.js";
import { screen as approvals } from "./screens/approvals.js";
import { screen as audit } from "./screens/audit.js";
import { screen as channels } from "./screens/channels.js";
import { screen as databases } from "./screens/databases.js";
import { screen as incidents } from "./screens/incidents.js";
import { screen as overview } from "./screens/overview.js";
import { screen as playground } from "./screens/playground.js";
import { screen as runs } from "./screens/runs.js";
import { screen as sessions } from "./screens/sessions.js";
import { screen as configuration } from "./screens/settings.js";

/** Every screen, in the order of the menu. @type {import("../types/console").Screen[]} */
const SCREENS = [
  overview, runs, incidents, playground, agents, approvals, sessions, channels, databases, audit, access, configuration,
];

/** @typedef {import("../types/console").Place} Place */

const settings = document.body.dataset;
const root = new URL(settings.root ?? "./", location.origin + location.pathname).href;
const session = new Session(settings, root);
const api = new Api(root, () => session.token, expire);
const dialogs = new Dialogs(draw);
const platform = { id: settings.id ?? "", name: settings.name ?? "", version: settings.version ?? "" };

const app = {
  /** @type {Rights | null} */
  rights: null,
  /** Why there is nothing to show. @type {Error | null} */
  error: null,
  /** Whether the token ended while it was used. */
  expired: false,
  /** @type {Visit | null} */
  visit: null,
  /** @type {{text: string, kind: string}[]} */
  notes: [],
  menu: false,
};

// --- Drawing: once for each frame, whatever changed --------------------------------------------

let planned = false;
const body = /** @type {HTMLElement} */ (document.getElementById("console"));

function draw() {
  if (planned) return;
  planned = true;
  requestAnimationFrame(() => {
    planned = false;
    body.querySelector(":scope > [data-early]")?.remove(); // what the page shows until the scripts are there
    render(view(), body);
    Dialogs.reveal();
  });
}

function view() {
  const { rights, visit } = app;
  const signing = { session, platform, use: signInWith, go: () => session.go().catch((error) => { session.trouble = error.message; draw(); }) };
  if (rights === null) {
    return session.needed || app.error instanceof ApiError && app.error.status === 401
      ? signIn(signing)
      : welcome(platform, app.error, start);
  }
  const screens = SCREENS.filter((screen) => rights.sees(screen));
  const heading = visit ? visit.screen.heading?.(visit.ctx, visit.state) ?? visit.screen.title : "Not here";
  document.title = `${heading} · ${platform.name}`;
  return layout({
    platform, rights, session, screens, heading,
    current: visit?.screen,
    menu: app.menu,
    toggle: (open) => { app.menu = open; draw(); },
    leave,
    notes: app.notes,
    content: visit
      ? contentOf(visit)
      : html`<p>There is no such screen, or your token does not open it.</p>`,
    over: app.expired ? signIn({ ...signing, again: true }) : dialogs.view(),
  });
}

/** A fault in a screen is its own: the rest of the page goes on. @param {NonNullable<typeof app.visit>} visit */
function contentOf({ screen, ctx, state }) {
  try {
    return screen.view(ctx, state);
  } catch (error) {
    console.error(error);
    return trouble(/** @type {Error} */ (error));
  }
}

// --- Places -------------------------------------------------------------------------------------

/** @returns {Place} */
function readPlace() {
  const [path = "", query = ""] = location.hash.replace(/^#\/?/, "").split("?", 2);
  const [first = "", ...ids] = path.split("/").map((part) => {
    try { return decodeURIComponent(part); } catch { return part; }
  });
  return { path: first || "overview", ids: ids.filter((id) => id !== ""), query: new URLSearchParams(query) };
}

function visit() {
  const rights = app.rights;
  if (rights === null) return;
  const place = readPlace(), before = app.visit?.ctx.place;
  const screen = SCREENS.find((one) => one.path === place.path && rights.sees(one));
  app.visit?.stop.abort();
  app.visit = null;
  app.menu = false;
  if (screen) {
    app.visit = new Visit(screen, place, { api, rights, platform, dialogs, draw, notify, idle: () => app.expired });
    app.visit.begin();
  }
  draw();
  if (before && (before.path !== place.path || String(before.ids) !== String(place.ids))) {
    requestAnimationFrame(() => {
      scrollTo(0, 0);
      /** @type {HTMLElement | null} */ (document.querySelector("main h1"))?.focus();
    });
  }
}

/** @param {string} text @param {string} kind */
function notify(text, kind = "good") {
  const note = { text, kind };
  app.notes = [...app.notes.slice(-2), note];
  setTimeout(() => { app.notes = app.notes.filter((one) => one !== note); draw(); }, 6000);
  draw();
}

// --- Who is there -------------------------------------------------------------------------------

async function start() {
  app.error = null;
  if (session.needed) return draw();
  try {
    const rights = new Rights(await api.get("/me"));
    const same = app.rights === null || app.rights.me.sub === rights.me.sub;
    const going = app.expired && same && app.visit !== null;
    app.rights = rights;
    app.expired = false;
    if (!going) return visit();
    app.visit?.goOn(rights);
  } catch (error) {
    app.error = /** @type {Error} */ (error);
    if (error instanceof ApiError && error.status === 401) {
      session.leave();
      session.trouble = "This token is not taken: it has ended, or is for another platform.";
    }
  }
  draw();
}

/** Ask to sign in again, over what is shown: a token has ended while it was used. */
function expire() {
  if (app.rights === null) return;
  session.trouble = "Your sign-in has ended. Sign in again to go on where you are.";
  app.expired = true;
  draw();
}

/** @param {string} token */
function signInWith(token) {
  session.use(token);
  start();
}

function leave() {
  session.leave();
  session.trouble = "";
  app.visit?.stop.abort();
  Object.assign(app, { rights: null, visit: null, expired: false, error: null });
  start();
}

addEventListener("hashchange", () => (new URLSearchParams(location.hash.slice(1)).has("token") ? begin() : visit()));

async function begin() {
  await session.begin();
  await start();
}

begin();
