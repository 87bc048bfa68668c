"""Strategy `cpu`: an FFT library on cache-sized boxes of lines, with callbacks applied while these are hot."""
