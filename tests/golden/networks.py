"""Makes networks.safetensors: forward and backward passes and ten steps of SGD by PyTorch, in f64.

pip install torch numpy safetensors; python tests/golden/networks.py
Made with torch 2.15.0, numpy 2.4.6.

Images, labels and parameters follow `pattern`, which crates/testkit has in Rust; dropout masks follow from Philox, written
here once more. The numbers that Rust holds in f32 (rates, momenta, epsilons) are rounded to f32 here too. For every
network the file holds

    NAME/logits                of the first step, in training
    NAME/losses                the mean loss of each step
    NAME/LAYER/PARAMETER       the fingerprint of the first step's gradient (of a running average: of itself, afterwards)
    NAME/final/LAYER/PARAMETER the fingerprint after the last step
    NAME/evaluated             logits after the last step, as in inference

Of resnet18 and airbench94, the largest, there are two steps.
"""

import pathlib

import numpy as np
import torch
import torch.nn.functional as F
from safetensors.numpy import save_file

torch.set_default_dtype(torch.float64)
STEPS = {"resnet18": 2, "airbench94": 2}  # of the others: 10
SEED = 7
MOMENTUM = 0.875
BN_MOMENTUM = {name: 1.0 - float(np.float32(m)) for name, m in [("keras", 0.99), ("small_cnn", 0.9), ("resnet18", 0.9), ("airbench94", 0.6)]}
BN_EPSILON = {name: float(np.float32(epsilon)) for name, epsilon in [("keras", 1e-3), ("small_cnn", 1e-3), ("resnet18", 1e-5), ("airbench94", 1e-12)]}


def pattern(tensor, size, scale):
    """As testkit::pattern: murmur3's finalizer of the element's number, its upper half in [-scale, scale)."""
    h = np.arange(size, dtype=np.uint32) + np.uint32(tensor * 0x9E3779B9 & 0xFFFFFFFF)
    h = (h ^ (h >> np.uint32(16))) * np.uint32(0x85EBCA6B)
    h = (h ^ (h >> np.uint32(13))) * np.uint32(0xC2B2AE35)
    h = h ^ (h >> np.uint32(16))
    return scale * ((h >> np.uint32(16)).astype(np.float64) / 32768.0 - 1.0)


