"""What went wrong with a message: its record, its traceback, and counts per class of failures."""
