"""What Keras' CSVLogger writes, begun anew and appended to: writes csv_logger.csv beside this script.

Run it with KERAS_BACKEND=torch and Keras 3.
"""

import pathlib

from keras.callbacks import CSVLogger

file = pathlib.Path(__file__).with_suffix(".csv")


class Model:
    optimizer = None


def write(first, records, append):
    callback = CSVLogger(str(file), separator=";", append=append)
    callback.set_model(Model())
    callback.on_train_begin()
    for epoch, (loss, accuracy, val_loss, val_accuracy, rate) in enumerate(records, first):
        logs = {"loss": loss, "accuracy": accuracy, "val_loss": val_loss, "val_accuracy": val_accuracy, "learning_rate": rate}
        callback.on_epoch_end(epoch, logs)
    callback.on_train_end()


write(0, [(2.25, 0.125, 2.0, 0.25, 0.01), (1 / 3, 0.5, float("nan"), 0.1, 1e-05)], False)
write(2, [(1e-07, 1.0, float("inf"), 0.0, 1e16)], True)
