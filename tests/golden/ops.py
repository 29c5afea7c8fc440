"""Golden values of single ops from PyTorch and Keras: writes ops.safetensors next to this file.

Run with Python packages torch, keras, numpy and safetensors:

    KERAS_BACKEND=torch python ops.py

Everything is computed in float64. Inputs and options are numbers that float32 holds exactly, so that an f64
implementation must agree to the last few digits. Images are stored as (n, h, w, c).
"""

import pathlib

import keras
import numpy as np
import torch
import torch.nn.functional as F
from safetensors.numpy import save_file

keras.backend.set_floatx("float64")
rng = np.random.default_rng(20)
golden = {}


def draw(*shape, digits=7):
    """Random numbers with a few binary digits behind the point; with 1, many are equal."""
    return np.round(rng.standard_normal(shape) * 2**digits) / 2**digits


def tensor(array, grad=True):
    return torch.tensor(array, dtype=torch.float64, requires_grad=grad)


def nchw(array):
    return tensor(np.transpose(array, (0, 3, 1, 2)))


def nhwc(t):
    return np.ascontiguousarray(np.transpose(t.detach().numpy(), (0, 2, 3, 1)))


def save(name, value):
    golden[name] = np.ascontiguousarray(value.detach().numpy() if torch.is_tensor(value) else value)


def batch_norm():
    """Two training steps with ReLU, the running statistics after them, and inference with these."""
    layer = torch.nn.BatchNorm2d(5, eps=2**-10, momentum=0.125, dtype=torch.float64)
    with torch.no_grad():
        layer.weight.copy_(tensor(draw(5)))
        layer.bias.copy_(tensor(draw(5)))
    save("bn.gamma", layer.weight.clone())
    save("bn.beta", layer.bias.clone())
    for step in range(2):
        x, dy = draw(4, 4, 2, 5) + 3.0 * step, draw(4, 4, 2, 5)
        save(f"bn.{step}.x", x)
        save(f"bn.{step}.dy", dy)
        layer.zero_grad()
        x = nchw(x)
        y = F.relu(layer(x))
        y.backward(nchw(dy).detach())
        save(f"bn.{step}.y", nhwc(y))
        save(f"bn.{step}.dx", nhwc(x.grad))
        save(f"bn.{step}.dgamma", layer.weight.grad)
        save(f"bn.{step}.dbeta", layer.bias.grad)
    save("bn.running_mean", layer.running_mean)
    save("bn.running_var", layer.running_var)
    layer.eval()
    save("bn.infer", nhwc(F.relu(layer(nchw(golden["bn.0.x"])))))


def cross_entropy():
    logits, labels = draw(6, 10), np.array([0, 3, 9, 3, 5, 1], dtype=np.uint32)
    save("xent.logits", logits)
    save("xent.labels", labels)
    for name, smoothing in [("hard", 0.0), ("smooth", 0.125)]:
        x = tensor(logits)
        loss = F.cross_entropy(x, torch.tensor(labels.astype(np.int64)), label_smoothing=smoothing, reduction="sum")
        (loss / 8).backward()
        save(f"xent.{name}.loss", loss.reshape(1))
        save(f"xent.{name}.dlogits", x.grad)
    save("xent.probabilities", torch.softmax(tensor(logits), 1))


def weighted_cross_entropy():
    """The loss of Keras' fit with class_weight: a factor for each sample, and the batch's own size below."""
    x, labels = tensor(golden["xent.logits"]), golden["xent.labels"].astype(np.int64)
    weights = np.linspace(0.0, 2.25, 10)
    y = torch.eye(10, dtype=torch.float64)[labels]
    smoothed = y * (1 - 0.125) + 0.125 / 10
    losses = keras.ops.categorical_crossentropy(smoothed, x, from_logits=True) * torch.tensor(weights[labels])
    model = keras.Sequential([keras.Input((10,)), keras.layers.Activation("linear")])
    loss = keras.losses.CategoricalCrossentropy(from_logits=True, label_smoothing=0.125)
    model.compile(optimizer=keras.optimizers.SGD(0.0), loss=loss)
    told = model.evaluate(golden["xent.logits"], y.numpy(), sample_weight=weights[labels], verbose=0)
    fitted = model.train_on_batch(golden["xent.logits"], y.numpy(), class_weight=dict(enumerate(weights)))
    assert abs(losses.mean() - told) < 1e-5 and abs(losses.mean() - fitted) < 1e-5
    (losses.sum() / 8).backward()
    save("xent.weights", weights)
    save("xent.weighted.loss", losses.sum().reshape(1))
    save("xent.weighted.dlogits", x.grad)


