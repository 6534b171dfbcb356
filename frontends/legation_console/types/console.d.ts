// The shapes that the modules of the console share.

import type { Api } from "../pages/api.js";
import type { Rights } from "../pages/rights.js";
import type { Load, Pages } from "../pages/store.js";
import type { TemplateResult } from "../pages/vendor/lit-html.js";

/** Whatever lit-html shows: a template, text, nothing, or a list of these. */
export type View = unknown;
export type { TemplateResult };

/** A place in the console: `#/runs/r1?status=ERROR` is the path "runs", the ids ["r1"] and a query. */
export interface Place {
  path: string;
  ids: string[];
  query: URLSearchParams;
}

/** What a screen is given.  It belongs to one visit: leaving the place aborts `signal`. */
export interface Context {
  api: Api;
  rights: Rights;
  place: Place;
  /** The name of the platform, and its id. */
  platform: { id: string; name: string; version: string };
  signal: AbortSignal;
  /** Whether the caller may do this, as in `can("POST /agents/{agent_id}/runs", id)`. */
  can(operation: string, id?: string): boolean;
  /** Draw the screen again, soon. */
  update(): void;
  /** Change some members of a state and draw again. */
  set<S extends object>(state: S, change: Partial<S>): void;
  /** Fetch a value: `state.agents = ctx.load((signal) => ctx.api.get("/agents", {signal}))`. */
  load<T>(fetch: (signal: AbortSignal) => Promise<T>): Load<T>;
  /** Fetch a list page by page. */
  pages<T>(fetch: (next: string | null, signal: AbortSignal) => Promise<PageOf<T>>): Pages<T>;
  /** Call `what` now and then, while the screen is shown and can be seen. */
  every(seconds: number, what: () => void): void;
  /** Go to another place: `go("/runs/r1")`.  With `replace`, Back does not return here. */
  go(place: string, options?: { replace?: boolean }): void;
  /** Write a place into the address without going there: a reload comes back to it. */
  remember(place: string): void;
  /** Say something in passing; a screen reader reads it out. */
  notify(text: string, kind?: "good" | "bad"): void;
  /** Wait until somebody has signed in again: what was refused with 401 may be tried once more. */
  signedIn(): Promise<void>;
  /** Ask for a yes. */
  confirm(question: Question): Promise<boolean>;
  /** Ask for values by a form that is made of a JSON schema; null when it was left. */
  ask(question: Question & { schema: Schema; value?: unknown }): Promise<unknown>;
}

export interface Question {
  title: string;
  text?: View;
  /** The word on the button that does it. */
  action: string;
  danger?: boolean;
  /** What has to be typed first, where something is lost. */
  typed?: string;
}

export interface PageOf<T> {
  rows: T[];
  next: string | null;
}

/** A screen of the console; it exists for whoever may do one of `needs`, or for all without. */
export interface Screen<S = any> {
  path: string;
  title: string;
  group: "Work" | "Watch" | "Operate";
  /** The name of an icon in parts/icons.js. */
  icon: string;
  needs: string[];
  /** Make the state of a visit, and begin to fetch. */
  open(ctx: Context): S;
  /** Return the screen, from its state alone; it fetches nothing. */
  view(ctx: Context, state: S): View;
  /** The title of one place, where that is not the screen's. */
  heading?(ctx: Context, state: S): string;
}

/** JSON Schema, as far as forms are made of it. */
export interface Schema {
  type?: string | string[];
  title?: string;
  description?: string;
  enum?: unknown[];
  const?: unknown;
  default?: unknown;
  properties?: Record<string, Schema>;
  required?: string[];
  items?: Schema;
  anyOf?: Schema[];
  oneOf?: Schema[];
  minimum?: number;
  maximum?: number;
  minLength?: number;
  maxLength?: number;
  format?: string;
  additionalProperties?: boolean | Schema;
}

/** An event of a stream. */
export interface StreamEvent {
  id: string;
  name: string;
  data: any;
}
