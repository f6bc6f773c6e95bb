"""What runs on the scheduler to know how everything is: the collector, snapshots, histories."""
