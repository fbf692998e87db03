"""The matrix of rights: every API, asked by somebody with each single right and without it."""
