"""What a request must be and what it is refused with: who may ask, parameters, bodies, problems. Pure."""
