"""Makes airbench_steps.json: twelve steps as K. Jordan's airbench94 makes them, of a small network, in PyTorch.

pip install torch numpy; python tests/golden/airbench_steps.py
Made with torch 2.15.0 and numpy 2.4.6, in f32.

What is checked is everything but the network: the summed, smoothed loss with rates for 1024 samples, Nesterov's momentum, the
biases of normalizations at 64 times the rate, the first bias trained for three epochs alone, the triangular schedule, Lookahead.
An epoch is one batch of 8 images here, each of which stands for 128 of a batch of 1024. First values and images are sines, so that both sides can compute them.
"""

import json
import pathlib

import numpy as np
import torch
import torch.nn.functional as F

HERE = pathlib.Path(__file__).parent
BATCH, SIDE, EPOCHS, CLASSES = 8, 8, 12, 10
SHOWN = [4, 5, 6, 12]
# As Keras lays them out.
SHAPES = {
    "whitening/kernel": (3, 3, 3, 4),
    "whitening/bias": (4,),
    "conv2d/kernel": (3, 3, 4, 6),
    "batch_normalization/beta": (6,),
    "dense/kernel": (6, CLASSES),
}


def sines(count, phase, size):
    return size * np.sin(1.7 * np.arange(count) + phase)


def numbers(array):
    return [float(f"{x:.9g}") for x in np.asarray(array, dtype="float64").ravel()]


def first_values():
    values = {}
    for phase, (name, shape) in enumerate(SHAPES.items()):
        size = 0.4 if name.endswith("kernel") else 0.0
        values[name] = torch.from_numpy(sines(int(np.prod(shape)), phase, size).reshape(shape).astype("float32"))
    return values


def forward(params, running, x):
    x = F.relu(F.conv2d(x, params["whitening/kernel"].permute(3, 2, 0, 1), params["whitening/bias"]))
    x = F.conv2d(x, params["conv2d/kernel"].permute(3, 2, 0, 1))
    scale, beta = torch.ones(6), params["batch_normalization/beta"]
    x = F.batch_norm(x, running["mean"], running["variance"], scale, beta, training=True, momentum=1 - 0.6, eps=1e-12)
    return F.relu(x).mean((2, 3)) @ params["dense/kernel"] / 9


def train():
    momentum, smoothing = 0.85, 0.2
    scale = 1024 * (1 + 1 / (1 - momentum))
    lr, decay = 11.5 / scale, 0.0153 * 1024 / scale
    params = {name: torch.nn.Parameter(value) for name, value in first_values().items()}
    running = {"mean": torch.zeros(6), "variance": torch.ones(6)}
    norms = [p for name, p in params.items() if "norm" in name]
    others = [p for name, p in params.items() if "norm" not in name]
    groups = [
        {"params": norms, "lr": 64 * lr, "weight_decay": decay / (64 * lr)},
        {"params": others, "lr": lr, "weight_decay": decay / lr},
    ]
    optimizer = torch.optim.SGD(groups, lr=lr, momentum=momentum, nesterov=True)
    corners = [0, int(0.23 * EPOCHS), EPOCHS]
    factors = np.interp(range(EPOCHS + 1), corners, [0.2, 1.0, 0.07])
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: float(factors[step]))

    state = lambda: [p.data for p in params.values()] + list(running.values())
    slow = [value.clone() for value in state()]
    x = sines(BATCH * SIDE * SIDE * 3, 0.5, 1.0).reshape(BATCH, SIDE, SIDE, 3).astype("float32")
    x, labels = torch.from_numpy(x).permute(0, 3, 1, 2), torch.arange(BATCH) % CLASSES
    losses, shown = [], []
    for step in range(1, EPOCHS + 1):
        params["whitening/bias"].requires_grad = step <= 3
        optimizer.zero_grad(set_to_none=True)
        loss = F.cross_entropy(forward(params, running, x), labels, label_smoothing=smoothing, reduction="sum")
        (loss * (1024 // BATCH)).backward()
        optimizer.step()
        schedule.step()
        losses.append(float(loss.detach()) / BATCH)
        moved = [0.95**5 * (step / EPOCHS) ** 3] if step % 5 == 0 else []
        for keep in moved + ([1.0] if step == EPOCHS else []):
            for average, value in zip(slow, state()):
                average.lerp_(value, 1 - keep)
                value.copy_(average)
        if step in SHOWN:
            shown.append({
                "step": step,
                **{name: numbers(p.detach()) for name, p in params.items()},
                "batch_normalization/moving_mean": numbers(running["mean"]),
            })
    return losses, shown


losses, shown = train()
golden = {"losses": losses, "shown": shown}
(HERE / "airbench_steps.json").write_text(json.dumps(golden, separators=(",", ":")) + "\n")
