"""Run the command line: `python -m deltamirror`."""

from deltamirror.cli.main import main

main()
