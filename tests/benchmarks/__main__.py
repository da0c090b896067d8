"""`python -m tests.benchmarks`: what the middleware costs, against its budgets."""

from __future__ import annotations

import sys

from tests.benchmarks.run import main

if __name__ == "__main__":
    sys.exit(main())
