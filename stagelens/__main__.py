"""`python -m stagelens`: the same as the `stagelens` command."""

from stagelens.cli import main

if __name__ == "__main__":
    main()
