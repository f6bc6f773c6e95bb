"""A cluster on this machine, in the process that connects, with workers forked from a nursery."""
