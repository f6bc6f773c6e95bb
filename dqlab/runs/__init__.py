"""What users hold: queues, runs, results, failures."""
