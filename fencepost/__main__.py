"""`python -m fencepost` is the command line."""

from .cli import main

main()
