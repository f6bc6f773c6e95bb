"""What runs on the scheduler to keep queues alive: the registry and its parts, and actions ordered from pages."""
