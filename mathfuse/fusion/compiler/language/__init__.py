"""The callback language: a Python function's own code, evaluated on what is known and emitted for what is not."""
