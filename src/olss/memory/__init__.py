"""The memory: a sketch, its policies, what it knows of everything seen, and its file."""
