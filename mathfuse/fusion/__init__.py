"""What makes a prolog, a pipeline and an epilog one kernel: the compiler, the plans, and their strategies."""
