"""Makes airbench_muon_steps.json: eight steps as K. Jordan's airbench94_muon makes them, of a small network, in PyTorch.

pip install torch numpy; python tests/golden/airbench_muon_steps.py
Made with torch 2.15.0 and numpy 2.4.6, in f64.

What is checked is everything but the network: the summed, smoothed loss with rates for 2000 samples, Muon with normalized weights for
the kernels of convolutions, Nesterov's momentum for the rest with a rate for the biases and one for the last layer, rates that fall
to 0, the first bias trained for three epochs alone. Its rate falls as the others here, at 0.62 times. The network, but for a factor of 1/256 at its end, its first values and
the images are those of airbench_steps.py. An epoch is one batch of 8 images, each of which stands for 250 of a batch of 2000.
"""

import json
import pathlib

import numpy as np
import torch
import torch.nn.functional as F

HERE = pathlib.Path(__file__).parent
BATCH, SIDE, EPOCHS, CLASSES = 8, 8, 8, 10
SHOWN = [1, 3, 4, 8]
# As Keras lays them out.
SHAPES = {
    "whitening/kernel": (3, 3, 3, 4),
    "whitening/bias": (4,),
    "conv2d/kernel": (3, 3, 4, 6),
    "batch_normalization/beta": (6,),
    "dense/kernel": (6, CLASSES),
}


def sines(count, phase, size):
    return (size * np.sin(1.7 * np.arange(count) + phase)).astype("float32").astype("float64")


def numbers(array):
    return [float(f"{x:.9g}") for x in np.asarray(array, dtype="float64").ravel()]


def first_values():
    values = {}
    for phase, (name, shape) in enumerate(SHAPES.items()):
        size = 0.4 if name.endswith("kernel") else 0.0
        values[name] = torch.from_numpy(sines(int(np.prod(shape)), phase, size).reshape(shape))
    return values


def forward(params, running, x):
    x = F.relu(F.conv2d(x, params["whitening/kernel"].permute(3, 2, 0, 1), params["whitening/bias"]))
    x = F.conv2d(x, params["conv2d/kernel"].permute(3, 2, 0, 1))
    scale, beta = torch.ones(6, dtype=torch.float64), params["batch_normalization/beta"]
    x = F.batch_norm(x, running["mean"], running["variance"], scale, beta, training=True, momentum=1 - 0.6, eps=1e-12)
    return F.relu(x).mean((2, 3)) @ params["dense/kernel"] / 256


def orthogonal(matrix, iterations):
    """The singular values of the matrix after some steps of the polynomial."""
    u, s, v = torch.linalg.svd(matrix / matrix.norm(), full_matrices=False)
    for _ in range(iterations):
        s = 3.4445 * s - 4.7750 * s**3 + 2.0315 * s**5
    return u @ torch.diag(s) @ v


def train():
    decay, bias_lr, head_lr, muon_lr = 2e-6 * 2000, 0.053, 0.67, 0.24
    params = {name: torch.nn.Parameter(value) for name, value in first_values().items()}
    running = {"mean": torch.zeros(6, dtype=torch.float64), "variance": torch.ones(6, dtype=torch.float64)}
    rates = {"whitening/bias": 0.62 * bias_lr, "batch_normalization/beta": bias_lr, "dense/kernel": head_lr}
    decays = {"whitening/bias": decay / bias_lr, "batch_normalization/beta": decay / bias_lr, "dense/kernel": decay / head_lr}
    groups = [{"params": [params[name]], "lr": lr, "weight_decay": decays[name]} for name, lr in rates.items()]
    sgd = torch.optim.SGD(groups, lr=bias_lr, momentum=0.85, nesterov=True)
    velocities = {name: 0.0 for name in SHAPES if name not in rates}

    x = torch.from_numpy(sines(BATCH * SIDE * SIDE * 3, 0.5, 1.0).reshape(BATCH, SIDE, SIDE, 3)).permute(0, 3, 1, 2)
    labels = torch.arange(BATCH) % CLASSES
    losses, shown = [], []
    for step in range(EPOCHS):
        params["whitening/bias"].requires_grad = step < 3
        factor = 1 - step / EPOCHS
        for group, lr in zip(sgd.param_groups, rates.values()):
            group["lr"] = lr * factor
        sgd.zero_grad(set_to_none=True)
        for name in velocities:
            params[name].grad = None
        loss = F.cross_entropy(forward(params, running, x), labels, label_smoothing=0.2, reduction="sum")
        (loss * (2000 // BATCH)).backward()
        sgd.step()
        with torch.no_grad():
            for name in velocities:
                p, filters = params[name], SHAPES[name][-1]
                velocities[name] = 0.6 * velocities[name] + p.grad
                direction = (p.grad + 0.6 * velocities[name]).reshape(-1, filters)
                p *= filters**0.5 / p.norm()
                p -= muon_lr * factor * orthogonal(direction, 3).reshape(p.shape)
        losses.append(float(loss.detach()) / BATCH)
        if step + 1 in SHOWN:
            shown.append({
                "step": step + 1,
                **{name: numbers(p.detach()) for name, p in params.items()},
                "batch_normalization/moving_mean": numbers(running["mean"]),
            })
    return losses, shown


losses, shown = train()
golden = {"losses": losses, "shown": shown}
(HERE / "airbench_muon_steps.json").write_text(json.dumps(golden, separators=(",", ":")) + "\n")
