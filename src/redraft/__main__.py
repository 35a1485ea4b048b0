"""`python -m redraft`, for where the command is not installed."""

from redraft.cli import main

main()
