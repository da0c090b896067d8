"""`python -m tests.outside_client`: aiperf's percentiles beside ours, in one run."""

from __future__ import annotations

import sys

from tests.outside_client.run import main

if __name__ == "__main__":
    sys.exit(main())
