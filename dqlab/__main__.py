"""`python -m dqlab` is the command `dqlab`."""

import sys

from dqlab.cli import main

__all__: list[str] = []

sys.exit(main())
