"""Compressing by Zstandard, which Python's standard library has since 3.14."""

from __future__ import annotations

import sys

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

__all__ = ["ZSTD", "zstd_compress", "zstd_decompress"]

ZSTD = zstd.__name__
"""The module that dqlab imports."""


def zstd_compress(data: bytes) -> bytes:
    """Compress with a checksum, as the program `zstd` does."""
    return zstd.compress(data, options={zstd.CompressionParameter.checksum_flag: 1})


def zstd_decompress(data: bytes) -> bytes:
    """Decompress, also several frames that were joined."""
    return zstd.decompress(data)
