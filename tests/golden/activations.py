"""Golden values of activations from PyTorch: writes activations.safetensors next to this file.

Run with Python packages torch, numpy and safetensors:

    python activations.py

Everything is computed in float64, from numbers that float32 holds exactly. Images are stored as (n, h, w, c).
"""

import pathlib

import numpy as np
import torch
import torch.nn.functional as F
from safetensors.numpy import save_file

rng = np.random.default_rng(44)
golden = {}


def draw(*shape):
    """Random numbers with a few binary digits behind the point."""
    return np.round(rng.standard_normal(shape) * 128) / 128


def nchw(array):
    return torch.tensor(np.transpose(array, (0, 3, 1, 2)), dtype=torch.float64, requires_grad=True)


def nhwc(t):
    return np.ascontiguousarray(np.transpose(t.detach().numpy(), (0, 2, 3, 1)))


def activation(name, function):
    """By itself, and behind a batch normalization with a fixed scale of 1."""
    x, dy = draw(4, 4, 2, 5) * 4.0, draw(4, 4, 2, 5)
    golden[f"{name}.x"] = x
    golden[f"{name}.dy"] = dy
    t = nchw(x)
    y = function(t)
    y.backward(nchw(dy).detach())
    golden[f"{name}.y"] = nhwc(y)
    golden[f"{name}.dx"] = nhwc(t.grad)
    t, beta = nchw(x), torch.tensor(draw(5) * 3.0, dtype=torch.float64, requires_grad=True)
    y = function(F.batch_norm(t, None, None, torch.ones(5, dtype=torch.float64), beta, True, eps=2**-10))
    y.backward(nchw(dy).detach())
    golden[f"{name}.bn.beta"] = beta.detach().numpy()
    golden[f"{name}.bn.y"] = nhwc(y)
    golden[f"{name}.bn.dx"] = nhwc(t.grad)
    golden[f"{name}.bn.dbeta"] = beta.grad.numpy()


def hard_sigmoid(t):
    """With the slope that float32 has for 1/6."""
    return (t * float(np.float32(1 / 6)) + 0.5).clamp(0, 1)


activation("relu6", F.relu6)
activation("leaky_relu", lambda t: F.leaky_relu(t, float(np.float32(0.2))))
activation("hard_sigmoid", hard_sigmoid)
activation("hard_silu", F.hardswish)
activation("softplus", F.softplus)
activation("mish", F.mish)
save_file(golden, pathlib.Path(__file__).with_name("activations.safetensors"))
