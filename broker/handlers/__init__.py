"""One function for each API: it carries out a request and returns the answer."""
