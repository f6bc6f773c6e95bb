"""The command `dqlab`, for shells."""

from dqlab.cli.command import main

__all__ = ["main"]
