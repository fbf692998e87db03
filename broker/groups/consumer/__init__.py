"""Consumer groups of the newer protocol (KIP-848), in which the broker decides who reads which partition."""
