"""Makes airbench94_muon.safetensors: forward and backward passes and two steps of SGD of the network of airbench94_muon.py, by PyTorch, in f64.

pip install torch numpy safetensors; python tests/golden/airbench94_muon.py
Made with torch 2.15.0, numpy 2.4.6.

The file is as that of networks.py, with which it shares its layers and first values. The network's source is
github.com/KellerJordan/cifar10-airbench at f1c599c: airbench94's, but the scores are divided by the inputs of the last layer.
"""

import pathlib

import networks
import numpy as np
from networks import airbench94, record
from safetensors.numpy import save_file

networks.STEPS["airbench94_muon"] = 2


def airbench94_muon(p, x, training):
    ninth, inputs = float(np.float32(1.0 / 9.0)), 256
    return airbench94(p, x, training) / ninth / inputs


if __name__ == "__main__":
    tensors = {}
    record("airbench94_muon", airbench94_muon, 2, 2.0**-9, tensors)
    save_file(tensors, pathlib.Path(__file__).with_suffix(".safetensors"))
