"""What runs on queue workers: the actor of one shard, and where its bytes are."""
