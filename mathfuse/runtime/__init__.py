"""The ground everything stands on: errors, settings, logging, array interop, the artifact store."""
