"""Writes metrics.json: metrics of classifiers, by scikit-learn and Keras.

    pip install numpy scikit-learn keras jax
    KERAS_BACKEND=jax python tests/golden/metrics.py

`crates/metrics/tests/golden.rs` compares with it. Scores are logits in quarters, so that some are equal; a class of
`rare` has no samples, and one is never the best.
"""

import json
import pathlib

import keras
import numpy as np
import sklearn
from sklearn.metrics import accuracy_score, balanced_accuracy_score, matthews_corrcoef, precision_recall_fscore_support, roc_auc_score

rng = np.random.default_rng(7)


def scores(labels, classes, right):
    logits = rng.integers(-8, 9, (len(labels), classes)) / 4
    logits[np.arange(len(labels)), labels] += right
    return logits


def probabilities(logits):
    powers = np.exp(logits - logits.max(axis=1, keepdims=True))
    return powers / powers.sum(axis=1, keepdims=True)


def case(name, labels, logits):
    best = logits.argmax(axis=1)
    precision, recall, f1, _ = precision_recall_fscore_support(labels, best, average="macro", zero_division=0)
    values = {"balanced_acc": balanced_accuracy_score(labels, best), "precision": precision, "recall": recall, "f1": f1, "mcc": matthews_corrcoef(labels, best)}
    classes = logits.shape[1]
    for k in [1, 2, 3, 5]:
        if k < classes:
            metric = keras.metrics.SparseTopKCategoricalAccuracy(k=k)
            # Keras compares in float32. Scores in quarters are exact there, which probabilities are not.
            metric.update_state(labels, logits.astype(np.float32))
            values[f"top{k}_acc"] = float(metric.result())
    if classes == 2:
        second = probabilities(logits)[:, 1]
        metric = keras.metrics.AUC()
        metric.update_state(labels, second)
        values["auc"] = float(metric.result())
        values["exact auc"] = roc_auc_score(labels, second)
    return {"name": name, "labels": labels.tolist(), "scores": logits.tolist(), "values": values}


def cases():
    labels = rng.integers(0, 10, 200)
    yield case("ten classes", labels, scores(labels, 10, 1.5))
    labels = rng.choice([0, 0, 0, 1, 2, 4], 60)
    logits = scores(labels, 6, 1.0)
    logits[:, 2] = -9
    logits[labels == 2, 2] = -8
    yield case("rare", labels, logits)
    labels = rng.choice([0, 0, 0, 1], 300)
    yield case("two classes", labels, scores(labels, 2, 0.75))


def multi_label(name, has, logits):
    """Samples with any number of classes, taken for those with a probability above a half."""
    taken = logits > 0
    precision, recall, f1, _ = precision_recall_fscore_support(has, taken, average="macro", zero_division=0)
    metric = keras.metrics.AUC(multi_label=True, num_labels=has.shape[1])
    metric.update_state(has, 1 / (1 + np.exp(-logits)))
    values = {"precision": precision, "recall": recall, "f1": f1, "auc": float(metric.result()), "exact_acc": accuracy_score(has, taken)}
    return {"name": name, "labels": has.tolist(), "scores": logits.tolist(), "values": values}


def multi_label_cases():
    own = np.random.default_rng(8)
    for name, classes in [("three classes", 3), ("forty classes", 40)]:
        has = own.integers(0, 2, (100, classes))
        logits = own.integers(-8, 9, (100, classes)) / 4 + has
        yield multi_label(name, has, logits)
    has[:, 7] = 0
    has[:, 8] = 1
    logits[:, 7] = -1
    yield multi_label("a class that none has and one that all have", has, logits)


golden = {
    "keras": keras.__version__,
    "scikit-learn": sklearn.__version__,
    "cases": list(cases()),
    "multi_label": list(multi_label_cases()),
}
pathlib.Path(__file__).with_suffix(".json").write_text(json.dumps(golden, indent=None, separators=(",", ":")) + "\n")
