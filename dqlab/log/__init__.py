"""A durable log: it takes bytes and returns them, and confirmed ones survive. `log.Log` is its interface."""
