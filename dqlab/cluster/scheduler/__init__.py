"""Runs on the scheduler and keeps queues alive: the registry and its parts, and actions ordered from pages."""
