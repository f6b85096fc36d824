"""Adapters for scikit-learn, PyTorch and Avalanche; each has a module, `olss.adapters.sklearn`."""
