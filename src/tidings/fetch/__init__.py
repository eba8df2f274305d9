"""One polite HTTP poll: validators, hints, limits, and a guard against requests to private addresses."""
