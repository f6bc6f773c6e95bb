"""What runs in the processes of a cluster, one folder a process; the only room that talks to Dask."""
