"""Writes report_curves.json: ROC and precision-recall curves with their areas, and calibration errors.

    pip install numpy scikit-learn
    python tests/golden/report_curves.py

The curves are scikit-learn's. The calibration error is that of C. Guo et al., "On Calibration of Modern Neural
Networks" (2017), equation 3, with 15 bins (k/15, (k+1)/15]. Tests of the crate `report` compare with them.
"""

import json
import pathlib

import numpy as np
import sklearn
from sklearn.metrics import average_precision_score, precision_recall_curve, roc_auc_score, roc_curve

BINS = 15
rng = np.random.default_rng(11)


def ranking(name, positive, scores):
    wrong, right, _ = roc_curve(positive, scores, drop_intermediate=False)
    precision, recall, _ = precision_recall_curve(positive, scores)
    return {
        "name": name,
        "positive": positive.tolist(),
        "scores": scores.tolist(),
        "roc": np.stack([wrong, right], axis=1).tolist(),
        "roc_area": roc_auc_score(positive, scores),
        # scikit-learn begins with the lowest threshold.
        "precision_recall": np.stack([recall, precision], axis=1)[::-1].tolist(),
        "average_precision": average_precision_score(positive, scores),
    }


def rankings():
    positive = rng.random(200) < 0.4
    yield ranking("quarters, many of which are equal", positive, rng.integers(-8, 9, 200) / 4 + positive)
    positive = rng.random(50) < 0.1
    yield ranking("few positive samples", positive, rng.normal(size=50) + positive)
    positive = np.arange(20) % 2 == 0
    yield ranking("reversed", positive, -positive.astype(float))
    yield ranking("one score for all", positive, np.zeros(20))


def calibration(name, confidence, right):
    # Bin k has the confidences in (k/15, (k+1)/15].
    bins = np.ceil(confidence * BINS).astype(int) - 1
    error, kept = 0.0, []
    for k in range(BINS):
        inside = bins == k
        if inside.any():
            mean, share = confidence[inside].mean(), right[inside].mean()
            kept.append([k, int(inside.sum()), mean, share])
            error += inside.mean() * abs(share - mean)
    return {"name": name, "confidence": confidence.tolist(), "right": right.tolist(), "bins": kept, "error": error}


def calibrations():
    confidence = rng.uniform(0.1, 1.0, 500)
    yield calibration("too sure", confidence, rng.random(500) < confidence**2)
    confidence = np.append(rng.beta(20, 1, 300), [1.0, 1.0])
    yield calibration("nearly all in a bin", confidence, rng.random(302) < 0.9)


values = {"scikit-learn": sklearn.__version__, "rankings": list(rankings()), "calibrations": list(calibrations())}
path = pathlib.Path(__file__).with_suffix(".json")
path.write_text(json.dumps(values) + "\n")
