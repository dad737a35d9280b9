"""Makes `python -m redbatch` the `redbatch` command."""

from redbatch.cli import main

if __name__ == "__main__":
    main()
