"""One callback applied to every element of an array: a kernel of its own, and the pieces that transforms share."""

from mathfuse.fusion.elementwise.call import elementwise

__all__ = ["elementwise"]
