"""Messages in a process of their own: the slot's side of it, and the child's."""
