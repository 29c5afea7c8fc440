"""Weights and images that no file needs, since scripts and tests compute them."""

import zlib

import numpy as np


def numbers(name, shape):
    """Numbers from -1 to 1 by the name of a tensor, the same as `numbers` of the test."""
    word = zlib.crc32(name.encode()) | 1
    values = []
    for _ in range(int(np.prod(shape))):
        word = word * 1664525 + 1013904223 & 0xFFFFFFFF
        values.append((word >> 8) / (1 << 23) - 1.0)
    return np.array(values, dtype=np.float32).reshape(shape)
