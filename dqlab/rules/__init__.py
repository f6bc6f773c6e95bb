"""The rules of a queue: states, lanes, leases, retries and dead letters. Pure; `Shard` is the whole of it."""
