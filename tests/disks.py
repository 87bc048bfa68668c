"""Disks that take nothing more."""

from __future__ import annotations

import os

from mathfuse.runtime import cache


def fill(monkeypatch):
    """What the store writes goes to a device that is full."""
    real_open = open

    def on_full_device(file, *args, **kwargs):
        if isinstance(file, int) and args == ("wb",):
            os.dup2(full := os.open("/dev/full", os.O_WRONLY), file)
            os.close(full)
        return real_open(file, *args, **kwargs)

    monkeypatch.setattr(cache, "open", on_full_device, raising=False)


def refuse(monkeypatch, code):
    """No file can be made, for a reason by its number."""
    real_open = os.open

    def refusing(path, flags, *args, **kwargs):
        if flags & os.O_CREAT:
            raise OSError(code, os.strerror(code), path)
        return real_open(path, flags, *args, **kwargs)

    monkeypatch.setattr(os, "open", refusing)
