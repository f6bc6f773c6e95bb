"""Runs on every worker: makes actors, sends heartbeats, and answers the doctor."""
