"""Mathematics: pure functions of matrices and vectors."""
