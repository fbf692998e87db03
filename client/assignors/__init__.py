"""Who reads which partition: each assignor, pure, as Java's members of the same group compute it."""
