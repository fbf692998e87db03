"""What clients count of themselves, where that was asked for."""
