"""Makes keras_models.json: random models of Keras, as configurations, with logits and gradients.

pip install keras torch numpy; KERAS_BACKEND=torch python tests/golden/keras_models.py
Made with keras 3.15.1, torch 2.15.0, numpy 2.4.6.

Of the models every fourth has gradients. Weights and images are `numbers`, which the test computes too, so
the file has none of them. Arguments make another file: the count, one in how many has gradients, the path.
"""

import json
import sys
from pathlib import Path

import keras
import numpy as np
import torch
from keras import layers as L
from keras.src.applications.convnext import StochasticDepth

from shared.numbers import numbers

COUNT = int(sys.argv[1]) if len(sys.argv) > 1 else 52
EVERY = int(sys.argv[2]) if len(sys.argv) > 2 else 4
OUTPUT = Path(sys.argv[3]) if len(sys.argv) > 3 else Path(__file__).with_suffix(".json")
BATCH, CLASSES = 2, 5
# So many models come first that have the layers of the first release alone.
FIRST = 40

# So that the values have no rounding of theirs.
keras.config.set_floatx("float64")


class Draw:
    """A random model: Sequential, or functional with branches, sums and models inside of it."""

    def __init__(self, seed, newer):
        self.rng = np.random.default_rng(seed)
        self.newer = newer
        self.functional = seed % 3 != 0

    def one(self, *choices):
        return choices[self.rng.integers(len(choices))]

    def chance(self, share):
        return self.rng.random() < share

    def act(self):
        return self.one(None, "relu", "relu", "gelu", "silu", keras.activations.swish)

    def activation(self):
        return self.one(
            L.ReLU(), L.Activation("relu"), L.Activation("gelu"), L.Activation("silu"), L.Activation("linear")
        )

    def conv(self, filters, strides=1, padding=None):
        kernel = self.one(1, 2, 3, (3, 1), (1, 2))
        return L.Conv2D(
            filters,
            kernel,
            strides=strides,
            padding=padding or self.one("same", "same", "valid"),
            activation=self.act(),
            use_bias=self.chance(0.7),
            kernel_initializer=self.one("glorot_uniform", "he_normal", keras.initializers.RandomNormal(0, 0.1)),
            dilation_rate=1,
        )

    def norm(self):
        center, scale = self.chance(0.8), self.chance(0.8)
        if self.chance(0.6):
            epsilon, momentum = self.one(1e-3, 1e-5, 0.1), self.one(0.99, 0.9)
            return L.BatchNormalization(epsilon=epsilon, momentum=momentum, center=center, scale=scale)
        # Keras computes it in f32 in any case, and a small epsilon magnifies the rounding.
        return L.GroupNormalization(self.one(1, 2, -1), epsilon=self.one(1e-3, 1e-2), center=center, scale=scale)

    def pool(self):
        kind = self.one(L.MaxPooling2D, L.AveragePooling2D)
        if kind is L.AveragePooling2D and self.chance(0.5):
            # Of uneven padding the backend torch repeats the edge, which other backends don't count.
            return self.one(kind(3, strides=1, padding="same"), kind((2, 3), strides=(2, 1)))
        return L.MaxPooling2D(self.one(2, 3, (2, 1)), strides=self.one(None, 1, 2, (1, 2)), padding=self.one("same", "valid"))

    def zeros(self):
        return L.ZeroPadding2D(self.one(1, (2, 1), ((1, 0), (0, 2))))

    def chain(self, last=False):
        """Layers for any image, one after the other."""
        if self.newer and self.chance(0.8):
            return self.newer_chain()
        kind = self.rng.integers(8)
        if kind <= 2:
            return [self.conv(int(self.one(2, 4, 6)), self.one(1, 1, 2, (2, 1)))]
        if kind == 3:
            return [self.norm()]
        if kind == 4:
            return [self.pool()]
        if kind == 5:
            return [self.activation()]
        if kind == 6:
            return [self.zeros(), self.conv(4, self.one(1, 2))]
        return self.one([L.Dropout(0.3)], [L.Rescaling(self.one(0.5, 2.0))], [L.Rescaling(1 / 3, offset=-0.25)])

    def newer_chain(self):
        return self.one(
            [self.conv(4), L.LayerNormalization(epsilon=self.one(1e-3, 1e-2), scale=self.chance(0.7))],
            [L.LayerNormalization(epsilon=self.one(1e-3, 1e-2), center=self.chance(0.5))],
            [L.ZeroPadding2D(self.one(1, ((0, 2), (1, 0)))), self.one(L.MaxPooling2D(3, strides=2), L.AveragePooling2D(2, strides=1))],
            [L.ZeroPadding2D(1), self.one(L.ReLU(), L.BatchNormalization())],
            [L.Cropping2D(self.one(1, ((1, 0), (0, 2))))],
            [L.UpSampling2D(self.one(2, (1, 3)), interpolation=self.one("nearest", "nearest", "bilinear")), self.pool()],
            [self.one(L.SpatialDropout2D(0.3), L.Dropout(0.3, noise_shape=(None, 1, 1, 1)), StochasticDepth(0.3))],
        )

    def head(self):
        end = self.one(
            [L.Flatten()],
            [L.GlobalAveragePooling2D()],
            [L.GlobalMaxPooling2D()],
            [L.GlobalAveragePooling2D(keepdims=True), L.Flatten()],
        )
        if self.chance(0.5):
            end.append(L.Dense(int(self.one(4, 6)), activation=self.act(), use_bias=self.chance(0.7)))
        if self.chance(0.3):
            end.append(self.one(L.Dropout(0.5), L.BatchNormalization()))
        end.append(L.Dense(CLASSES, activation=self.one(None, "softmax")))
        return end

    def model(self):
        size = (int(self.rng.integers(8, 13)), int(self.rng.integers(8, 13)), 3)
        first = [L.Rescaling(1 / 127.5, offset=-1)] if self.chance(0.3) else []
        if not self.functional:
            body = [layer for _ in range(self.rng.integers(2, 7)) for layer in self.chain()]
            return keras.Sequential([keras.Input(size), *first, *body, *self.head()])
        images = keras.Input(size)
        x = images
        for layer in first:
            x = layer(x)
        for _ in range(self.rng.integers(2, 6)):
            x = self.block(x)
        for layer in self.head():
            x = layer(x)
        return keras.Model(images, x)

    def block(self, x):
        kind = self.rng.integers(6)
        channels = x.shape[-1]
        if kind == 0:
            y = self.conv(channels, 1, "same")(x)
            y = L.Add()([y, x]) if self.chance(0.5) else y + x
            return keras.ops.relu(y) if self.chance(0.3) else self.activation()(y)
        if kind == 1:
            branches = [self.conv(int(self.one(2, 4)), 1, "same")(x) for _ in range(self.rng.integers(2, 4))]
            return L.Concatenate()([*branches, x] if self.chance(0.3) else branches)
        if kind == 2:
            inside = [layer for _ in range(2) for layer in self.chain()]
            return keras.Sequential([keras.Input(x.shape[1:]), *inside])(x)
        if kind == 3:
            shared = L.ReLU()
            y = shared(self.conv(4, 1, "same")(x))
            z = shared(self.norm()(self.conv(4, 1, "same")(x)))
            return L.Add()([y, z, y]) if self.chance(0.5) else L.Add()([y, z])
        if kind == 4:
            # As in ResNet: zeros behind a ReLU, before a maximum.
            return L.MaxPooling2D(3, strides=2)(L.ZeroPadding2D(1)(L.ReLU()(x)))
        for layer in self.chain():
            x = layer(x)
        return x


