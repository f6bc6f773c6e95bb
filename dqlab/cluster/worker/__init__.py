"""What every worker runs, whatever it hosts: it makes actors, sends heartbeats, and answers examinations."""
