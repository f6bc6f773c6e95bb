"""Runs in every process and reaches the others: the parts of Dask that we use, calls, references, sealed values."""
