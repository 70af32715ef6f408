"""Lets `python -m unfork` be the command `unfork`."""

from unfork.cli.main import main

if __name__ == "__main__":
    main()
