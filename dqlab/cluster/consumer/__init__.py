"""What runs on consumer workers: the actor, its slots, and how they run functions."""
