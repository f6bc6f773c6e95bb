"""What every worker runs: it makes actors, sends heartbeats, and answers examinations."""
