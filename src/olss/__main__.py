"""The `olss` command, also as ``python -m olss``."""

from __future__ import annotations

import sys

from olss.util.terminal import STOPPED, exit_on_early_ctrl_c


def main() -> None:
    """Run the command line; Ctrl-C ends it with a line and 130 from the first instant."""
    exit_on_early_ctrl_c()
    try:
        from olss.cli import app

        app(prog_name="olss")
    except KeyboardInterrupt:
        print(STOPPED, file=sys.stderr, flush=True)
        sys.exit(130)


if __name__ == "__main__":
    main()
