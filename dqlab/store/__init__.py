"""Durable shards: joins the rules of a queue and the log, which do not know each other."""
