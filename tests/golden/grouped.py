"""Golden values of convolutions with groups and dilation, and of a channel shuffle, from PyTorch: writes grouped.safetensors.

Run with Python packages torch, numpy and safetensors:

    python grouped.py

Everything is computed in float64. Inputs are numbers that float32 holds exactly, so that an f64 implementation must agree to
the last few digits. Images are stored as (n, h, w, c), weights as (kh, kw, c, k) with the c of a group.
"""

import pathlib

import numpy as np
import torch
import torch.nn.functional as F
from safetensors.numpy import save_file

rng = np.random.default_rng(44)
golden = {}


def draw(*shape):
    return np.round(rng.standard_normal(shape) * 2**7) / 2**7


def nchw(array, order=(0, 3, 1, 2)):
    return torch.tensor(np.transpose(array, order), dtype=torch.float64, requires_grad=True)


def save(name, value, order=(0, 2, 3, 1)):
    array = np.transpose(value.detach().numpy(), order) if torch.is_tensor(value) else value
    golden[name] = np.ascontiguousarray(array)


def convolution(name, c, k, kernel, groups=1, dilation=1, stride=1, padding=0):
    image, weight = draw(1, 5, 6, c), draw(*kernel, c // groups, k)
    x, w = nchw(image), nchw(weight, (3, 2, 0, 1))
    y = F.conv2d(x, w, None, stride, padding, dilation, groups)
    dy = draw(*np.transpose(y.detach().numpy(), (0, 2, 3, 1)).shape)
    y.backward(nchw(dy).detach())
    save(f"{name}.x", image)
    save(f"{name}.w", weight)
    save(f"{name}.dy", dy)
    save(f"{name}.y", y)
    save(f"{name}.dx", x.grad)
    save(f"{name}.dw", w.grad, (2, 3, 1, 0))


def shuffle():
    image = draw(2, 2, 3, 12)
    save("shuffle.x", image)
    save("shuffle.y", F.channel_shuffle(nchw(image), 3))


convolution("groups", 8, 12, (3, 3), groups=4, padding=1)
convolution("uneven", 12, 6, (3, 2), groups=3, padding=(1, 0), stride=2)
convolution("dilation", 3, 4, (3, 3), dilation=(2, 3), padding=(2, 3))
convolution("both", 6, 6, (2, 3), groups=2, dilation=2, stride=(2, 1), padding=2)
shuffle()
save_file(golden, pathlib.Path(__file__).with_name("grouped.safetensors"))
