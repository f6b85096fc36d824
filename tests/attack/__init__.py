"""The attack on what the reliability page promises: ``python -m tests.attack --help``."""
