"""`ah-server`, and `python -m ah_server`."""

import sys


def main() -> int:
    """Runs the command line; Ctrl-C while the modules still load ends it in an orderly way too."""
    try:
        from ah_server import cli  # noqa: PLC0415  # loading takes a second, and may be interrupted

        return cli.main()
    except KeyboardInterrupt:
        print("ah-server: stopped", file=sys.stderr)  # noqa: T201  # a command prints
        return 130


if __name__ == "__main__":
    sys.exit(main())
