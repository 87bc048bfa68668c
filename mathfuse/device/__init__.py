"""Building blocks of kernels: pure generators of code for one block of GPU threads."""
