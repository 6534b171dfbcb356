// The types of requests and answers, by the paths of our own OpenAPI document: a member that is
// renamed there is an error in the screen that uses it.

import type { paths } from "./openapi.js";

export type Method = "get" | "post" | "put" | "patch" | "delete";

/** The paths that take a method. */
export type PathOf<M extends Method> = {
  [P in keyof paths]: paths[P] extends { [K in M]: { responses: unknown } } ? P : never;
}[keyof paths];

type Operation<P extends keyof paths, M extends Method> = paths[P] extends { [K in M]: infer O } ? O : never;
type Content<R> = R extends { content: { "application/json": infer J } } ? J : never;
type Good<R> = R extends { 200: infer A } ? Content<A> : never;
type Made<R> = R extends { 201: infer A } ? Content<A> : R extends { 202: infer A } ? Content<A> : never;

/** The JSON of an answer that is no refusal. */
export type Answer<P extends keyof paths, M extends Method> =
  Operation<P, M> extends { responses: infer R } ? Good<R> | Made<R> : never;

type Parameters<O> = O extends { parameters: infer A } ? A : never;
type Member<A, K extends string> = A extends { [N in K]?: infer V } ? V : undefined;
type Body<O> = O extends { requestBody?: { content: { "application/json": infer J } } } ? J : unknown;

export interface Options<P extends keyof paths, M extends Method> {
  path?: Member<Parameters<Operation<P, M>>, "path">;
  query?: Member<Parameters<Operation<P, M>>, "query">;
  json?: Body<Operation<P, M>>;
  form?: FormData | URLSearchParams;
  headers?: Record<string, string>;
  signal?: AbortSignal;
}
