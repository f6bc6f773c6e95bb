"""The actor on consumer workers, its slots, and the threads and processes in which they run functions."""
