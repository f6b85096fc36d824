"""Questions to a sketch: how good it is, what it knows, what is new. They change nothing."""
