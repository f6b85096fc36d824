"""Tables as rows and as numbers to be scored."""
