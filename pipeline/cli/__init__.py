"""How do people speak to Ironclip? With `ironclip <command>`; the files beside this one hold them."""

from __future__ import annotations

import sys

__all__ = ["main"]


def main() -> None:
    """Run the command line and end with its exit code."""
    # Only here: whoever looks into a part of this package does not load all of it.
    from pipeline.cli.app import run

    sys.exit(run(sys.argv[1:]))
