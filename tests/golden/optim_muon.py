"""Makes optim_muon.json: ten steps of Muon on matrices, beside another rule for what is none.

pip install torch numpy; python tests/golden/optim_muon.py
Made with torch 2.15.0 and numpy 2.4.6. All of it in f64: of torch.optim.Muon only the conversion to bf16 is replaced.

The form is that of optim_groups.json; `matrices` has the rows and columns of the matrices among the parameters. A matrix here has a row
for each input, so PyTorch's is its transpose. `airbench` is written from the formulas of airbench94_muon.py in
github.com/KellerJordan/cifar10-airbench: sums of gradients as velocities, and weights that are normalized before a step.
"""

import json
import pathlib

import numpy as np
import torch
from torch.optim import _muon

HERE = pathlib.Path(__file__).parent
STEPS, STEPS_PER_EPOCH, EPOCHS = 10, 5, 2
MATRICES = {"wide/kernel": (4, 9), "tall/kernel": (18, 4), "square/kernel": (5, 5), "row/kernel": (1, 6), "still/kernel": (3, 4)}
SIZES = {"norm/gamma": 3, **{name: rows * columns for name, (rows, columns) in MATRICES.items()}, "dense/kernel": 8, "dense/bias": 2}
LENGTH = sum(SIZES.values())
AT = dict(zip(SIZES, np.cumsum([0, *SIZES.values()])))


class InF64:
    """The module torch with another bfloat16."""

    bfloat16 = torch.float64

    def __getattr__(self, name):
        return getattr(torch, name)


_muon.torch = InF64()


def numbers(array):
    """Exact: nine digits tell any two f32 apart."""
    return [float(f"{x:.9g}") for x in np.asarray(array, dtype="float64").ravel()]


def problem():
    rng = np.random.default_rng(7)
    start, grads = rng.normal(size=LENGTH), 0.3 * rng.normal(size=(STEPS, LENGTH))
    still = AT["still/kernel"]
    grads[:, still : still + SIZES["still/kernel"]] = 0
    return start.astype("float32").astype("float64"), grads.astype("float32").astype("float64")


