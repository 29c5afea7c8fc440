"""When Keras' EarlyStopping stops and whose weights it restores, for random sequences: writes early_stopping.json beside this script.

Run it with KERAS_BACKEND=torch and Keras 3.
"""

import json
import pathlib
import random

from keras.callbacks import EarlyStopping


class Model:
    """A model whose weights are the number of the epoch."""

    stop_training = False
    weights = None

    def get_weights(self):
        return self.weights

    def set_weights(self, weights):
        self.weights = weights


def run(values, **options):
    """The epoch, from 1, after which training stops, or None; and that whose weights are the model's in the end."""
    callback = EarlyStopping(monitor="val_loss", restore_best_weights=True, **options)
    callback.set_model(Model())
    callback.on_train_begin()
    for epoch, value in enumerate(values):
        callback.model.weights = epoch + 1
        callback.on_epoch_end(epoch, {"val_loss": value})
        if callback.model.stop_training:
            break
    callback.on_train_end()
    return {"stopped": epoch + 1 if callback.model.stop_training else None, "restored": callback.model.weights}


draw = random.Random(1)
cases = []
for case in range(120):
    options = {
        "mode": draw.choice(["min", "max"]),
        "patience": draw.randrange(5),
        "min_delta": draw.choice([0.0, 0.0, 0.25, -0.25]),
        "baseline": draw.choice([None, None, 1.0, 2.0]),
        "start_from_epoch": draw.choice([0, 0, 0, 2, 13]),
    }
    trend = draw.choice([-0.125, 0.0, 0.125])
    # Multiples of 1/16 compare without rounding.
    values = [2.0 + trend * epoch + draw.randrange(-8, 9) / 16 for epoch in range(12)]
    cases.append({**options, "values": values, **run(values, **options)})

lines = ",\n".join(json.dumps(case) for case in cases)
pathlib.Path(__file__).with_suffix(".json").write_text(f"[\n{lines}\n]\n")
