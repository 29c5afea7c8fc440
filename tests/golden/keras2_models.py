# golden: by name only (it needs a Python of its own, with TensorFlow 2.15)
"""Makes keras2_models.json and keras/transfer.*: models with models inside of them, as tf.keras 2.15 writes them.

Python 3.11: pip install "tensorflow-cpu==2.15.*"; python tests/golden/keras2_models.py
Made with tensorflow 2.15.1 (keras 2.15.0), h5py 3.16.0, numpy 1.26.4.

keras2_models.json has the models as configurations, with logits of `numbers` as weights and images, which the test computes
too; and how many notes a reader has about options of training. The files have the model `transfer`, with a layer of the
inner model frozen, and names with slashes:

    transfer.keras2.h5          model.save in the older layout
    transfer.keras2.weights.h5  model.save_weights in the older layout: weights alone
    transfer.keras2.keras       model.save in the newer layout

    plain.keras2.weights.h5     model.save_weights of three equal layers in a row
    inner.keras2.h5             a normalization that was adapted to data in an inner model, and two inner models whose layers
                                have the same name
"""

import json
import os
import pathlib
import tempfile

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
import numpy as np
import tensorflow as tf
from shared.numbers import numbers

keras = tf.keras
L = keras.layers
FOLDER = pathlib.Path(__file__).parent
BATCH, CLASSES, SIDE = 2, 5, 8


def base(name="base", frozen=(), channels=3):
    """Three equal layers, the first of them maybe frozen: by order alone they can't be told apart."""
    images = keras.Input((SIDE, SIDE, channels))
    x = images
    for k in range(3):
        x = L.Conv2D(channels, 3, padding="same", name=f"block/c{k}")(x)
    x = L.BatchNormalization(name="block/bn")(x)
    model = keras.Model(images, x, name=name)
    for layer in frozen:
        model.get_layer(f"block/{layer}").trainable = False
    return model


def head(images, x, name=None):
    x = L.GlobalAveragePooling2D()(x)
    return keras.Model(images, L.Dense(CLASSES, name="head")(x), name=name)


def images():
    return keras.Input((SIDE, SIDE, 3))


def transfer():
    x = i = images()
    return head(i, base(frozen=["c0"])(x, training=False), "transfer")


def sequential_of_functional():
    return keras.Sequential([base("first", ["c0", "c1"]), L.Flatten(), L.Dense(CLASSES)])


def functional_of_sequential():
    inner = keras.Sequential([L.Conv2D(4, 3, activation="relu"), L.BatchNormalization()], name="inner")
    i = images()
    return head(i, inner(i))


def three_deep():
    i, j = images(), images()
    x = base("deepest")(L.Conv2D(3, 1, name="outside")(j))
    middle = keras.Model(j, L.ReLU()(x), name="middle")
    return head(i, L.Conv2D(4, 3, name="after")(middle(i)))


def two_of_a_kind():
    i = images()
    return head(i, L.Concatenate()([base("left")(i), base("right")(i)]))


def called_twice():
    """Without weights, a model may be called any number of times."""
    inner = keras.Sequential([L.ReLU(), L.MaxPooling2D()], name="pool")
    i = images()
    x = inner(L.Conv2D(4, 3)(i))
    return head(i, inner(L.Conv2D(4, 1)(x)))


def built_with_input():
    inner = keras.Sequential([keras.Input((SIDE, SIDE, 3)), L.Conv2D(4, 3), L.ReLU()], name="built")
    i = images()
    return head(i, inner(i))


def inputs_by_name():
    i = keras.Input((SIDE, SIDE, 3), name="image")
    x = L.Conv2D(4, 3, activation="relu")(L.Rescaling(2.0, offset=-0.5)(i))
    return keras.Model({"image": i}, {"scores": L.Dense(CLASSES)(L.Flatten()(x))})


def of_any_size():
    """The size of the images is that of the outer model, if it has one."""
    inner = keras.Sequential([keras.Input((None, None, 4)), L.Conv2D(4, 3), L.ReLU()], name="inner")
    i = images()
    return head(i, inner(L.Conv2D(4, 1)(i)))


def branches():
    i = images()
    x = base("stem", ["bn"])(i, training=False)
    a = L.Conv2D(4, 1, name="b-ranch.1")(x)
    b = L.Conv2D(4, 1, name="b>ranch-0")(x)
    c = L.Conv2D(4, 3, padding="same", name="zweig.a")(b)
    return head(i, L.Concatenate()([L.Add()([a, c]), b, x]))


