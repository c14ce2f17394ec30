"""`python -m beamweaver.cli`: the same as the command `beamweaver`."""

from beamweaver.cli import main

if __name__ == "__main__":
    main()
