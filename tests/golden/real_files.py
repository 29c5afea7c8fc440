# golden: by name only (it needs timm, and for some files a Python of its own, with TensorFlow 2.15)
"""Makes the folder real: small networks of keras.applications, torchvision and timm, as their files, and their scores.

pip install torch torchvision timm onnx onnxscript keras h5py; KERAS_BACKEND=torch python tests/golden/real_files.py
Python 3.11, for the files that end in .h5: pip install tensorflow-cpu==2.15.1; python tests/golden/real_files.py
Made with torch 2.15.0, torchvision 0.29.2, timm 1.0.31, onnx 1.23.2, onnxscript 0.7.2, keras 3.15.1; tensorflow 2.15.1.

All are built by the packages' own code, with fewer channels and blocks. Statistics of normalizations are those of a batch.
Images are `numbers`, which the test computes too. results.json has the scores, and the norms of the gradients of a training
step without dropout, in ascending order; PyTorch's newer exporter writes no graphs for training, which have none.
"""

import json
import sys
import warnings
from pathlib import Path

import numpy as np

from shared.numbers import numbers

HERE = Path(__file__).with_suffix("").parent / "real"
BATCH, SIDE, CLASSES, LABELS = 2, 32, 5, [0, 3]


def images():
    """Blocks of a colour, and noise, from -1.5 to 1.5. Networks of Keras are shown them as pixels from 0 to 255."""
    colours = numbers("colours", (BATCH, 4, 4, 3)).repeat(8, 1).repeat(8, 2)
    return colours + numbers("noise", (BATCH, SIDE, SIDE, 3)) / 2


def torch_networks():
    """The name, the network, and whether the newer exporter writes it."""
    from functools import partial

    from timm.models import byobnet as B
    from torchvision import models as M

    conv, mb3 = M.efficientnet.MBConvConfig, M.mobilenetv3.InvertedResidualConfig
    few = [conv(1, 3, 1, 16, 8, 1), conv(6, 5, 2, 8, 8, 2)]
    yield "efficientnet_of_two_blocks", M.EfficientNet(few, 0.2, num_classes=CLASSES, last_channel=32), True
    yield "mobilenet_v2", M.MobileNetV2(CLASSES, 0.1, [[1, 16, 1, 1], [6, 24, 2, 2], [6, 32, 1, 2]]), False
    bneck = partial(mb3, dilation=1, width_mult=1.0)
    rows = [bneck(8, 3, 16, 8, True, "RE", stride=2), bneck(8, 5, 24, 16, True, "HS", stride=2), bneck(16, 5, 32, 16, False, "HS", stride=1)]
    yield "mobilenet_v3", M.MobileNetV3(rows, 32, num_classes=CLASSES), True
    yield "shufflenet_v2", M.ShuffleNetV2([2, 1, 1], [8, 16, 24, 32, 40], CLASSES), False
    block = M.convnext.CNBlockConfig
    yield "convnext", M.ConvNeXt([block(8, 16, 1), block(16, None, 1)], num_classes=CLASSES), True
    yield "regnet_y", M.RegNet(M.regnet.BlockParams([1, 2], [16, 24], [8, 8], [1.0, 1.0], [2, 2], se_ratio=0.25), CLASSES), False
    yield "densenet", M.DenseNet(4, (2, 2), 8, 2, num_classes=CLASSES), True
    bottle = B.ByoBlockCfg(type="bottle", d=2, c=32, s=2, gs=8, br=0.5)
    yield "byobnet", B.ByobNet(B.ByoModelCfg((bottle, bottle), stem_chs=8, act_layer="silu", attn_layer="eca"), CLASSES), False


def settled(model):
    """Of a few images, which `write_torch` shows it again: its statistics stay."""
    import torch

    torch.manual_seed(44)
    # The exporter would take equal numbers for one tensor.
    for name, values in model.named_parameters():
        if values.ndim == 1:
            low, high = (0.5, 1.5) if name.endswith("weight") else (-0.2, 0.2)
            torch.nn.init.uniform_(values, low, high)
    norms = [module for module in model.modules() if isinstance(module, torch.nn.BatchNorm2d)]
    few = torch.randn(16, 3, SIDE, SIDE)
    for momentum in (1.0, 0.1):
        for norm in norms:
            norm.momentum = momentum
        with torch.no_grad():
            model.train()(few)
    return model.eval(), few


def without_dropout(model):
    for module in model.modules():
        if type(module).__name__ in ("Dropout", "StochasticDepth"):
            module.p = 0.0
    return model


def torch_results(model, trains):
    import torch

    x = torch.from_numpy(images()).permute(0, 3, 1, 2).double()
    results = {"scores": model.double().eval()(x).flatten().tolist()}
    if trains:
        torch.nn.functional.cross_entropy(model.train()(x), torch.tensor(LABELS)).backward()
        results["gradients"] = sorted(float(values.grad.norm()) for values in model.parameters())
    return results


