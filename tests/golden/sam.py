"""Makes sam.json: sharpness-aware steps of a small network with batch normalization, in PyTorch.

pip install torch numpy; python tests/golden/sam.py [the sam.py of davda54/sam]
Made with torch 2.15.0 and numpy 2.4.6, in f64.

The ascent is written down here from the papers: P. Foret et al., arXiv 2010.01412, and J. Kwon et al., arXiv 2102.11600 (without
their constant eta). With the argument, the class there trains the same cases, and has to end at the same weights.
First values are sines and images are numbers, so that both sides can compute them. A step is a batch of 8 images.
"""

import importlib.util
import json
import pathlib
import sys

import numpy as np
import torch
import torch.nn.functional as F

HERE = pathlib.Path(__file__).parent
BATCH, SIDE, STEPS, CLASSES, LR = 8, 8, 6, 5, 0.1
# As Keras lays them out.
SHAPES = {
    "conv2d/kernel": (3, 3, 3, 4),
    "conv2d/bias": (4,),
    "batch_normalization/gamma": (4,),
    "batch_normalization/beta": (4,),
    "conv2d_1/kernel": (3, 3, 4, 6),
    "dense/kernel": (6, CLASSES),
    "dense/bias": (CLASSES,),
}


def numbers(array):
    return [float(f"{x:.9g}") for x in np.asarray(array, dtype="float64").ravel()]


def first_values():
    values = {}
    for phase, (name, shape) in enumerate(SHAPES.items()):
        wave = 0.4 * np.sin(1.7 * np.arange(int(np.prod(shape))) + phase)
        values[name] = torch.from_numpy((wave + (1 if name.endswith("gamma") else 0)).astype("float32").reshape(shape)).double()
    return values


def batch():
    pixels = np.arange(BATCH * SIDE * SIDE * 3) ** 2 % 251
    images = torch.from_numpy((pixels.astype("float32") / np.float32(255)).reshape(BATCH, SIDE, SIDE, 3)).double()
    return images.permute(0, 3, 1, 2), torch.arange(BATCH) % CLASSES


def forward(params, x):
    """The scores, with the mean and the unbiased variance of the normalization."""
    x = F.relu(F.conv2d(x, params["conv2d/kernel"].permute(3, 2, 0, 1), params["conv2d/bias"]))
    mean, variance = x.mean((0, 2, 3)), x.var((0, 2, 3), unbiased=True)
    x = F.batch_norm(x, None, None, params["batch_normalization/gamma"], params["batch_normalization/beta"], training=True, eps=1e-3)
    x = F.conv2d(F.relu(x), params["conv2d_1/kernel"].permute(3, 2, 0, 1))
    return F.relu(x).mean((2, 3)) @ params["dense/kernel"] + params["dense/bias"], mean.detach(), variance.detach()


def passes(params, trained, micro_batches):
    """Adds up the gradients of the batch's mean loss, over micro-batches that are normalized each by itself."""
    images, labels = batch()
    for p in trained.values():
        p.grad = None
    total, means, variances = 0.0, 0.0, 0.0
    for x, y in zip(images.chunk(micro_batches), labels.chunk(micro_batches)):
        scores, mean, variance = forward(params, x)
        loss = F.cross_entropy(scores, y, reduction="sum") / BATCH
        loss.backward()
        total, means, variances = total + loss.item(), means + mean / micro_batches, variances + variance / micro_batches
    return total, means, variances


def ascend(trained, rho, adaptive):
    sizes = {name: p.detach().abs() if adaptive else torch.ones(()) for name, p in trained.items()}
    norm = sum(((sizes[name] * p.grad) ** 2).sum() for name, p in trained.items()) ** 0.5
    with torch.no_grad():
        for name, p in trained.items():
            p += rho / (norm + 1e-12) * sizes[name] ** 2 * p.grad


def run(case, peer=None):
    rho, adaptive, decay = case["rho"], case["adaptive"], case["l2"]
    params = first_values()
    trained = {name: p.requires_grad_() for name, p in params.items() if not name.startswith(case["freeze"] or "-")}
    of_sgd = {"lr": LR, "momentum": 0.9, "weight_decay": decay}
    optimizer = torch.optim.SGD(trained.values(), **of_sgd)
    if peer:
        optimizer = peer(trained.values(), torch.optim.SGD, rho=rho, adaptive=adaptive, **of_sgd)
    running_mean, running_variance = torch.zeros(4).double(), torch.ones(4).double()
    losses = []
    for _ in range(STEPS):
        loss, mean, variance = passes(params, trained, case["micro_batches"])
        losses.append(loss)
        running_mean, running_variance = 0.6 * running_mean + 0.4 * mean, 0.6 * running_variance + 0.4 * variance
        weights = {name: p.detach().clone() for name, p in trained.items()}
        if peer:
            optimizer.first_step()
        else:
            ascend(trained, rho, adaptive)
        passes(params, trained, case["micro_batches"])
        if case["clip"]:
            torch.nn.utils.clip_grad_norm_(trained.values(), case["clip"])
        if peer:
            optimizer.second_step()
        else:
            with torch.no_grad():
                for name, p in trained.items():
                    p.copy_(weights[name])
            optimizer.step()
    shown = {name: numbers(p.detach()) for name, p in params.items()}
    shown["batch_normalization/moving_mean"] = numbers(running_mean)
    shown["batch_normalization/moving_variance"] = numbers(running_variance)
    return {**case, "losses": numbers(losses), "tensors": shown}


PLAIN = {"rho": 0.1, "adaptive": False, "l2": 0.0, "clip": None, "micro_batches": 1, "freeze": None}
CASES = [
    PLAIN,
    {**PLAIN, "rho": 1.0, "adaptive": True, "l2": 0.01, "clip": 0.3},
    {**PLAIN, "micro_batches": 2},
    {**PLAIN, "rho": 1.0, "adaptive": True, "micro_batches": 2, "freeze": "conv2d/"},
]
cases = [run(case) for case in CASES]
if len(sys.argv) > 1:
    spec = importlib.util.spec_from_file_location("peer", sys.argv[1])
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    for own in cases:
        other = run({key: own[key] for key in PLAIN}, module.SAM)
        apart = max(abs(a - b) for name in SHAPES for a, b in zip(own["tensors"][name], other["tensors"][name]))
        print(f"the weights of {module.SAM.__name__} differ by {apart:.1e}")
        assert apart < 1e-8
golden = {"lr": LR, "steps": STEPS, "cases": cases}
(HERE / "sam.json").write_text(json.dumps(golden, separators=(",", ":")) + "\n")
