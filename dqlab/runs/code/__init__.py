"""Which version of a function a run has: its code and the values that it reads."""
