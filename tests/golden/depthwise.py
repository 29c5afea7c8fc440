"""Writes depthwise.safetensors: depthwise convolutions and their gradients, as PyTorch computes them with groups.

    pip install torch safetensors numpy        # torch 2.15
    python3 tests/golden/depthwise.py

Channels come last, weights are (kh, kw, c, filters of a channel). All numbers are f64; inputs are exact in f32.
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


def save(name, value):
    golden[name] = np.ascontiguousarray(value.detach().numpy() if torch.is_tensor(value) else value)


def case(name, shape, filters, kernel, stride=1, dilation=1, pad=0):
    n, h, w, c = shape
    x, kernel = draw(*shape), draw(*kernel, c, filters)
    bias = draw(c * filters)
    t = torch.tensor(x).permute(0, 3, 1, 2).requires_grad_()
    # (kh, kw, c, m) to (c * m, 1, kh, kw)
    weights = torch.tensor(kernel).requires_grad_()
    turned = weights.permute(2, 3, 0, 1).reshape(c * filters, 1, *kernel.shape[:2])
    b = torch.tensor(bias).requires_grad_()
    y = F.relu(F.conv2d(t, turned, b, stride, pad, dilation, groups=c))
    # Where ReLU cuts, the op gets a gradient of 0.
    dy = draw(*y.permute(0, 2, 3, 1).shape)
    y.backward(torch.tensor(dy).permute(0, 3, 1, 2))
    save(f"{name}.x", x)
    save(f"{name}.w", kernel.reshape(-1))
    save(f"{name}.b", bias)
    save(f"{name}.y", y.permute(0, 2, 3, 1))
    save(f"{name}.dy", np.where(y.permute(0, 2, 3, 1).detach().numpy() > 0, dy, 0.0))
    save(f"{name}.dx", t.grad.permute(0, 2, 3, 1))
    save(f"{name}.dw", weights.grad.reshape(-1))
    save(f"{name}.db", b.grad)


case("3s1", (2, 5, 6, 5), 1, (3, 3), pad=1)
case("5s2", (2, 7, 6, 4), 1, (5, 5), stride=2, pad=2)
case("2x3", (1, 6, 7, 3), 2, (2, 3), stride=(2, 1), dilation=(1, 2), pad=(1, 2))
case("7s1", (1, 6, 6, 3), 1, (7, 7), pad=3)
save_file(golden, pathlib.Path(__file__).with_name("depthwise.safetensors"))