FACTORS = [1.0 - step // STEPS_PER_EPOCH / EPOCHS for step in range(STEPS)]


class Airbench(torch.optim.Optimizer):
    def __init__(self, params, lr, momentum, steps):
        super().__init__(params, dict(lr=lr, momentum=momentum, steps=steps))

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            for p in group["params"]:
                m, state = group["momentum"], self.state[p]
                v = state["momentum_buffer"] = m * state.get("momentum_buffer", torch.zeros_like(p)) + p.grad
                p *= p.shape[0] ** 0.5 / p.norm()
                polynomial = (3.4445, -4.7750, 2.0315)
                p -= group["lr"] * _muon._zeropower_via_newtonschulz(p.grad + m * v, polynomial, group["steps"], 1e-7)


def matrix_of(flat, name):
    return torch.from_numpy(flat[AT[name] : AT[name] + SIZES[name]].copy()).reshape(MATRICES[name])


def run(lr, muon, rest, own=None, buffer=1.0):
    """`muon` and `rest` make optimizers of groups; `buffer` is the factor of our velocity."""
    start, grads = problem()
    params = {
        name: torch.nn.Parameter(
            matrix_of(start, name).T.contiguous() if name in MATRICES else torch.from_numpy(start[AT[name] : AT[name] + size].copy())
        )
        for name, size in SIZES.items()
    }
    groups = lambda names: [{"params": [params[name]], **(own or {}).get(name, {})} for name in names]
    others = [name for name in SIZES if name not in MATRICES]
    optimizers = [muon(groups(MATRICES)), rest(groups(others))]
    for optimizer in optimizers:
        for group in optimizer.param_groups:
            group["base"] = group["lr"]
    history = []
    flat = lambda name, value: numbers(value.T if name in MATRICES else value)
    for step in range(STEPS):
        for name, p in params.items():
            if name in MATRICES:
                p.grad = matrix_of(grads[step], name).T.contiguous()
            else:
                p.grad = torch.from_numpy(grads[step, AT[name] : AT[name] + SIZES[name]].copy())
        for optimizer in optimizers:
            for group in optimizer.param_groups:
                group["lr"] = group["base"] * FACTORS[step]
            optimizer.step()
        for name, p in params.items():
            history += flat(name, p.detach())
    # Of each parameter the state of its own rule; 0 where it has less.
    arenas = []
    for k in range(2):
        for name, p in params.items():
            state = optimizers[name not in MATRICES].state[p]
            kept = [state[key] for key in ("momentum_buffer", "exp_avg", "exp_avg_sq") if key in state]
            factor = buffer if name in MATRICES else 1.0
            arenas.append((k, flat(name, kept[k] * factor) if k < len(kept) else [0.0] * SIZES[name]))
    is_adam = "exp_avg" in optimizers[1].state[params["dense/bias"]]
    state = [x for k, values in arenas for x in values if k == 0 or is_adam] + ([float(STEPS)] if is_adam else [])
    return {"lr": lr, "params": history, "state": state}


def cases():
    muon = lambda groups: torch.optim.Muon(groups, lr=0.02, weight_decay=0.0)
    adam = lambda groups: torch.optim.Adam(groups, lr=0.02 * 0.015, betas=(0.9, 0.95), eps=1e-10)
    yield {"optimizer": "muon", "groups": [], **run(0.02, muon, adam)}
    muon = lambda groups: torch.optim.Muon(
        groups, lr=0.01, weight_decay=0.1, momentum=0.8, nesterov=False, ns_steps=3, adjust_lr_fn="match_rms_adamw"
    )
    adamw = lambda groups: torch.optim.AdamW(groups, lr=0.01, weight_decay=0.05)
    yield {
        "optimizer": "muon:momentum=0.8,nesterov=false,steps=3,adjust=match-rms-adamw,weight-decay=0.1"
        "+adamw:style=pytorch,weight-decay=0.05",
        "groups": ["tall/kernel:lr-multiplier=0.5,weight-decay=0.3", "dense/bias:lr-multiplier=2,weight-decay=0"],
        **run(
            0.01,
            muon,
            adamw,
            {"tall/kernel": {"lr": 0.005, "weight_decay": 0.3}, "dense/bias": {"lr": 0.02, "weight_decay": 0.0}},
        ),
    }
    muon = lambda groups: torch.optim.Muon(groups, lr=0.05, weight_decay=0.0, momentum=0.0, adjust_lr_fn="spectral_unclamped")
    sgd = lambda groups: torch.optim.SGD(groups, lr=0.01)
    yield {
        "optimizer": "muon:momentum=0,adjust=spectral-unclamped+sgd:lr-multiplier=0.2",
        "groups": [],
        **run(0.05, muon, sgd),
        "state": [],
    }
    airbench = lambda groups: Airbench(groups, lr=0.24, momentum=0.6, steps=3)
    sgd = lambda groups: torch.optim.SGD(groups, lr=0.06, momentum=0.85, nesterov=True, weight_decay=0.01)
    yield {
        "optimizer": "muon:momentum=0.6,steps=3,adjust=none,normalize=true+sgd:momentum=0.85,nesterov=true,velocity=pytorch,l2=0.01,"
        "lr-multiplier=0.25",
        "groups": [],
        **run(0.24, airbench, sgd, buffer=0.4),
    }


start, grads = problem()
golden = {
    "steps_per_epoch": STEPS_PER_EPOCH,
    "epochs": EPOCHS,
    "schedule": "poly",
    "sizes": list(SIZES.items()),
    "matrices": list(MATRICES.items()),
    "initial": numbers(start),
    "grads": numbers(grads),
    "cases": list(cases()),
}
(HERE / "optim_muon.json").write_text(json.dumps(golden, separators=(",", ":")) + "\n")
