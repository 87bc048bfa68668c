"""mathfuse and its peers, interleaved in one run on data larger than the cache, results checked; kept as JSON."""
