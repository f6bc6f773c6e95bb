"""Runs a function over a chunk of messages, in a thread that knows neither queues nor calls."""
