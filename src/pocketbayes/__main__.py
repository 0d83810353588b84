"""`python -m pocketbayes`."""

from pocketbayes.cli import main

if __name__ == "__main__":
    main()
