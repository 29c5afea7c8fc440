"""Makes optim_clip.json: ten steps of optimizers that clip gradients of three parameters, from Keras 3 and PyTorch.

pip install torch keras numpy; KERAS_BACKEND=torch python tests/golden/optim_clip.py
Made with keras 3.15.1, torch 2.15.0 and numpy 2.4.6. All of it in f32, as users run it.

`optimizer` is what crate optim reads. `params` are all parameters after each step, one step after the other.
"""

import json
import os
import pathlib

os.environ.setdefault("KERAS_BACKEND", "torch")
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "")

import keras
import numpy as np
import torch

HERE = pathlib.Path(__file__).parent
STEPS, SIZES, LR = 10, [5, 1, 12], 0.01


def problem():
    """Parameters, and gradients of which some are within the limits, in some steps all."""
    rng = np.random.default_rng(11)
    params = [rng.normal(size=n).astype("float32") for n in SIZES]
    scales = [0.1, 1.0, 3.0, 0.01, 10.0, 0.3, 1.0, 0.0, 2.0, 0.5]
    grads = [[(rng.normal(size=n) * scale).astype("float32") for n in SIZES] for scale in scales]
    return params, grads


PARAMS, GRADS = problem()


def numbers(arrays):
    """Exact: nine digits tell any two f32 apart."""
    return [float(f"{x:.9g}") for array in arrays for x in np.asarray(array, dtype="float64").ravel()]


def run_keras(optimizer):
    variables = [keras.Variable(p) for p in PARAMS]
    history = []
    for grads in GRADS:
        optimizer.apply([keras.ops.convert_to_tensor(g) for g in grads], variables)
        history += numbers(keras.ops.convert_to_numpy(v) for v in variables)
    return history


def run_torch(make, clip):
    parameters = [torch.nn.Parameter(torch.from_numpy(p.copy())) for p in PARAMS]
    optimizer = make(parameters)
    history = []
    for grads in GRADS:
        for parameter, grad in zip(parameters, grads):
            parameter.grad = torch.from_numpy(grad.copy())
        clip(parameters)
        optimizer.step()
        history += numbers(p.detach().numpy() for p in parameters)
    return history


def cases():
    def case(source, optimizer, params):
        return {"source": source, "optimizer": optimizer, "params": params}

    for ours, theirs, limit in [("clipnorm", "clipnorm", 1.5), ("clipvalue", "clipvalue", 0.75), ("global-clipnorm", "global_clipnorm", 2.5)]:
        clip = {theirs: limit}
        option = f"{ours}={limit}"
        yield case("keras 3", f"sgd:momentum=0.9,{option}", run_keras(keras.optimizers.SGD(LR, momentum=0.9, **clip)))
        yield case("keras 3", f"sgd:weight-decay=0.05,{option}", run_keras(keras.optimizers.SGD(LR, weight_decay=0.05, **clip)))
        yield case("keras 3", f"rmsprop:style=keras3,{option}", run_keras(keras.optimizers.RMSprop(LR, **clip)))
        yield case("keras 3", f"adam:{option}", run_keras(keras.optimizers.Adam(LR, **clip)))
    by_value = lambda parameters: torch.nn.utils.clip_grad_value_(parameters, 0.75)
    by_norm = lambda parameters: torch.nn.utils.clip_grad_norm_(parameters, 2.5)
    for option, clip in [("clipvalue=0.75", by_value), ("global-clipnorm=2.5", by_norm)]:
        make = lambda p: torch.optim.SGD(p, LR, momentum=0.9, weight_decay=0.05)
        yield case("pytorch", f"sgd:velocity=pytorch,momentum=0.9,l2=0.05,{option}", run_torch(make, clip))
        make = lambda p: torch.optim.AdamW(p, LR, weight_decay=0.05)
        yield case("pytorch", f"adam:style=pytorch,weight-decay=0.05,{option}", run_torch(make, clip))


golden = {
    "sizes": SIZES,
    "lr": LR,
    "initial": numbers(PARAMS),
    "grads": numbers(g for grads in GRADS for g in grads),
    "cases": list(cases()),
}
(HERE / "optim_clip.json").write_text(json.dumps(golden, indent=1).replace("\n   ", " ") + "\n")
