"""What every process uses to reach another one: what we use of Dask, calls, references, sealed values."""
