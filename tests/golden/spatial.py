"""Golden values of ops on rows and columns, and on the channels of pixels, from PyTorch: writes spatial.safetensors next to this file.

Run with Python packages torch, numpy and safetensors:

    python spatial.py

Everything is computed in float64. Inputs and options are numbers that float32 holds exactly, so that an f64
implementation must agree to the last few digits. Images are stored as (n, h, w, c).
"""

import pathlib

import numpy as np
import torch
import torch.nn.functional as F
from safetensors.numpy import save_file

rng = np.random.default_rng(44)
golden = {}


def draw(*shape, digits=7):
    """Random numbers with a few binary digits behind the point; with 1, many are equal."""
    return np.round(rng.standard_normal(shape) * 2**digits) / 2**digits


def nchw(array):
    return torch.tensor(np.transpose(array, (0, 3, 1, 2)), dtype=torch.float64, requires_grad=True)


def nhwc(t):
    return np.ascontiguousarray(np.transpose(t.detach().numpy(), (0, 2, 3, 1)))


def both_ways(name, image, function):
    """Saves a function's values at `image` and its gradient as `name.y` and `name.dx`, of `name.x` and `name.dy`."""
    x = nchw(image)
    y = function(x)
    if f"{name[0]}.dy" not in golden:
        golden[f"{name[0]}.x"] = image
        golden[f"{name[0]}.dy"] = draw(*nhwc(y).shape)
    y.backward(nchw(golden[f"{name[0]}.dy"]).detach())
    golden[".".join((*name, "y"))] = nhwc(y)
    golden[".".join((*name, "dx"))] = nhwc(x.grad)


def windows():
    """`ceil_mode`, with and without `count_include_pad`, over numbers of which many are equal."""
    for case, side, kernel, stride, pad, counts in [
        ("3s2", 8, 3, 2, 0, False),
        ("2s2p1", 7, 2, 2, 1, False),
        ("3s2p1", 6, 3, 2, 1, True),
        ("2s3p1", 7, 2, 3, 1, True),
    ]:
        image, name = draw(2, side, side, 3, digits=1), f"pool.{case}"
        both_ways((name, "max"), image, lambda x: F.max_pool2d(x, kernel, stride, pad, ceil_mode=True))
        mean = lambda x: F.avg_pool2d(x, kernel, stride, pad, ceil_mode=True, count_include_pad=counts)
        both_ways((name, "average"), image, mean)


def sides():
    """Zeros around images, and images without their borders: a number below 0 cuts off."""
    for case, (top, bottom, left, right) in [("around", (1, 2, 0, 3)), ("cut", (-1, 0, -2, -1)), ("both", (-1, 2, 1, -2))]:
        both_ways((f"pad.{case}",), draw(2, 5, 6, 3), lambda x: F.pad(x, (left, right, top, bottom)))


def larger():
    for case, by, mode in [("nearest", (2, 3), "nearest"), ("bilinear", (2, 2), "bilinear"), ("bilinear3", (3, 4), "bilinear")]:
        image = draw(2, 4, 3, 3)
        both_ways((f"upsample.{case}",), image, lambda x: F.interpolate(x, scale_factor=by, mode=mode))


def pixels():
    """Normalizations of a pixel by its own channels."""
    x, dy = draw(3, 4, 3, 21) * 2.0 + 1.0, draw(3, 4, 3, 21)
    gamma, beta = (torch.tensor(draw(21) + one, requires_grad=True) for one in (1.0, 0.0))
    t = torch.tensor(x, requires_grad=True)
    y = F.layer_norm(t, (21,), gamma, beta, eps=2**-10)
    y.backward(torch.tensor(dy))
    golden["ln.x"], golden["ln.dy"] = x, dy
    for name, value in [("gamma", gamma), ("beta", beta), ("y", y), ("dx", t.grad), ("dgamma", gamma.grad), ("dbeta", beta.grad)]:
        golden[f"ln.{name}"] = np.ascontiguousarray(value.detach().numpy())
    norm = torch.nn.LocalResponseNorm(5, alpha=0.5, beta=0.75, k=1.0)
    both_ways(("lrn",), draw(2, 3, 2, 9), norm)
    both_ways(("lrn3",), draw(2, 3, 2, 9), torch.nn.LocalResponseNorm(3, alpha=1.0, beta=1.25, k=2.0))


windows()
sides()
larger()
pixels()
save_file(golden, pathlib.Path(__file__).with_name("spatial.safetensors"))
