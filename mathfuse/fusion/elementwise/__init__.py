"""One callback applied to every element of an array: a kernel of its own, and the pieces that transforms share."""
