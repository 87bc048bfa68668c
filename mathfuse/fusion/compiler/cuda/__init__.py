"""Code for GPUs, made and audited on any machine."""
