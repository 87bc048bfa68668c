"""Strategy `cpu`: an FFT library on cache-sized boxes of lines, with the compiled callbacks applied while these are hot."""
