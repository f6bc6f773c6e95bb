"""Durable shards: joins the rules of a queue and the log, of which neither knows the other."""
