"""The command `dqlab`: what people type in a shell."""

from dqlab.cli.command import main

__all__ = ["main"]
