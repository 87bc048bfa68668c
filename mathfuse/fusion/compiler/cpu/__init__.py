"""Native code for the CPU."""
