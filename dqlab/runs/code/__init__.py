"""Versions of a run's function: its code and the values it reads."""
