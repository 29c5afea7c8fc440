"""Makes optim.json: ten optimizer steps, and learning rates, from Keras 3 and PyTorch.

pip install torch keras numpy; KERAS_BACKEND=torch python tests/golden/optim.py
Made with keras 3.15.1, torch 2.15.0 and numpy 2.4.6. All of it in f32, as users run it.

`optimizer` and `schedule` are what crate optim reads. `lr` is the base rate.
"""

import json
import math
import os
import pathlib

os.environ.setdefault("KERAS_BACKEND", "torch")
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "")

import keras
import numpy as np
import torch

HERE = pathlib.Path(__file__).parent
STEPS, STEPS_PER_EPOCH, EPOCHS = 10, 2, 5


def problem():
    """Parameters, and gradients of very different sizes: from 1e-5, where epsilon rules, to 10; one always 0."""
    rng = np.random.default_rng(7)
    params = rng.normal(size=7).astype("float32")
    sizes = np.array([1e-5, 1e-3, 1e-2, 0.3, 1, 10, 0])
    grads = (rng.normal(size=(STEPS, 7)) * sizes).astype("float32")
    return params, grads


PARAMS, GRADS = problem()


def numbers(array):
    """Exact: nine digits tell any two f32 apart."""
    return [float(f"{x:.9g}") for x in np.asarray(array, dtype="float64").ravel()]


