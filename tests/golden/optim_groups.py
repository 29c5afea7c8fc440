"""Makes optim_groups.json: ten steps of PyTorch's optimizers with parameter groups, under a triangular schedule.

pip install torch numpy; python tests/golden/optim_groups.py
Made with torch 2.15.0 and numpy 2.4.6. All of it in f32, as users run it.

`optimizer`, `groups` and `schedule` are what crate optim reads. The parameters lie one after the other.
"""

import json
import pathlib

import numpy as np
import torch

HERE = pathlib.Path(__file__).parent
STEPS, STEPS_PER_EPOCH, EPOCHS = 10, 5, 2
SIZES = {"conv2d/kernel": 5, "conv2d/bias": 2, "norm/beta": 3, "dense/kernel": 4, "dense/bias": 2}
LENGTH = sum(SIZES.values())
START, PEAK, END = 0.2, 0.3, 0.07


def numbers(array):
    """Exact: nine digits tell any two f32 apart."""
    return [float(f"{x:.9g}") for x in np.asarray(array, dtype="float64").ravel()]


def problem():
    rng = np.random.default_rng(11)
    return rng.normal(size=LENGTH).astype("float32"), (0.1 * rng.normal(size=(STEPS, LENGTH))).astype("float32")


def factors():
    """The corners of the triangle, joined by numpy."""
    corners = [0, int(PEAK * STEPS), STEPS]
    return [float(x) for x in np.interp(range(STEPS), corners, [START, 1.0, END])]


def run(make, lr, own, frozen):
    """`own` are the options of groups by name; `frozen` says after which epoch a parameter is trained no more."""
    start, grads = problem()
    at = np.cumsum([0, *SIZES.values()])
    params = {name: torch.nn.Parameter(torch.from_numpy(start[a:b].copy())) for name, a, b in zip(SIZES, at, at[1:])}
    optimizer = make([{"params": [p], **own.get(name, {})} for name, p in params.items()])
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, factors().__getitem__)
    history = []
    for step in range(STEPS):
        for (name, p), a, b in zip(params.items(), at, at[1:]):
            trained = step // STEPS_PER_EPOCH < frozen.get(name, EPOCHS)
            p.grad = torch.from_numpy(grads[step, a:b].copy()) if trained else None
        optimizer.step()
        history += numbers(torch.cat([p.detach() for p in params.values()]))
        if step + 1 < STEPS:
            schedule.step()
    state = [optimizer.state[p] for p in params.values()]
    state = torch.cat([s.get("momentum_buffer", s.get("square_avg")) for s in state])
    return {"lr": lr, "params": history, "state": numbers(state)}


def cases():
    sgd = lambda groups: torch.optim.SGD(groups, lr=0.3, momentum=0.85, nesterov=True, weight_decay=0.02)
    own = {"norm/beta": {"lr": 0.3 * 64, "weight_decay": 0.02 / 64}}
    yield {
        "optimizer": "sgd:momentum=0.85,nesterov,velocity=pytorch,l2=0.02",
        "groups": ["norm*:lr-multiplier=64,l2=3.125e-4", "conv2d/bias:epochs=1"],
        **run(sgd, 0.3, own, {"conv2d/bias": 1}),
    }
    # The first that matches; a rate of 0 is not the same as being trained no more; no momentum of Nesterov's.
    sgd = lambda groups: torch.optim.SGD(groups, lr=0.3, momentum=0.5, weight_decay=0.1)
    own = {"dense/kernel": {"lr": 0.0}, **{name: {"weight_decay": 0.0} for name in SIZES if name.endswith("bias")}}
    yield {
        "optimizer": "sgd:momentum=0.5,velocity=pytorch,l2=0.1",
        "groups": ["dense/kernel:lr-multiplier=0", "*/kernel", "*/bias:l2=0", "*ia*:lr-multiplier=9"],
        **run(sgd, 0.3, own, {}),
    }
    rmsprop = lambda groups: torch.optim.RMSprop(groups, lr=0.01, weight_decay=0.1)
    own = {"norm/beta": {"lr": 0.005}, "dense/bias": {"weight_decay": 0.5}}
    yield {
        "optimizer": "rmsprop:style=pytorch,l2=0.1",
        "groups": ["*/beta:lr-multiplier=0.5", "dense/b*:l2=0.5", "dense/kernel:epochs=1"],
        **run(rmsprop, 0.01, own, {"dense/kernel": 1}),
    }


initial, grads = problem()
golden = {
    "sizes": [[name, size] for name, size in SIZES.items()],
    "initial": numbers(initial),
    "grads": numbers(grads),
    "steps_per_epoch": STEPS_PER_EPOCH,
    "epochs": EPOCHS,
    "schedule": f"triangle:start={START},peak={PEAK},end={END}",
    "factors": factors(),
    "cases": list(cases()),
}
(HERE / "optim_groups.json").write_text(json.dumps(golden, separators=(",", ":")) + "\n")
