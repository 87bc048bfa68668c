"""Typed instructions for one target, and a callback's links in the function that a pipeline builds."""
