"""What tests need of a broker: the pytest plugin, faults, a clock, assertions. Built on the embedded broker."""
