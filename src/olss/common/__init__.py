"""What every floor may use: checks of arguments, whole files, near names, locks, exit codes."""
