"""`python -m streamcp` is the command line."""

from streamcp.cli.main import main

if __name__ == "__main__":
    main()
