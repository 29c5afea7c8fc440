"""Makes keras/: small files of weights as Keras writes them, and the logits that Keras computes with them.

pip install keras torch numpy h5py; KERAS_BACKEND=torch python tests/golden/keras_weights.py
Made with keras 3.15.1, torch 2.15.0, h5py 3.16.0, numpy 2.4.6.

    tiny.weights.h5   model.save_weights
    tiny.keras        model.save
    tiny.h5           model.save, in the older layout
    named.weights.h5  model.save_weights of two equal convolutions with names of their own, as attributes of a model: nothing
                      says which comes first
    parts.keras       normalizations without a gamma, a beta, or both
    parts.weights.h5  the same as weights alone
    small_cnn.keras   the network of that name
    adapted.keras     a normalization that was adapted to data, augmentation, a model of two inputs, and functions; compressed
    logits.json       {"tiny": ..., "small_cnn": ..., "adapted": ...}: of `pictures`

With a folder as its argument it writes the full-size networks there instead, in every format, with their logits: a test
runs it so. The weights are random numbers, in the running averages too.
"""

import json
import os
import pathlib
import sys
import zipfile

os.environ.setdefault("KERAS_BACKEND", "torch")
import keras
import numpy as np
from keras import layers as L

CLASSES = 10


def pictures(count, size):
    """Bytes from the places of values: as the test makes them."""
    k = np.arange(count * size * size * 3)
    return ((k * 37 + k // 7) % 256).reshape(count, size, size, 3).astype("float32")


def conv_module(x, filters, kernel, strides=1, padding="same"):
    x = L.Conv2D(filters, kernel, strides=strides, padding=padding)(x)
    return L.Activation("relu")(L.BatchNormalization()(x))


def inception(x, ones, threes):
    a = conv_module(x, ones, 1)
    return L.Concatenate()([a, conv_module(x, threes, 3)])


def downsample(x, filters):
    a = conv_module(x, filters, 3, 2, "valid")
    return L.Concatenate()([a, L.MaxPooling2D(3, strides=2)(x)])


def minigooglenet():
    inputs = keras.Input((32, 32, 3))
    x = conv_module(inputs, 96, 3)
    x = downsample(inception(inception(x, 32, 32), 32, 48), 80)
    for ones, threes in [(112, 48), (96, 64), (80, 80), (48, 96)]:
        x = inception(x, ones, threes)
    x = downsample(x, 96)
    x = inception(inception(x, 176, 160), 176, 160)
    x = L.Flatten()(L.Dropout(0.5)(L.AveragePooling2D(7)(x)))
    return keras.Model(inputs, L.Dense(CLASSES)(x))


def keras_cnn():
    model = keras.Sequential([keras.Input((32, 32, 3))])
    for filters in (32, 64):
        model.add(L.Conv2D(filters, 3, padding="same", activation="relu"))
        model.add(L.Conv2D(filters, 3, activation="relu"))
        model.add(L.MaxPooling2D(2))
        model.add(L.Dropout(0.25))
    for layer in [L.Flatten(), L.Dense(512, activation="relu"), L.Dropout(0.5), L.Dense(CLASSES)]:
        model.add(layer)
    return model


def conv_norm(x, filters, kernel, strides):
    x = L.ZeroPadding2D(kernel // 2)(x)
    x = L.Conv2D(filters, kernel, strides=strides, use_bias=False)(x)
    return L.BatchNormalization(momentum=0.9, epsilon=1e-5)(x)


def basic_block(x, filters, strides):
    y = L.Activation("relu")(conv_norm(x, filters, 3, strides))
    y = conv_norm(y, filters, 3, 1)
    # The other way round than in towers: the order of layers differs.
    shortcut = x if strides == 1 and x.shape[-1] == filters else conv_norm(x, filters, 1, strides)
    return L.Activation("relu")(L.Add()([y, shortcut]))


def resnet18():
    inputs = keras.Input((32, 32, 3))
    x = L.Activation("relu")(conv_norm(inputs, 64, 3, 1))
    for filters, strides in [(64, 1), (128, 2), (256, 2), (512, 2)]:
        x = basic_block(basic_block(x, filters, strides), filters, 1)
    return keras.Model(inputs, L.Dense(CLASSES)(L.GlobalAveragePooling2D()(x)))


def small_cnn():
    inputs = x = keras.Input((32, 32, 3))
    for filters in (16, 32, 64):
        x = L.Conv2D(filters, 3, padding="same")(x)
        x = L.Activation("relu")(L.BatchNormalization(momentum=0.9)(x))
        x = L.MaxPooling2D(2)(x)
    x = L.Dropout(0.25)(L.Flatten()(x))
    return keras.Model(inputs, L.Dense(CLASSES)(x))


def tiny():
    """An inception module and a downsampling one, for pictures of 8 x 8; the branches made in another order than in towers."""
    inputs = keras.Input((8, 8, 3))
    x = conv_module(inputs, 4, 3)
    b = conv_module(x, 5, 3)
    x = L.Concatenate()([conv_module(x, 4, 1), b])
    x = downsample(x, 6)
    x = L.Dropout(0.5)(L.Flatten()(x))
    return keras.Model(inputs, L.Dense(3)(x))


def parts():
    return keras.Sequential([
        keras.Input((8, 8, 3)),
        L.Conv2D(4, 1, use_bias=False),
        L.BatchNormalization(scale=False),
        L.Conv2D(5, 1),
        L.BatchNormalization(center=False),
        L.GroupNormalization(5, scale=False),
        L.GlobalAveragePooling2D(),
        L.Dense(3),
    ])


def adapted():
    normal = L.Normalization()
    normal.adapt(np.random.default_rng(7).uniform(0.2, [0.5, 0.8, 1.0], (10, 8, 8, 3)))
    inputs = keras.Input((8, 8, 3))
    x = keras.Sequential([L.RandomFlip("horizontal"), L.RandomRotation(0.1)])(normal(inputs))
    a, b = keras.Input((6, 6, 4)), keras.Input((6, 6, 4))
    two = keras.Model([a, b], L.Conv2D(4, 3)(L.Concatenate()([a, keras.ops.relu(b)])))
    x = two([L.Conv2D(4, 3)(x), L.Conv2D(4, 3, activation="relu")(L.Identity()(x))])
    x = keras.ops.gelu(x / 2.0 + 0.25, approximate=False)
    x = L.GaussianNoise(0.1)(keras.ops.silu(1.5 * x - 0.125))
    return keras.Model(inputs, L.Dense(3)(L.Flatten()(x)))


class Named(keras.Model):
    def __init__(self):
        super().__init__()
        self.second = L.Conv2D(3, 3)
        self.first = L.Conv2D(3, 3)

    def call(self, x):
        return self.second(self.first(x))


def randomize(model, seed):
    rng = np.random.default_rng(seed)
    for layer in model.layers:
        values = []
        for weight in layer.weights:
            shape = tuple(weight.shape)
            scale = np.sqrt(2.0 / np.prod(shape[:-1])) if len(shape) > 1 else 0.1
            middle = 1.0 if weight.name in ("gamma", "moving_variance") else 0.0
            values.append((middle + scale * rng.standard_normal(shape).clip(-3, 3)).astype("float32"))
        layer.set_weights(values)
    return model


def logits(model, size=32):
    return model.predict(pictures(3, size) / 255, verbose=0).tolist()


def full(folder):
    for build in [minigooglenet, keras_cnn, resnet18]:
        keras.utils.clear_session()
        # A second model of the session: none of its layers has the name that it has in towers.
        build()
        model = randomize(build(), 7)
        name = folder / build.__name__
        for ending in [".weights.h5", ".keras", ".h5"]:
            (model.save_weights if ending == ".weights.h5" else model.save)(f"{name}{ending}")
        (folder / f"{build.__name__}.json").write_text(json.dumps(logits(model)))


def compress(file):
    """The archive with the same files in fewer bytes."""
    with zipfile.ZipFile(file) as archive:
        files = {name: archive.read(name) for name in archive.namelist()}
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in files.items():
            archive.writestr(name, content)


def main(folder):
    folder.mkdir(exist_ok=True)
    model = randomize(tiny(), 7)
    model.save_weights(folder / "tiny.weights.h5")
    model.save(folder / "tiny.keras")
    model.save(folder / "tiny.h5")
    named = Named()
    named(np.zeros((1, 8, 8, 3)))
    named.save_weights(folder / "named.weights.h5")
    some = randomize(parts(), 7)
    some.save(folder / "parts.keras")
    some.save_weights(folder / "parts.weights.h5")
    small = randomize(small_cnn(), 7)
    small.save(folder / "small_cnn.keras")
    keras.utils.set_random_seed(7)
    own = adapted()
    own.save(folder / "adapted.keras")
    compress(folder / "adapted.keras")
    values = {"tiny": logits(model, 8), "small_cnn": logits(small), "adapted": logits(own, 8)}
    (folder / "logits.json").write_text(json.dumps(values) + "\n")


if __name__ == "__main__":
    if len(sys.argv) > 1:
        full(pathlib.Path(sys.argv[1]))
    else:
        main(pathlib.Path(__file__).parent / "keras")