def weights_of(model, prefix=""):
    """All weights with the names that they have in towers: the models around a layer, the layer, the tensor."""
    for layer in model.layers:
        if hasattr(layer, "layers"):
            yield from weights_of(layer, f"{prefix}{layer.name}_")
        else:
            for weight in layer.weights:
                if "seed" not in weight.name:
                    yield f"{prefix}{layer.name}/{weight.name}", weight


def set_weights(model):
    for name, weight in weights_of(model):
        values = numbers(name, tuple(weight.shape))
        kind = name.rsplit("/")[-1]
        if kind == "moving_variance":
            values = 1.0 + 0.5 * values
        elif kind == "gamma":
            values = 1.0 + 0.3 * values
        elif kind == "kernel":
            values = values * np.float32(np.sqrt(3.0 / np.prod(weight.shape[:-1])))
        else:
            values = 0.3 * values
        weight.assign(values.astype(np.float32).astype(weight.dtype))


def without_softmax(model):
    last = model.layers[-1]
    if last.activation is keras.activations.softmax:
        last.activation = keras.activations.linear
    return model


def gradients(model, images, labels):
    """Of the mean loss in training."""
    logits = model(images, training=True)
    # Keras' own loss computes in f32.
    loss = torch.nn.functional.cross_entropy(logits, torch.as_tensor(labels, device=logits.device))
    model.zero_grad()
    loss.backward()
    return {
        name: weight.value.grad.numpy() for name, weight in weights_of(model) if weight.value.grad is not None
    }


