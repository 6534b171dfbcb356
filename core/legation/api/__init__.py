"""The REST interface: routes as one table, the dispatcher, the handlers, the OpenAPI document."""