def rates(factor, lr):
    """The rate of each step for a factor by (step, epoch)."""
    return [lr * factor(step, step // STEPS_PER_EPOCH) for step in range(STEPS)]


FACTORS = {
    "constant": lambda step, epoch: 1.0,
    "poly": lambda step, epoch: 1 - epoch / EPOCHS,
    "milestones:at=1/3": lambda step, epoch: 0.1 ** ((epoch >= 1) + (epoch >= 3)),
}


def run_keras(optimizer, lrs):
    variable = keras.Variable(PARAMS)
    history = []
    for grad, lr in zip(GRADS, lrs):
        optimizer.learning_rate = lr
        optimizer.apply([keras.ops.convert_to_tensor(grad)], [variable])
        history += numbers(keras.ops.convert_to_numpy(variable))
    arenas = [v for v in optimizer.variables if v.shape == variable.shape]
    state = [x for arena in arenas for x in numbers(keras.ops.convert_to_numpy(arena))]
    counted = isinstance(optimizer, (keras.optimizers.Adam, keras.optimizers.Nadam))
    return history, state + [float(optimizer.iterations)] if counted else state


def run_torch(make, lrs):
    parameter = torch.nn.Parameter(torch.from_numpy(PARAMS.copy()))
    optimizer = make([parameter])
    history = []
    for grad, lr in zip(GRADS, lrs):
        optimizer.param_groups[0]["lr"] = lr
        parameter.grad = torch.from_numpy(grad.copy())
        optimizer.step()
        history += numbers(parameter.detach().numpy())
    state = optimizer.state[parameter]
    arenas = ["exp_avg", "exp_avg_sq", "step"] if "exp_avg" in state else ["momentum_buffer", "square_avg"]
    arenas = [state[name] for name in arenas if state.get(name) is not None]
    return history, [x for arena in arenas for x in numbers(arena.numpy())]


def decoupled(decay):
    return f",weight-decay={decay}" if decay else ""


def coupled(decay):
    return f",l2={decay}" if decay else ""


def sgd(momentum, nesterov, velocity, decay):
    return f"sgd:momentum={momentum}{',nesterov' if nesterov else ''},velocity={velocity}{decay}"


def rmsprop(rho, epsilon, inside, decay):
    return f"rmsprop:rho={rho},epsilon={epsilon},epsilon-inside-root={str(inside).lower()}{decay}"


def adam(epsilon, hat, decay="", betas=(0.9, 0.999)):
    beta1, beta2 = betas
    return f"adam:beta1={beta1},beta2={beta2},epsilon={epsilon},epsilon-hat={str(hat).lower()}{decay}"


def nadam(style, options="", decay=""):
    return f"nadam:style={style}{options}{decay}"


def in_schedule(schedule):
    def case(source, optimizer, lr, result):
        params, state = result
        return {"source": source, "optimizer": optimizer, "schedule": schedule, "lr": lr, "params": params, "state": state}

    return case


def optimizer_cases():
    for schedule, factor in FACTORS.items():
        case = in_schedule(schedule)
        for momentum, nesterov in [(0.0, False), (0.9, False), (0.9, True)]:
            for decay in [0.0, 0.05]:
                lrs = rates(factor, 0.1)
                k = keras.optimizers.SGD(0.1, momentum=momentum, nesterov=nesterov, weight_decay=decay or None)
                config = sgd(momentum, nesterov, "keras", decoupled(decay))
                yield case("keras 3", config, 0.1, run_keras(k, lrs))
                make = lambda p: torch.optim.SGD(p, momentum=momentum, nesterov=nesterov, weight_decay=decay)
                config = sgd(momentum, nesterov, "pytorch", coupled(decay))
                yield case("pytorch", config, 0.1, run_torch(make, lrs))
        for decay in [0.0, 0.05]:
            lrs = rates(factor, 0.01)
            k = keras.optimizers.RMSprop(0.01, weight_decay=decay or None)
            config = rmsprop(0.9, 1e-7, True, decoupled(decay))
            yield case("keras 3", config, 0.01, run_keras(k, lrs))
            make = lambda p: torch.optim.RMSprop(p, weight_decay=decay)
            config = rmsprop(0.99, 1e-8, False, coupled(decay))
            yield case("pytorch", config, 0.01, run_torch(make, lrs))
        lrs = rates(factor, 0.01)
        yield case("keras 3", adam(1e-7, True), 0.01, run_keras(keras.optimizers.Adam(0.01), lrs))
        k = keras.optimizers.AdamW(0.01, weight_decay=0.05, beta_1=0.8, beta_2=0.95)
        yield case("keras 3", adam(1e-7, True, decoupled(0.05), (0.8, 0.95)), 0.01, run_keras(k, lrs))
        yield case("pytorch", adam(1e-8, False), 0.01, run_torch(torch.optim.Adam, lrs))
        make = lambda p: torch.optim.Adam(p, weight_decay=0.05)
        yield case("pytorch", adam(1e-8, False, coupled(0.05)), 0.01, run_torch(make, lrs))
        make = lambda p: torch.optim.AdamW(p, betas=(0.8, 0.95), weight_decay=0.05)
        yield case("pytorch", adam(1e-8, False, decoupled(0.05), (0.8, 0.95)), 0.01, run_torch(make, lrs))


def nadam_cases():
    K, T = keras.optimizers.Nadam, torch.optim.NAdam
    for schedule, factor in FACTORS.items():
        case, lrs = in_schedule(schedule), rates(factor, 0.01)
        yield case("keras 3", nadam("keras"), 0.01, run_keras(K(0.01), lrs))
        k = K(0.01, weight_decay=0.05, beta_1=0.8, beta_2=0.95)
        yield case("keras 3", nadam("keras", ",beta1=0.8,beta2=0.95", decoupled(0.05)), 0.01, run_keras(k, lrs))
        yield case("pytorch", nadam("pytorch"), 0.01, run_torch(T, lrs))
        make = lambda p: T(p, weight_decay=0.05, momentum_decay=0.3)
        yield case("pytorch", nadam("pytorch", ",momentum-decay=0.3", coupled(0.05)), 0.01, run_torch(make, lrs))
        make = lambda p: T(p, betas=(0.8, 0.95), weight_decay=0.05, decoupled_weight_decay=True)
        yield case("pytorch", nadam("pytorch", ",beta1=0.8,beta2=0.95", decoupled(0.05)), 0.01, run_torch(make, lrs))


def lion_cases():
    K = keras.optimizers.Lion
    for schedule, factor in FACTORS.items():
        case, lrs = in_schedule(schedule), rates(factor, 0.01)
        yield case("keras 3", "lion", 0.01, run_keras(K(0.01), lrs))
        k = K(0.01, beta_1=0.8, beta_2=0.95, weight_decay=0.05)
        yield case("keras 3", "lion:beta1=0.8,beta2=0.95,weight-decay=0.05", 0.01, run_keras(k, lrs))


def torch_rates(make, ticks):
    """The rates of a PyTorch scheduler, after 0 to ticks - 1 calls of step."""
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=0.1)
    scheduler = make(optimizer)
    seen = []
    for _ in range(ticks):
        seen.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        scheduler.step()
    return seen


def keras_rates(schedule, ticks):
    return [float(keras.ops.convert_to_numpy(schedule(step))) for step in range(ticks)]


def poly_decay(epoch):
    """The tutorial's schedule, through Keras' own callback below."""
    return 0.1 * (1 - (epoch / float(EPOCHS))) ** 2.5


def callback_rates():
    model = keras.Sequential([keras.layers.Input((1,)), keras.layers.Dense(1)])
    model.compile(keras.optimizers.SGD(0.1), "mse")
    callback = keras.callbacks.LearningRateScheduler(poly_decay)
    history = model.fit(np.zeros((4, 1)), np.zeros((4, 1)), batch_size=2, epochs=EPOCHS, verbose=0, callbacks=[callback])
    return [float(lr) for lr in history.history["learning_rate"]]


def schedule_cases():
    """`tick` says whether the rates are of successive steps or of successive epochs."""
    S, K, total = torch.optim.lr_scheduler, keras.optimizers.schedules, STEPS
    def chained(*makes):
        return lambda o: S.ChainedScheduler([make(o) for make in makes])
    warm = lambda n: lambda o: S.LinearLR(o, start_factor=0.25, total_iters=n)
    one_cycle = lambda steps, **options: lambda o: S.OneCycleLR(o, 0.1, total_steps=steps, cycle_momentum=False, **options)
    cosine = lambda o: S.CosineAnnealingLR(o, EPOCHS)
    torch_cases = [
        ("poly", "epoch", lambda o: S.PolynomialLR(o, EPOCHS)),
        ("poly:power=2.5", "epoch", lambda o: S.PolynomialLR(o, EPOCHS, power=2.5)),
        ("poly:per=step,epochs=3", "step", lambda o: S.PolynomialLR(o, 3 * STEPS_PER_EPOCH)),
        ("cosine:per=epoch", "epoch", cosine),
        ("cosine:alpha=0.05", "step", lambda o: S.CosineAnnealingLR(o, total, eta_min=0.005)),
        ("milestones:at=1/3,factor=0.5", "epoch", lambda o: S.MultiStepLR(o, [1, 3], gamma=0.5)),
        ("milestones:at=2/3", "epoch", lambda o: S.MultiStepLR(o, [2, 3])),
        ("step:every=2", "epoch", lambda o: S.StepLR(o, 2)),
        ("step:every=1,factor=0.7", "epoch", lambda o: S.StepLR(o, 1, gamma=0.7)),
        ("exponential:factor=0.7,staircase", "epoch", lambda o: S.ExponentialLR(o, 0.7)),
        ("cosine-restarts:first=2,t-mul=1,per=epoch", "epoch", lambda o: S.CosineAnnealingWarmRestarts(o, 2)),
        ("cosine-restarts:first=1,alpha=0.05", "step", lambda o: S.CosineAnnealingWarmRestarts(o, 2, T_mult=2, eta_min=0.005)),
        ("one-cycle", "step", one_cycle(total)),
        ("one-cycle:pct-start=0.25,div-factor=10,final-div-factor=100,anneal=linear", "step",
         one_cycle(total, pct_start=0.25, div_factor=10, final_div_factor=100, anneal_strategy="linear")),
        ("one-cycle:pct-start=0,epochs=7", "step", one_cycle(7 * STEPS_PER_EPOCH, pct_start=0.0)),
        ("constant+warmup:steps=7,start=0.25", "step", warm(7)),
        ("constant+warmup:epochs=3,start=0.25", "step", warm(3 * STEPS_PER_EPOCH)),
        ("cosine+warmup:epochs=2,start=0.25", "step", chained(warm(4), lambda o: S.CosineAnnealingLR(o, total))),
        ("poly:per=step+warmup:steps=3,start=0.25", "step", chained(warm(3), lambda o: S.PolynomialLR(o, total))),
    ]
    for text, tick, make in torch_cases:
        yield {"source": "pytorch", "schedule": text, "tick": tick, "lr": torch_rates(make, EPOCHS if tick == "epoch" else STEPS)}
    keras_cases = [
        ("poly:per=step", K.PolynomialDecay(0.1, total, end_learning_rate=0.0)),
        ("poly:power=2,alpha=0.02,per=step,epochs=4", K.PolynomialDecay(0.1, 8, end_learning_rate=0.002, power=2.0)),
        ("cosine", K.CosineDecay(0.1, total)),
        ("cosine:alpha=0.05,epochs=4", K.CosineDecay(0.1, 8, alpha=0.05)),
        ("constant+warmup:steps=6", lambda step: K.CosineDecay(0.0, 99, warmup_target=0.1, warmup_steps=6)(min(step, 6))),
        ("exponential:factor=0.5", K.ExponentialDecay(0.1, STEPS_PER_EPOCH, 0.5)),
        ("exponential:factor=0.96,steps=3", K.ExponentialDecay(0.1, 3, 0.96)),
        ("exponential:factor=0.96,steps=3,staircase", K.ExponentialDecay(0.1, 3, 0.96, staircase=True)),
        ("cosine-restarts:first=1", K.CosineDecayRestarts(0.1, STEPS_PER_EPOCH)),
        ("cosine-restarts:first=1,t-mul=1.5,m-mul=0.8,alpha=0.1", K.CosineDecayRestarts(0.1, 2, t_mul=1.5, m_mul=0.8, alpha=0.1)),
        ("cosine-restarts:first=2,t-mul=1,m-mul=0.5", K.CosineDecayRestarts(0.1, 4, t_mul=1.0, m_mul=0.5)),
        ("time:decay=0.3", K.InverseTimeDecay(0.1, 1, 0.3)),
        ("time:decay=1e-6", K.InverseTimeDecay(0.1, 1000, 1e-3)),
    ]
    for text, schedule in keras_cases:
        yield {"source": "keras 3", "schedule": text, "tick": "step", "lr": keras_rates(schedule, STEPS)}
    yield {"source": "keras 3", "schedule": "poly:power=2.5", "tick": "epoch", "lr": callback_rates()}


def main():
    golden = {
        "steps_per_epoch": STEPS_PER_EPOCH, "epochs": EPOCHS, "base": 0.1,
        "initial": numbers(PARAMS), "grads": numbers(GRADS),
        "optimizers": list(optimizer_cases()), "schedules": list(schedule_cases()),
        "nadam": list(nadam_cases()), "lion": list(lion_cases()),
    }
    (HERE / "optim.json").write_text(json.dumps(golden, separators=(",", ":")) + "\n")


if __name__ == "__main__":
    main()
