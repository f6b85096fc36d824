"""The laboratory: experiment files, run, resume, tune, records, report."""
