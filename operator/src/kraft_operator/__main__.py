"""`python -m kraft_operator`: the operator on Kubernetes."""

from __future__ import annotations

import sys

from kraft_operator.main import main

if __name__ == "__main__":
    sys.exit(main())