def binary_cross_entropy():
    """One output for two classes: Keras' binary cross-entropy and accuracy, of a sigmoid's logits.

    From probabilities Keras clips at 1e-7, which changes no loss of these logits but the last two by more than 1e-6.
    """
    logits = np.array([[-3.0], [-0.5], [0.0], [0.25], [1.5], [7.0], [-18.0], [30.0]])
    labels = np.array([0, 1, 1, 1, 0, 1, 1, 0], dtype=np.uint32)
    save("bce.logits", logits)
    save("bce.labels", labels)
    for name, smoothing in [("hard", 0.0), ("smooth", 0.125)]:
        x = tensor(logits)
        of = {"label_smoothing": smoothing, "reduction": "sum"}
        y = torch.tensor(labels[:, None].astype(np.float64))
        # The class rounds its sum to float32; so its function is asked, with the smoothed labels of the class.
        loss = keras.ops.binary_crossentropy(y * (1 - smoothing) + smoothing / 2, x, from_logits=True).sum()
        assert abs(loss - keras.losses.BinaryCrossentropy(from_logits=True, **of)(y, x)) < 1e-5
        clipped = keras.losses.BinaryCrossentropy(**of)
        assert abs(clipped(y[:6], torch.sigmoid(x[:6])) - keras.losses.BinaryCrossentropy(True, **of)(y[:6], x[:6])) < 1e-6
        (loss / 8).backward()
        save(f"bce.{name}.loss", loss.reshape(1))
        save(f"bce.{name}.dlogits", x.grad)
    right = keras.metrics.binary_accuracy(labels[:, None], torch.sigmoid(tensor(logits)))
    save("bce.correct", right.sum().reshape(1))
    save("bce.probabilities", torch.sigmoid(tensor(logits)))


def multi_label():
    """Multi-hot labels: Keras' binary cross-entropy and accuracy of a sigmoid for each class, which is PyTorch's loss too."""
    own = np.random.default_rng(40)
    logits = np.round(own.standard_normal((6, 40)) * 2**9) / 2**7
    labels = own.integers(0, 2, (6, 40))
    labels[2] = 0
    save("multi_label.logits", logits)
    save("multi_label.labels", labels.astype(np.uint32))
    for name, smoothing in [("hard", 0.0), ("smooth", 0.125)]:
        x, y = tensor(logits), tensor(labels, grad=False)
        smoothed = y * (1 - smoothing) + smoothing / 2
        losses = keras.ops.binary_crossentropy(smoothed, x, from_logits=True).mean(-1)
        loss = keras.losses.BinaryCrossentropy(from_logits=True, label_smoothing=smoothing)
        assert abs(losses.mean() - loss(y, x)) < 1e-6
        assert abs(losses.mean() - F.binary_cross_entropy_with_logits(x, smoothed)) < 1e-12
        (losses.sum() / 8).backward()
        save(f"multi_label.{name}.loss", losses.sum().reshape(1))
        save(f"multi_label.{name}.dlogits", x.grad)
    right = keras.metrics.binary_accuracy(labels, torch.sigmoid(tensor(logits)))
    save("multi_label.correct", np.array([float(right.sum()) / 40]))


def pooling():
    """Windows that overlap, with padding, over numbers of which many are equal."""
    for name, side, kernel, stride, pad in [("3s2", 9, 3, 2, 0), ("3s2p1", 8, 3, 2, 1), ("2s2", 7, 2, 2, 0)]:
        image = draw(2, side, side, 3, digits=1)
        x = nchw(image)
        y = F.max_pool2d(x, kernel, stride, pad)
        dy = draw(*nhwc(y).shape)
        y.backward(nchw(dy).detach())
        z = nchw(image)
        mean = F.avg_pool2d(z, kernel, stride, pad, count_include_pad=False)
        mean.backward(nchw(dy).detach())
        save(f"pool.{name}.x", image)
        save(f"pool.{name}.dy", dy)
        save(f"pool.{name}.max.y", nhwc(y))
        save(f"pool.{name}.max.dx", nhwc(x.grad))
        save(f"pool.{name}.average.y", nhwc(mean))
        save(f"pool.{name}.average.dx", nhwc(z.grad))


