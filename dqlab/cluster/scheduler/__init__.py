"""What runs on the scheduler to keep queues alive: the registry and its parts, and orders of pages."""
