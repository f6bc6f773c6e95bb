"""Actors, RPC and Dask plugins: the only room that talks to a cluster."""
