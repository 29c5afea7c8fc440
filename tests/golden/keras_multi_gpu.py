# golden: by name only (it needs a Python 3.11 of its own, with Keras 2.3.1 and TensorFlow 2.15)
"""Makes keras/multi_gpu.*: a model that the real multi_gpu_model of Keras 2.3.1 wraps for three GPUs, and its inner model.

Python 3.11: pip install "tensorflow-cpu==2.15.*" pyyaml scipy
    pip install --no-deps --target keras231 keras==2.3.1 keras_applications==1.0.8 keras_preprocessing==1.1.2
    KERAS231=keras231 python tests/golden/keras_multi_gpu.py

Keras 2.3.1 was made for TensorFlow 2.0 and before: the lines up to `import keras` give it what has moved since. Its list of GPUs is
a made one. The models are built and saved by Keras' own code, and never run on a GPU.

    multi_gpu.keras2.h5            model.save of multi_gpu_model(model, gpus=3), compiled
    multi_gpu.keras2.weights.h5    its model.save_weights
    multi_gpu.keras2.json          its model.to_json
    multi_gpu_relocated.keras2.h5  the same with cpu_relocation=True, which copies the model
    multi_gpu_inner.keras2.h5      model.save of the model that was wrapped, compiled alike
    multi_gpu_inner.keras2.json    its model.to_json
    to_multi_gpu.keras2.h5         model.save of to_multi_gpu(model, 3), the function of a tutorial, of a Sequential model
    multi_gpu.json                 logits of both inner models
"""

import collections
import collections.abc
import json
import os
import pathlib
import sys

os.environ["KERAS_BACKEND"] = "tensorflow"
os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
collections.Iterable, collections.Mapping = collections.abc.Iterable, collections.abc.Mapping
import tensorflow as tf

# TensorFlow loads its own Keras 2.15 under the same name, and then keeps it.
tf.keras.metrics.MeanIoU, tf.keras.layers.Dense, tf.keras.Model, tf.keras.backend
for name in [name for name in sys.modules if name.split(".")[0] == "keras"]:
    del sys.modules[name]
sys.path.insert(0, os.environ["KERAS231"])
from tensorflow.python.framework import ops

ops._TensorLike, ops.is_dense_tensor_like = tf.Tensor, lambda x: isinstance(x, tf.Variable)
tf.compat.v1.disable_eager_execution()
# One graph for all, as with TensorFlow 1.
tf.__version__, version = "1.15.0", tf.__version__
import keras

tf.__version__ = version
keras.backend.get_value = lambda x: keras.backend.batch_get_value([x])[0]
import numpy as np
from keras import backend as K
from keras.layers import core
from keras import layers as L
from keras.utils import multi_gpu_model, multi_gpu_utils

# Without the path of this machine's Keras in its code.
dump = core.func_dump
core.func_dump = lambda f: dump(type(f)(f.__code__.replace(co_filename=f.__name__ + ".py"), f.__globals__, f.__name__, closure=f.__closure__))
assert keras.__version__ == "2.3.1"
multi_gpu_utils._get_available_devices = lambda: ["/cpu:0"] + [f"/gpu:{k}" for k in range(3)]
FOLDER = pathlib.Path(__file__).parent / "keras"


def slice_batch(x, n_gpus, part):
    sh = K.shape(x)
    L = sh[0] // n_gpus
    if part == n_gpus - 1:
        return x[part * L:]
    return x[part * L:(part + 1) * L]


def to_multi_gpu(model, n_gpus=3):
    with tf.device("/cpu:0"):
        x = L.Input(model.input_shape[1:], name="input")
    towers = []
    for g in range(n_gpus):
        with tf.device("/gpu:" + str(g)):
            slice_g = L.Lambda(slice_batch, lambda shape: shape, arguments={"n_gpus": n_gpus, "part": g})(x)
            towers.append(model(slice_g))
    with tf.device("/cpu:0"):
        merged = L.Concatenate(axis=0)(towers)
    return keras.Model(inputs=[x], outputs=[merged])


def functional():
    inputs = L.Input((32, 32, 3))
    x = L.Activation("relu")(L.BatchNormalization(name="norm_b")(L.Conv2D(4, 3, strides=2, name="conv_z")(inputs)))
    # Of one shape, in another order than that of their names.
    x = L.Conv2D(4, 3, strides=2, activation="relu", name="conv_y")(x)
    x = L.Conv2D(4, 3, activation="relu", padding="same", name="conv_x")(x)
    return keras.Model(inputs, L.Dense(10, activation="softmax")(L.GlobalAveragePooling2D()(x)))


def sequential():
    layers = [L.Conv2D(4, 3, strides=2, activation="relu", input_shape=(32, 32, 3)), L.MaxPooling2D(5), L.Flatten()]
    return keras.Sequential(layers + [L.Dense(10), L.Activation("softmax")])


def pictures(count, size):
    """As in keras_weights.py."""
    k = np.arange(count * size * size * 3)
    return ((k * 37 + k // 7) % 256).reshape(count, size, size, 3).astype("float32")


def fill(model, seed):
    random = np.random.RandomState(seed)
    for layer in model.layers:
        values = [random.uniform(-0.5, 0.5, w.shape) for w in layer.get_weights()]
        if isinstance(layer, L.BatchNormalization):
            values = [np.abs(v) + 0.5 for v in values]
        layer.set_weights([v.astype("float32") for v in values])
    return model


def compiled(model):
    model.compile(keras.optimizers.SGD(lr=0.02, momentum=0.9), "categorical_crossentropy", metrics=["accuracy"])
    return model


def log_probabilities(model):
    return [[float(f"{x:.7g}") for x in row] for row in np.log(model.predict(pictures(3, 32) / 255.0))]


model = fill(functional(), 1)
parallel = multi_gpu_model(model, gpus=3)
compiled(model).save(str(FOLDER / "multi_gpu_inner.keras2.h5"), include_optimizer=True)
compiled(parallel).save(str(FOLDER / "multi_gpu.keras2.h5"), include_optimizer=True)
relocated = multi_gpu_model(model, gpus=3, cpu_relocation=True)
relocated.set_weights(parallel.get_weights())
relocated.save(str(FOLDER / "multi_gpu_relocated.keras2.h5"))
parallel.save_weights(str(FOLDER / "multi_gpu.keras2.weights.h5"))
(FOLDER / "multi_gpu.keras2.json").write_text(parallel.to_json())
(FOLDER / "multi_gpu_inner.keras2.json").write_text(model.to_json())
other = fill(sequential(), 2)
towers = to_multi_gpu(other)
towers.save(str(FOLDER / "to_multi_gpu.keras2.h5"))
# TensorFlow takes the CPU for a GPU that is not there.
for whole, inner in [(parallel, model), (towers, other)]:
    assert np.allclose(whole.predict(pictures(7, 32) / 255.0), inner.predict(pictures(7, 32) / 255.0), atol=1e-6)
logits = {"multi_gpu": log_probabilities(model), "to_multi_gpu": log_probabilities(other)}
(FOLDER / "multi_gpu.json").write_text(json.dumps(logits) + "\n")
