"""The laboratory: experiment files, running, tuning and reporting."""