def write_torch(results):
    import torch

    torch.manual_seed(44)
    for name, model, dynamo in torch_networks():
        (model, few), file = settled(without_dropout(model)), f"{name}.onnx"
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            if dynamo:
                torch.onnx.export(model, (few[:1],), HERE / file, dynamo=True, verbose=False, external_data=False)
                stripped(HERE / file)
            else:
                # Normalizations stay apart from convolutions.
                kept = dict(training=torch.onnx.TrainingMode.TRAINING, do_constant_folding=False)
                torch.onnx.export(model.train(), (few,), HERE / file, dynamo=False, **kept)
        results[file] = torch_results(model, not dynamo)


def stripped(file):
    """The newer exporter notes lines and stacks of the sources: ten times the graph."""
    import onnx

    model = onnx.load(file)
    for node in model.graph.node:
        del node.metadata_props[:]
        node.doc_string = ""
    for value in [*model.graph.input, *model.graph.output, *model.graph.initializer]:
        del value.metadata_props[:]
    del model.graph.value_info[:]
    onnx.save(model, file)


def keras_networks(ending):
    from keras.src.applications import convnext, efficientnet, mobilenet_v3, resnet

    of = dict(weights=None, input_shape=(SIDE, SIDE, 3), classes=CLASSES, classifier_activation=None)
    block = dict(repeats=1, se_ratio=0.25, id_skip=True, kernel_size=3)
    blocks = [dict(block, filters_in=32, filters_out=16, expand_ratio=1, strides=1), dict(block, filters_in=16, filters_out=16, expand_ratio=6, strides=2)]
    yield "efficientnet_of_two_blocks", efficientnet.EfficientNet(0.25, 0.5, 32, 0.2, blocks_args=blocks, **of)

    def blocks_of_v3(x, kernel, activation, se_ratio):
        x = mobilenet_v3._inverted_res_block(x, 1, 8, 3, 2, se_ratio, mobilenet_v3.relu, 0)
        return mobilenet_v3._inverted_res_block(x, 3, 8, kernel, 1, se_ratio, activation, 1)

    yield "mobilenet_v3", mobilenet_v3.MobileNetV3(blocks_of_v3, 32, include_preprocessing=True, alpha=0.25, **of)
    if ending == ".h5":
        return
    yield "convnext", convnext.ConvNeXt([1, 1, 1, 1], [8, 8, 16, 16], name="convnext", **of)
    yield "resnet_v2", resnet.ResNet(lambda x: resnet.stack_residual_blocks_v2(x, 8, 2), True, True, **of)


def keras_gradients(model, pixels):
    import keras

    for layer in model._flatten_layers():
        for name in ("rate", "drop_path_rate"):
            if hasattr(layer, name):
                setattr(layer, name, 0.0)
    of = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    if keras.backend.backend() == "torch":
        of(np.array(LABELS), model(pixels, training=True)).backward()
        gradients = [variable.value.grad.numpy() for variable in model.trainable_variables]
    else:
        import tensorflow as tf

        with tf.GradientTape() as tape:
            loss = of(np.array(LABELS), model(pixels, training=True))
        gradients = [values.numpy() for values in tape.gradient(loss, model.trainable_variables)]
    return sorted(float(np.linalg.norm(values)) for values in gradients)


def write_keras(results):
    import keras

    ending = ".keras" if keras.__version__ >= "3" else ".h5"
    keras.utils.set_random_seed(44)
    draw = np.random.default_rng(44)
    for name, model in keras_networks(ending):
        for layer in model.layers:
            if isinstance(layer, keras.layers.BatchNormalization):
                low = dict(gamma=0.5, beta=-0.2, moving_mean=-0.2, moving_variance=0.5)
                high = dict(gamma=1.5, beta=0.2, moving_mean=0.2, moving_variance=1.5)
                kinds = [variable.name.split("/")[-1].split(":")[0] for variable in layer.weights]
                layer.set_weights([draw.uniform(low[k], high[k], w.shape) for k, w in zip(kinds, layer.get_weights())])
        file = f"{name}{ending}"
        model.save(HERE / file)
        pixels = images() * 85 + 128
        results[file] = {"scores": np.asarray(model.predict(pixels, verbose=0)).flatten().tolist()}
        results[file]["gradients"] = keras_gradients(model, pixels)


def main():
    HERE.mkdir(exist_ok=True)
    file = HERE / "results.json"
    results = json.loads(file.read_text()) if file.exists() else {}
    write_keras(results)
    if "torch" in sys.modules:
        write_torch(results)
    short = lambda of: {name: [float(f"{x:.9g}") for x in values] for name, values in of.items()}
    rows = ",\n".join(f"  {json.dumps(name)}: {json.dumps(short(results[name]))}" for name in sorted(results))
    file.write_text("{\n" + rows + "\n}\n")


main()
