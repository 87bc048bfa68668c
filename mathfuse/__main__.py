"""`python -m mathfuse` is the `mathfuse` command."""

from mathfuse.cli import main

raise SystemExit(main())
