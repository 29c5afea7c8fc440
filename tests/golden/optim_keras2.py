# golden: by name only (it needs a Python 3.11 of its own, with Keras 2.3.1)
"""Makes optim_keras2.json: ten optimizer steps of the real Keras 2.3.1, on its Theano backend.

Python 3.11: pip install keras==2.3.1 keras_applications keras_preprocessing==1.1.2 Theano-PyMC==1.1.2 \
    numpy==1.23.5 "scipy<1.12" h5py pyyaml "setuptools<66"; python tests/golden/optim_keras2.py
Needs optim.json, from which it takes parameters and gradients. Theano-PyMC is the maintained successor of the
Theano that Keras 2.3.1 was made for; the two names below are what has moved since.
"""

import collections
import collections.abc
import json
import os
import pathlib

os.environ["THEANO_FLAGS"] = "cxx=,blas__ldflags=,device=cpu,floatX=float32"
os.environ["KERAS_BACKEND"] = "theano"
collections.Iterable = collections.abc.Iterable
import theano.sandbox.rng_mrg

theano.sandbox.rng_mrg.MRG_RandomStreams = theano.sandbox.rng_mrg.MRG_RandomStream
import keras
import numpy as np
from keras import backend as K

assert keras.__version__ == "2.3.1"
HERE = pathlib.Path(__file__).parent
SHARED = json.loads((HERE / "optim.json").read_text())
PARAMS = np.array(SHARED["initial"], dtype="float32")
GRADS = np.array(SHARED["grads"], dtype="float32").reshape(-1, len(PARAMS))
STEPS_PER_EPOCH, EPOCHS = SHARED["steps_per_epoch"], SHARED["epochs"]


def numbers(array):
    return [float("%.9g" % x) for x in np.asarray(array, dtype="float64").ravel()]


def run(optimizer, factor=lambda epoch: 1.0):
    """Ten steps, the rate set once an epoch as LearningRateScheduler does."""
    base = float(K.get_value(optimizer.lr))
    params, grads = K.variable(PARAMS), K.placeholder(shape=PARAMS.shape)
    optimizer.get_gradients = lambda loss, params: [grads]
    step = K.function([grads], [], updates=optimizer.get_updates(loss=None, params=[params]))
    history = []
    for k, grad in enumerate(GRADS):
        K.set_value(optimizer.lr, np.float32(base * factor(k // STEPS_PER_EPOCH)))
        step([grad])
        history += numbers(K.get_value(params))
    return history, numbers(optimizer.get_weights()[1])


def case(optimizer, schedule, lr, result):
    params, state = result
    # Keras 2 has a velocity without momentum too: it is of no use, and we hold none.
    state = [] if optimizer.get("momentum") == 0 else state
    return {"source": "keras 2.3.1", "optimizer": optimizer, "schedule": schedule, "lr": lr, "params": params, "state": state}


def cases():
    schedules = [("constant", 0.0, lambda epoch: 1.0), ("time:decay=0.3", 0.3, lambda epoch: 1.0), ("poly", 0.0, lambda epoch: 1 - epoch / EPOCHS)]
    for schedule, decay, factor in schedules:
        for momentum, nesterov in [(0.0, False), (0.9, False), (0.9, True)]:
            config = f"sgd:momentum={momentum}{',nesterov' if nesterov else ''},velocity=keras"
            sgd = keras.optimizers.SGD(lr=0.1, momentum=momentum, nesterov=nesterov, decay=decay)
            yield case(config, schedule, 0.1, run(sgd, factor))
        config = "rmsprop:rho=0.9,epsilon=1e-07,epsilon-inside-root=false"
        yield case(config, schedule, 0.01, run(keras.optimizers.RMSprop(lr=0.01, decay=decay), factor))
    config = dict(config, rho=0.5, epsilon=1e-3)
    yield case(config, "constant", 0.01, run(keras.optimizers.RMSprop(lr=0.01, rho=0.5, epsilon=1e-3)))


golden = {"optimizers": list(cases())}
(HERE / "optim_keras2.json").write_text(json.dumps(golden, separators=(",", ":")) + "\n")
