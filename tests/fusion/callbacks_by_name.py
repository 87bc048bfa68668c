"""Callbacks that another process finds by module and name."""

import mathfuse as mf


@mf.epilog
def weighted(value, index, w, gain=1.0):
    return value * w[index] * gain


@mf.prolog
def windowed(value, index, w):
    return value * w[index[-1]]


@mf.epilog
def scaled(value, w):
    return value * w


@mf.epilog
def gained(value, kernel):
    return value * kernel


@mf.prolog
def shifted(value, offset):
    return value + offset
