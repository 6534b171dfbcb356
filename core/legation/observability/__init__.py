"""Request log, metrics, trace context and spans, made from the effects that pass by."""
