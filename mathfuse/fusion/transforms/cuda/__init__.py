"""Transforms on a GPU: cuFFT with callbacks inlined into it, or between generated elementwise kernels."""
