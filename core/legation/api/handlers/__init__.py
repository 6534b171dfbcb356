"""The handlers of the HTTP surface, one module for each kind of resource."""
