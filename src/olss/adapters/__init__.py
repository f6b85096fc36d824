"""Sketches at home elsewhere: scikit-learn, PyTorch data loading, Avalanche.

Import what you need from the module that names the library, e.g. `olss.adapters.sklearn`.
"""
