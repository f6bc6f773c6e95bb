"""Runs in the processes of a cluster, one folder for each kind of process, and alone talks to Dask."""
