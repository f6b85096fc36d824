"""What holds for all tests."""

import signal

# A shell starts background jobs with Ctrl-C ignored, and whatever they start inherits it; the tests
# of Ctrl-C then waited for nothing.
signal.signal(signal.SIGINT, signal.default_int_handler)
