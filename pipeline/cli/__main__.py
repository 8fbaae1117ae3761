"""`python -m pipeline.cli` is `ironclip`."""

from pipeline.cli import main

main()
