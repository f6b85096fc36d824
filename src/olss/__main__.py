"""``python -m olss``: the `olss` command."""

from olss.cli import app

if __name__ == "__main__":
    app(prog_name="olss")
