"""Runs messages in a separate process: the slot's side and the child's."""