def functions():
    """Of TensorFlow, and a normalization of vectors, whose axis is 1."""
    x = i = images()
    x = L.Normalization(axis=None, mean=0.3, variance=0.25)(0.5 * (x / 2.0 - 0.25))
    x = 2.0 - L.Conv2D(4, 3, padding="same")(x)
    x = tf.nn.relu(x + L.Conv2D(4, 1)(i))
    x = L.BatchNormalization()(L.Dense(6)(L.GlobalMaxPooling2D()(x)))
    return keras.Model(i, L.Dense(CLASSES)(x))


MODELS = [
    transfer, sequential_of_functional, functional_of_sequential, three_deep, two_of_a_kind, called_twice,
    built_with_input, inputs_by_name, of_any_size, branches, functions,
]


def weights_of(model, prefix=""):
    """As in keras_models.py: the names that the weights have in towers."""
    for layer in model.layers:
        if hasattr(layer, "layers"):
            yield from weights_of(layer, f"{prefix}{layer.name}_")
        else:
            for weight in layer.weights:
                yield f"{prefix}{layer.name}/{weight.name.rsplit('/', 1)[1].split(':')[0]}", weight


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
        weight.assign(values.astype(np.float32))


def compact(value):
    """A configuration without what says nothing about the layers: the file stays small."""
    if isinstance(value, dict):
        dropped = ("module", "registered_name", "build_config", "dtype", "sparse", "ragged", "keras_version", "backend")
        kept = {key: compact(own) for key, own in value.items() if key not in dropped}
        return {key: own for key, own in kept.items() if own is not None}
    return [compact(own) for own in value] if isinstance(value, list) else value


def entry(build):
    keras.utils.set_random_seed(7)
    keras.backend.clear_session()
    model = build()
    set_weights(model)
    got = model(np.float64(2.0) * numbers("images", (BATCH, SIDE, SIDE, 3)), training=False)
    got = got["scores"] if isinstance(got, dict) else got
    frozen = any(not layer.trainable for layer in model._flatten_layers())
    fixed = '"training": false' in model.to_json()
    return {
        "model": build.__name__,
        "config": compact(json.loads(model.to_json())),
        "image": [SIDE, SIDE, 3],
        "logits": [float(f"{value:.7g}") for value in np.asarray(got).ravel()],
        "notes": int(frozen) + int(fixed),
    }


def files():
    keras.backend.set_floatx("float32")
    keras.backend.clear_session()
    model = transfer()
    set_weights(model)
    model.save(FOLDER / "keras/transfer.keras2.h5")
    model.save(FOLDER / "keras/transfer.keras2.keras")
    weights_alone(model, "transfer")
    plain = keras.Sequential([keras.Input((1, 1, 3)), L.Flatten(), *[L.Dense(3, name=name) for name in "abc"]])
    for k, layer in enumerate(plain.layers[1:], start=1):
        layer.bias.assign(np.full(3, k))
    weights_alone(plain, "plain")
    inner().save(FOLDER / "keras/inner.keras2.h5")


def inner():
    normal = L.Normalization()
    normal.adapt(np.zeros((1, SIDE, SIDE, 3)))
    normal.adapt_mean.assign([0.1, 0.2, 0.3])
    normal.adapt_variance.assign([0.25, 1, 4])
    i = images()
    x = keras.Sequential([images(), normal], name="prepared")(i)
    both = []
    for k, name in enumerate(["left", "right"]):
        conv = L.Conv2D(2, 1, name="conv")
        both.append(keras.Sequential([images(), conv], name=name)(x))
        conv.bias.assign([k + 1, k + 1])
    return head(i, L.Add()(both))


def weights_alone(model, name):
    with tempfile.TemporaryDirectory() as folder:
        # A name that ends in .weights.h5 would be in the newer layout.
        path = os.path.join(folder, "weights.h5")
        model.save_weights(path)
        (FOLDER / f"keras/{name}.keras2.weights.h5").write_bytes(pathlib.Path(path).read_bytes())


keras.backend.set_floatx("float64")
models = [entry(build) for build in MODELS]
path = FOLDER / "keras2_models.json"
path.write_text(json.dumps(models, separators=(",", ":")) + "\n")
files()
print(f"{len(models)} models, {path.stat().st_size} bytes")
