"""Runs on the scheduler and joins reports into statistics: the collector, snapshots, histories."""
