"""Fourier transforms that one block of threads computes in registers and shared memory."""