def rounded(values):
    return [float(f"{value:.7g}") for value in np.asarray(values, dtype=np.float64).ravel()]


def compact(value):
    """A configuration without what says nothing about the layers: the file stays small."""
    if isinstance(value, dict):
        dropped = ("module", "registered_name", "build_config", "compile_config", "dtype", "shared_object_id")
        return {key: compact(own) for key, own in value.items() if key not in dropped}
    return [compact(own) for own in value] if isinstance(value, list) else value


def nested():
    """A model with others inside of it, whose layers have the same classes and, in part, no gamma or beta."""
    keras.config.set_floatx("float32")
    images = keras.Input((8, 8, 3))
    x = L.Rescaling(1 / 127.5, offset=-1)(images)
    x = L.Conv2D(4, 3, padding="same", name="stem")(x)
    deeper = keras.Sequential([keras.Input((8, 8, 4)), L.Conv2D(4, 1), L.BatchNormalization(center=False)])
    inside = keras.Sequential([keras.Input((8, 8, 4)), L.Conv2D(4, 3, padding="same"), deeper, L.ReLU()], name="sub")
    y = L.BatchNormalization(scale=False)(x)
    z = inside(x)
    x = L.Add()([z, y])
    x = L.GroupNormalization(2)(L.Conv2D(6, 2, strides=2, use_bias=False)(x))
    model = keras.Model(images, L.Dense(CLASSES)(L.Flatten()(x)))
    set_weights(model)
    for ending in "keras", "h5":
        model.save(Path(__file__).parent / f"keras/nested.{ending}")
    keras.config.set_floatx("float64")


if len(sys.argv) == 1:
    nested()
models, seed = [], 0
while len(models) < COUNT:
    seed += 1
    keras.utils.clear_session()
    draw = Draw(seed, len(models) >= FIRST)
    try:
        model = draw.model()
    except ValueError:
        continue  # An image too small for a pooling, or channels that don't suit groups.
    if model.count_params() > 3000:
        continue
    set_weights(model)
    config = json.loads(model.to_json())
    without_softmax(model)
    size = model.input_shape[1:]
    images = np.float64(2.0) * numbers("images", (BATCH, *size))
    entry = {
        "config": config if COUNT > 100 else compact(config),
        "image": list(size),
        "logits": rounded(keras.ops.convert_to_numpy(model(images, training=False))),
    }
    if len(models) % EVERY == 0:
        for layer in model._flatten_layers():
            if isinstance(layer, (L.Dropout, L.SpatialDropout2D)):
                layer.rate = 0.0
            if isinstance(layer, StochasticDepth):
                layer.drop_path_rate = 0.0
        found = gradients(model, images, np.arange(BATCH) % CLASSES)
        entry["gradients"] = {name: rounded(value) for name, value in found.items()}
    models.append(entry)

OUTPUT.write_text(json.dumps(models, separators=(",", ":")) + "\n")
print(f"{len(models)} models of seeds to {seed}, {OUTPUT.stat().st_size} bytes")
