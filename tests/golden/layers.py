"""Makes layers.safetensors: small networks of Keras' layers with Keras' own defaults and names.

pip install keras torch numpy safetensors; KERAS_BACKEND=torch python tests/golden/layers.py
Made with keras 3.15.1, torch 2.15.0.

In f64, except that Keras on PyTorch rounds its dense layers and its loss to f32 all the same. Images, labels and
parameters follow `pattern` (see networks.py). For every network the file holds

    NAME/shape/LAYER       the layer's output for one sample, under Keras' name for the layer
    NAME/logits            in training
    NAME/inferred          logits as in inference, with the first values of the running averages
    NAME/loss              the mean
    NAME/input             the gradient of the images
    NAME/LAYER/PARAMETER   the gradient of a parameter, under Keras' name for it
"""

import pathlib

import keras
import numpy as np
import torch
from keras import layers as k
from networks import pattern
from safetensors.numpy import save_file

keras.config.set_floatx("float64")
keras.config.set_dtype_policy("float64")
BATCH, CLASSES = 4, 4


def strided():
    """Where Keras' "same" differs from PyTorch's padding: strides, even kernels."""
    x = inputs = keras.Input((9, 8, 3))
    x = k.Conv2D(6, 3, strides=2, padding="same", activation="relu")(x)
    x = k.Conv2D(5, 2, padding="same", use_bias=False)(x)
    x = k.Conv2D(4, 1, strides=3)(x)
    return keras.Model(inputs, k.Dense(CLASSES)(k.Flatten()(x)))


def pooled():
    x = inputs = keras.Input((10, 7, 3))
    x = k.Conv2D(4, 1)(x)
    x = k.MaxPooling2D(3, strides=2, padding="same")(x)
    x = k.AveragePooling2D(2, strides=1, padding="same")(x)
    x = k.MaxPooling2D()(x)
    x = k.Flatten()(x)
    x = k.Dense(6, activation="relu")(x)
    return keras.Model(inputs, k.Dense(CLASSES)(x))


def joined():
    x = inputs = keras.Input((5, 5, 3))
    a = k.ReLU()(k.BatchNormalization()(k.Conv2D(4, 3, strides=2)(x)))
    b = k.AveragePooling2D(3, strides=2)(x)
    x = k.Concatenate()([a, b])
    return keras.Model(inputs, k.Dense(CLASSES)(k.Flatten()(x)))


def fill(model):
    """Kernels of He's variance, everything else between -1/4 and 3/4; all exact in f32."""
    for number, weight in enumerate(model.weights):
        shape, size = tuple(weight.shape), int(np.prod(weight.shape))
        if len(shape) > 1:
            scale = 2.0 ** np.round(np.log2(np.sqrt(6.0 / np.prod(shape[:-1]))))
            weight.assign(pattern(number + 2, size, scale).reshape(shape))
        elif "moving" not in weight.path:
            weight.assign(0.25 + pattern(number + 2, size, 0.5))


def record(build, smoothing, out):
    keras.utils.clear_session()
    keras.config.set_dtype_policy("float64")
    model, name = build(), build.__name__
    fill(model)
    shape = (BATCH, *model.input_shape[1:])
    x = torch.tensor(pattern(1, int(np.prod(shape)), 1.0).reshape(shape), requires_grad=True)
    labels = torch.nn.functional.one_hot(torch.arange(BATCH) % CLASSES, CLASSES).double()
    out[f"{name}/inferred"] = model(x, training=False).detach().numpy().copy()
    logits = model(x, training=True)
    loss = keras.losses.CategoricalCrossentropy(from_logits=True, label_smoothing=smoothing)(labels, logits)
    loss.backward()
    for layer in model.layers[1:]:
        out[f"{name}/shape/{layer.name}"] = np.array(layer.output.shape[1:], dtype=np.int64)
    out[f"{name}/logits"], out[f"{name}/loss"] = logits.detach().numpy(), loss.detach().numpy().reshape(1)
    out[f"{name}/input"] = x.grad.numpy()
    for weight in model.trainable_weights:
        out[f"{name}/{weight.path}"] = weight.value.grad.detach().numpy()
    print(name, loss.item(), [weight.path for weight in model.weights])


if __name__ == "__main__":
    tensors = {}
    record(strided, 0.0, tensors)
    record(pooled, 0.125, tensors)
    record(joined, 0.0, tensors)
    arrays = {name: np.ascontiguousarray(array) for name, array in tensors.items()}
    save_file(arrays, pathlib.Path(__file__).with_suffix(".safetensors"))
