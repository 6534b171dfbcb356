"""HTTP as values: requests and responses, refusals, paths, bodies, CORS, server-sent events."""
