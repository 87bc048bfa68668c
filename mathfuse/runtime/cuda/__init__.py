"""The ground of GPU execution: the driver, cuFFT, and arrays in the memory of a GPU."""
