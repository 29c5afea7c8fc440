"""Makes optim_trust.json: ten steps of timm's LARS and LAMB on parameter tensors, some without weight decay.

pip install timm numpy; python tests/golden/optim_trust.py
Made with timm 1.0.31, torch 2.15.0 and numpy 2.4.6. All of it in f32, as users run it.

The form is that of optim_groups.json. One tensor and one gradient are 0.
"""

import json
import pathlib

import numpy as np
import torch
from timm.optim import Lamb, Lars

HERE = pathlib.Path(__file__).parent
STEPS, STEPS_PER_EPOCH, EPOCHS = 10, 5, 2
SIZES = {"conv2d/kernel": 18, "conv2d/bias": 2, "norm/gamma": 3, "zero/kernel": 4, "still/kernel": 4, "dense/kernel": 9, "dense/bias": 2}
LENGTH = sum(SIZES.values())
AT = np.cumsum([0, *SIZES.values()])


def numbers(array):
    """Exact: nine digits tell any two f32 apart."""
    return [float(f"{x:.9g}") for x in np.asarray(array, dtype="float64").ravel()]


def problem():
    rng = np.random.default_rng(5)
    start, grads = rng.normal(size=LENGTH), 0.3 * rng.normal(size=(STEPS, LENGTH))
    start[AT[3] : AT[4]] = 0
    grads[:, AT[4] : AT[5]] = 0
    return start.astype("float32"), grads.astype("float32")


FACTORS = [1.0 - step // STEPS_PER_EPOCH / EPOCHS for step in range(STEPS)]


def run(make, lr, own, state):
    start, grads = problem()
    params = {name: torch.nn.Parameter(torch.from_numpy(start[a:b].copy())) for name, a, b in zip(SIZES, AT, AT[1:])}
    optimizer = make([{"params": [p], **own.get(name, {})} for name, p in params.items()])
    base = [group["lr"] for group in optimizer.param_groups]
    history = []
    for step in range(STEPS):
        for (name, p), a, b in zip(params.items(), AT, AT[1:]):
            p.grad = torch.from_numpy(grads[step, a:b].copy())
        for group, rate in zip(optimizer.param_groups, base):
            group["lr"] = rate * FACTORS[step]
        optimizer.step()
        history += numbers(torch.cat([p.detach() for p in params.values()]))
    kept = [numbers(torch.cat([optimizer.state[p][name] for p in params.values()])) for name in state]
    counted = [float(STEPS)] if "exp_avg" in state else []
    return {"lr": lr, "params": history, "state": sum(kept, []) + counted}


NO_DECAY = {name: {"weight_decay": 0.0} for name in ["conv2d/bias", "norm/gamma", "dense/bias"]}
GROUPS = ["*/bias:weight-decay=0", "*/gamma:weight-decay=0"]


def cases():
    lars = lambda groups: Lars(groups, lr=2.0, momentum=0.9, weight_decay=0.01)
    yield {"optimizer": "lars:momentum=0.9,l2=0.01", "groups": GROUPS, **run(lars, 2.0, NO_DECAY, ["momentum_buffer"])}
    lars = lambda groups: Lars(groups, lr=1.0, momentum=0.8, nesterov=True, weight_decay=0.1, trust_coeff=0.02, eps=0.01)
    own = {"dense/kernel": {"lr": 0.5}}
    yield {
        "optimizer": "lars:momentum=0.8,nesterov,trust=0.02,epsilon=0.01,weight-decay=0.1",
        "groups": ["dense/kernel:lr-multiplier=0.5"],
        **run(lars, 1.0, own, ["momentum_buffer"]),
    }
    lars = lambda groups: Lars(groups, lr=1.0, weight_decay=0.1)
    yield {"optimizer": "lars:l2=0.1", "groups": [], **run(lars, 1.0, {}, [])}
    means = ["exp_avg", "exp_avg_sq"]
    lamb = lambda groups: Lamb(groups, lr=0.02, weight_decay=0.05, max_grad_norm=None)
    yield {"optimizer": "lamb:weight-decay=0.05", "groups": GROUPS, **run(lamb, 0.02, NO_DECAY, means)}
    lamb = lambda groups: Lamb(groups, lr=0.05, betas=(0.8, 0.95), eps=1e-3, weight_decay=0.2, max_grad_norm=1.0)
    yield {
        "optimizer": "lamb:beta1=0.8,beta2=0.95,epsilon=1e-3,weight-decay=0.2,global-clipnorm=1",
        "groups": ["dense/kernel:lr-multiplier=0.5"],
        **run(lamb, 0.05, {"dense/kernel": {"lr": 0.025}}, means),
    }


start, grads = problem()
golden = {
    "steps_per_epoch": STEPS_PER_EPOCH,
    "epochs": EPOCHS,
    "schedule": "poly",
    "sizes": list(SIZES.items()),
    "initial": numbers(start),
    "grads": numbers(grads),
    "cases": list(cases()),
}
(HERE / "optim_trust.json").write_text(json.dumps(golden, separators=(",", ":")) + "\n")
