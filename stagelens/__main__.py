"""`python -m stagelens`: the same as the `stagelens` command."""

from stagelens.entry import main

if __name__ == "__main__":
    main()
