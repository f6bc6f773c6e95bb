"""Runs documents again that are done, in their places."""
