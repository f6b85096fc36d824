"""What pytest must not import while it looks for examples in docstrings."""

# It needs avalanche-lib, which is tested where that can be imported, and has no examples to run.
collect_ignore = ["olss/adapters/avalanche.py"]