def rate(step):
    """A learning rate that changes: constant ones hide where the velocity takes it in."""
    return 0.125 if step < 4 else 0.03125


def optimizers():
    """Ten steps of each convention with the same gradients."""
    params, grads = draw(7), draw(10, 7)
    save("step.params", params)
    save("step.grads", grads)
    of_torch = {
        "torch.sgd": (torch.optim.SGD, {}),
        "torch.momentum": (torch.optim.SGD, {"momentum": 0.875, "weight_decay": 2**-5}),
        "torch.nesterov": (torch.optim.SGD, {"momentum": 0.875, "nesterov": True}),
        "torch.rmsprop": (torch.optim.RMSprop, {"alpha": 0.875, "eps": 2**-20, "weight_decay": 2**-5}),
    }
    for name, (optimizer, options) in of_torch.items():
        p = tensor(params)
        optimizer = optimizer([p], lr=1.0, **options)
        for step, g in enumerate(grads):
            optimizer.param_groups[0]["lr"] = rate(step)
            p.grad = tensor(g, grad=False)
            optimizer.step()
        save(f"step.{name}", p)
    of_keras = {
        "keras.momentum": (keras.optimizers.SGD, {"momentum": 0.875, "weight_decay": 2**-5}),
        "keras.nesterov": (keras.optimizers.SGD, {"momentum": 0.875, "nesterov": True}),
        "keras.rmsprop": (keras.optimizers.RMSprop, {"rho": 0.875, "epsilon": 2**-20, "weight_decay": 2**-5}),
    }
    for name, (optimizer, options) in of_keras.items():
        p = keras.Variable(params, dtype="float64")
        optimizer = optimizer(learning_rate=1.0, **options)
        optimizer.build([p])
        for step, g in enumerate(grads):
            optimizer.learning_rate = rate(step)
            optimizer.apply([tensor(g, grad=False)], [p])
        save(f"step.{name}", p.value)


def activation(name, function):
    """By itself, and behind a batch normalization with a fixed scale of 1."""
    x, dy = draw(4, 4, 2, 5) * 2.0, draw(4, 4, 2, 5)
    save(f"{name}.x", x)
    save(f"{name}.dy", dy)
    t = nchw(x)
    y = function(t)
    y.backward(nchw(dy).detach())
    save(f"{name}.y", nhwc(y))
    save(f"{name}.dx", nhwc(t.grad))
    t, beta = nchw(x), tensor(draw(5))
    y = function(F.batch_norm(t, None, None, torch.ones(5, dtype=torch.float64), beta, True, eps=2**-10))
    y.backward(nchw(dy).detach())
    save(f"{name}.bn.beta", beta)
    save(f"{name}.bn.y", nhwc(y))
    save(f"{name}.bn.dx", nhwc(t.grad))
    save(f"{name}.bn.dbeta", beta.grad)


def group_norm():
    """Three groups of two channels, then ReLU."""
    x, dy = draw(3, 4, 3, 6) * 2.0 + 1.0, draw(3, 4, 3, 6)
    gamma, beta = tensor(draw(6) + 1.0), tensor(draw(6))
    t = nchw(x)
    y = F.relu(F.group_norm(t, 3, gamma, beta, eps=2**-10))
    y.backward(nchw(dy).detach())
    save("gn.x", x)
    save("gn.dy", dy)
    save("gn.gamma", gamma)
    save("gn.beta", beta)
    save("gn.y", nhwc(y))
    save("gn.dx", nhwc(t.grad))
    save("gn.dgamma", gamma.grad)
    save("gn.dbeta", beta.grad)


batch_norm()
cross_entropy()
binary_cross_entropy()
multi_label()
pooling()
optimizers()
activation("gelu", F.gelu)
activation("silu", F.silu)
group_norm()
activation("elu", F.elu)
activation("sigmoid", torch.sigmoid)
activation("tanh", torch.tanh)
weighted_cross_entropy()
save_file(golden, pathlib.Path(__file__).with_name("ops.safetensors"))