def fingerprint(values):
    """As testkit::fingerprint: product with pattern 0, norm, up to 16 elements."""
    values = np.asarray(values, dtype=np.float64).ravel()
    picked = min(values.size, 16)
    samples = [values[k * values.size // picked] for k in range(picked)]
    return np.array([values @ pattern(0, values.size, 1.0), np.sqrt(values @ values), *samples])


def philox(counter, key):
    """Philox4x32-10 (Salmon et al., 2011) of four arrays of words."""
    counter, low = [np.asarray(word, dtype=np.uint64) for word in counter], np.uint64(0xFFFFFFFF)
    for _ in range(10):
        a, b = counter[0] * np.uint64(0xD2511F53), counter[2] * np.uint64(0xCD9E8D57)
        high = [(b >> np.uint64(32)) ^ counter[1] ^ np.uint64(key[0]), (a >> np.uint64(32)) ^ counter[3] ^ np.uint64(key[1])]
        counter = [high[0], b & low, high[1], a & low]
        key = [(key[0] + 0x9E3779B9) & 0xFFFFFFFF, (key[1] + 0xBB67AE85) & 0xFFFFFFFF]
    return counter


def dropout_mask(layer, rate, step, samples, elements):
    """Which elements a layer keeps: 4 of them share the words of one counter, (quad, sample, step)."""
    domain = 0x811C9DC5
    for byte in layer.encode():
        domain = (domain ^ byte) * 0x01000193 & 0xFFFFFFFF
    key = [int(word) for word in philox([SEED, 0, domain, 0], [0x746F7765, 0x72732121])[:2]]
    sample, quad = np.indices((samples, -(-elements // 4)))
    zero = np.zeros_like(quad)
    words = np.stack(philox([quad, sample, zero + step, zero], key), axis=-1)
    return words.reshape(samples, -1)[:, :elements] >= rate * 2.0**32


class Parameters:
    """Parameters by Keras' names and in Keras' layout, made as the layers ask for them."""

    def __init__(self):
        self.step = 0
        self.values = {}
        self.running = {}
        self.layers = {}

    def name(self, kind):
        """`conv2d`, then `conv2d_1`; the same names again in the next pass after `rewind`."""
        count = self.layers[kind] = self.layers.get(kind, 0) + 1
        return kind if count == 1 else f"{kind}_{count - 1}"

    def rewind(self):
        self.layers = {}

    def get(self, name, *shape, middle=0.0, trained=True):
        if name not in self.values:
            size = int(np.prod(shape))
            # A power of two next to He's limit, so that every number is exact in f32.
            limit = np.sqrt(6.0 / np.prod(shape[:-1])) if len(shape) > 1 else 0.25
            scale = 2.0 ** np.round(np.log2(limit))
            number = 2 + len(self.values) + len(self.running)
            values = torch.from_numpy(middle + pattern(number, size, scale).reshape(shape))
            self.values[name] = values.requires_grad_(trained)
        return self.values[name]

    def trained(self):
        return {name: value for name, value in self.values.items() if value.requires_grad}

    def average(self, name, size, start):
        if name not in self.running:
            self.running[name] = torch.full((size,), start)
        return self.running[name]


def conv(p, x, filters, kernel, stride=1, same=False, relu=False, bias=True):
    """`same` pads both sides by half of the kernel: for a stride of 1 as Keras does, for larger ones as PyTorch."""
    name = p.name("conv2d")
    weight = p.get(f"{name}/kernel", kernel, kernel, x.shape[1], filters)
    bias = p.get(f"{name}/bias", filters) if bias else None
    y = F.conv2d(x, weight.permute(3, 2, 0, 1), bias, stride=stride, padding=kernel // 2 if same else 0)
    return F.relu(y) if relu else y


def norm(p, x, training, constants, scale=True):
    name, channels = p.name("batch_normalization"), x.shape[1]
    gamma = p.get(f"{name}/gamma", channels, middle=1.0, trained=scale)
    beta = p.get(f"{name}/beta", channels)
    mean, var = p.average(f"{name}/moving_mean", channels, 0.0), p.average(f"{name}/moving_variance", channels, 1.0)
    return F.batch_norm(x, mean, var, gamma, beta, training, BN_MOMENTUM[constants], BN_EPSILON[constants])


def dense(p, x, units, relu=False, bias=True):
    name = p.name("dense")
    y = x @ p.get(f"{name}/kernel", x.shape[1], units)
    y = y + p.get(f"{name}/bias", units) if bias else y
    return F.relu(y) if relu else y


def dropout(p, x, rate, training):
    """The mask counts elements in the order rows, columns, channels."""
    name = p.name("dropout")
    if not training:
        return x
    samples, *image = (x.permute(0, 2, 3, 1) if x.dim() == 4 else x).shape
    kept = dropout_mask(name, rate, p.step, samples, int(np.prod(image))).reshape(samples, *image)
    kept = torch.from_numpy(kept / (1.0 - rate))
    return x * (kept.permute(0, 3, 1, 2) if x.dim() == 4 else kept)


def flatten(x):
    """In the order rows, columns, channels."""
    return x.permute(0, 2, 3, 1).reshape(x.shape[0], -1)


def keras_cnn(p, x, training):
    for filters in (32, 64):
        x = conv(p, x, filters, 3, same=True, relu=True)
        x = conv(p, x, filters, 3, relu=True)
        x = dropout(p, F.max_pool2d(x, 2), 0.25, training)
    x = dense(p, flatten(x), 512, relu=True)
    return dense(p, dropout(p, x, 0.5, training), 10)


def small_cnn(p, x, training):
    for filters in (16, 32, 64):
        x = F.relu(norm(p, conv(p, x, filters, 3, same=True), training, "small_cnn"))
        x = F.max_pool2d(x, 2)
    return dense(p, dropout(p, flatten(x), 0.25, training), 10)


def minigooglenet(p, x, training):
    def module(x, filters, kernel, stride=1, same=True):
        return F.relu(norm(p, conv(p, x, filters, kernel, stride, same), training, "keras"))

    def inception(x, ones, threes):
        return torch.cat([module(x, ones, 1), module(x, threes, 3)], dim=1)

    def downsample(x, filters):
        return torch.cat([module(x, filters, 3, 2, same=False), F.max_pool2d(x, 3, 2)], dim=1)

    x = module(x, 96, 3)
    x = inception(inception(x, 32, 32), 32, 48)
    x = downsample(x, 80)
    for ones, threes in [(112, 48), (96, 64), (80, 80), (48, 96)]:
        x = inception(x, ones, threes)
    x = downsample(x, 96)
    x = inception(inception(x, 176, 160), 176, 160)
    return dense(p, flatten(dropout(p, F.avg_pool2d(x, 7), 0.5, training)), 10)


def resnet18(p, x, training):
    def conv_norm(x, filters, kernel, stride):
        return norm(p, conv(p, x, filters, kernel, stride, same=True, bias=False), training, "resnet18")

    def block(x, filters, stride):
        shortcut = x if stride == 1 and x.shape[1] == filters else conv_norm(x, filters, 1, stride)
        return F.relu(conv_norm(F.relu(conv_norm(x, filters, 3, stride)), filters, 3, 1) + shortcut)

    x = F.relu(conv_norm(x, 64, 3, 1))
    for filters, stride in [(64, 1), (128, 2), (256, 2), (512, 2)]:
        x = block(block(x, filters, stride), filters, 1)
    return dense(p, x.mean(dim=(2, 3)), 10)


def airbench94(p, x, training):
    weight = p.get("whitening/kernel", 2, 2, 3, 24, trained=False)
    x = F.gelu(F.conv2d(x, weight.permute(3, 2, 0, 1), p.get("whitening/bias", 24)))
    for filters in (64, 256, 256):
        x = F.max_pool2d(conv(p, x, filters, 3, same=True, bias=False), 2)
        x = F.gelu(norm(p, x, training, "airbench94", scale=False))
        x = conv(p, x, filters, 3, same=True, bias=False)
        x = F.gelu(norm(p, x, training, "airbench94", scale=False))
    return dense(p, F.max_pool2d(x, 3).flatten(1), 10, bias=False) * float(np.float32(1.0 / 9.0))


def record(name, network, batch, lr, out):
    p = Parameters()
    images = pattern(1, batch * 32 * 32 * 3, 1.0).reshape(batch, 32, 32, 3)
    x = torch.from_numpy(images).permute(0, 3, 1, 2)
    labels = torch.arange(batch) % 10
    velocity, losses = {}, []
    for step in range(STEPS.get(name, 10)):
        p.rewind()
        p.step = step
        logits = network(p, x, True)
        loss = F.cross_entropy(logits, labels)
        for value in p.values.values():
            value.grad = None
        loss.backward()
        losses.append(loss.item())
        if step == 0:
            out[f"{name}/logits"] = logits.detach().numpy().copy()
            for key, value in p.trained().items():
                out[f"{name}/{key}"] = fingerprint(value.grad.numpy())
            for key, value in p.running.items():
                out[f"{name}/{key}"] = fingerprint(value.numpy())
        with torch.no_grad():
            for key, value in p.trained().items():
                velocity[key] = MOMENTUM * velocity.get(key, 0.0) - lr * value.grad
                value += velocity[key]
    out[f"{name}/losses"] = np.array(losses)
    for key, value in [*p.values.items(), *p.running.items()]:
        out[f"{name}/final/{key}"] = fingerprint(value.detach().numpy())
    p.rewind()
    with torch.no_grad():
        out[f"{name}/evaluated"] = network(p, x, False).numpy().copy()
    print(name, sum(value.numel() for value in p.values.values()), "parameters, losses", losses)


if __name__ == "__main__":
    tensors = {}
    # The rates are exact in f32.
    record("small_cnn", small_cnn, 4, 2.0**-9, tensors)
    record("keras_cnn", keras_cnn, 4, 2.0**-13, tensors)
    record("minigooglenet", minigooglenet, 2, 2.0**-9, tensors)
    record("resnet18", resnet18, 2, 2.0**-9, tensors)
    record("airbench94", airbench94, 2, 2.0**-9, tensors)
    save_file(tensors, pathlib.Path(__file__).with_suffix(".safetensors"))
