"""Runs on queue workers: the actor of one shard, and the stores of its bytes."""
