"""Networks of Keras as files for `towers bench --model`, and the same of torchvision, timed.

usage: imported_networks.py keras DIR
       imported_networks.py onnx DIR NAME... [--side SIDE]
       imported_networks.py torch NAME train|infer BATCH SECONDS [eager|channels_last|compiled] [--side SIDE]
       imported_networks.py torch NAME train|infer BATCH SECONDS graph|compiled-graph [--side SIDE]

Needs keras with a backend, or torch and torchvision. The networks of Keras are resnet50, vgg16, densenet121, inceptionv3, and
vgg_cifar: ten 3x3 convolutions of 64 to 512 channels with batch normalization, for images of 32x32. Those of `onnx` and `torch` are
torchvision's by their names, and these. All have ten classes, and torchvision's no dropout. SIDE is that of the images. PyTorch's are
laid out as channels_last, but for `eager`. The last two ways are those of a GPU, in bf16: a whole step is a CUDA graph, with autocast
and fused SGD in training, and with weights of bf16 in inference; `compiled-graph` compiles the network first.
"""

import argparse
import resource
import time

SIZES = {"inceptionv3": 299, "inception_v3": 299, "vgg_cifar": 32}
WIDTHS = [(64, 2), (128, 2), (256, 3), (512, 3)]


def keras_files(folder):
    import keras
    from keras import applications, layers

    built_in = {
        "resnet50": applications.ResNet50,
        "vgg16": applications.VGG16,
        "densenet121": applications.DenseNet121,
        "inceptionv3": applications.InceptionV3,
    }
    vgg = keras.Sequential([keras.Input((32, 32, 3))])
    for width, count in WIDTHS:
        for _ in range(count):
            vgg.add(layers.Conv2D(width, 3, padding="same", use_bias=False))
            vgg.add(layers.BatchNormalization())
            vgg.add(layers.Activation("relu"))
        vgg.add(layers.MaxPooling2D(2))
    vgg.add(layers.GlobalAveragePooling2D())
    vgg.add(layers.Dense(10, activation="softmax"))
    models = {"vgg_cifar": vgg}
    for name, make in built_in.items():
        side = SIZES.get(name, 224)
        models[name] = make(weights=None, classes=10, input_shape=(side, side, 3))
    for name, model in models.items():
        with open(f"{folder}/{name}.json", "w") as file:
            file.write(model.to_json())


def torch_network(name):
    from torch import nn
    from torchvision import models

    if name == "vgg_cifar":
        parts, inputs = [], 3
        for width, count in WIDTHS:
            for _ in range(count):
                parts += [nn.Conv2d(inputs, width, 3, padding=1, bias=False), nn.BatchNorm2d(width), nn.ReLU(True)]
                inputs = width
            parts.append(nn.MaxPool2d(2))
        return nn.Sequential(*parts, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(inputs, 10))
    name = {"inceptionv3": "inception_v3"}.get(name, name)
    options = {"aux_logits": False, "init_weights": False} if name in ("inception_v3", "googlenet") else {}
    network = models.get_model(name, weights=None, num_classes=10, **options)
    for module in network.modules():
        if type(module).__name__ in ("Dropout", "StochasticDepth"):
            module.p = 0.0
    return network


def onnx_files(folder, names, side):
    """As they are trained: each normalization by itself."""
    import torch

    for name in names:
        images = torch.randn(2, 3, side or SIZES.get(name, 224), side or SIZES.get(name, 224))
        training = torch.onnx.TrainingMode.PRESERVE
        file = f"{folder}/{name}.onnx"
        network = torch_network(name).eval()
        torch.onnx.export(network, (images,), file, dynamo=False, training=training, do_constant_folding=False, opset_version=17)


def cpu_time(name, mode, batch, seconds, way, side):
    import torch
    import torch.nn.functional as F

    torch.set_num_threads(2)
    torch.manual_seed(0)
    layout = torch.contiguous_format if way == "eager" else torch.channels_last
    network = torch_network(name).to(memory_format=layout)
    network.train(mode == "train")
    optimizer = torch.optim.SGD(network.parameters(), lr=0.01, momentum=0.9)
    called = torch.compile(network) if way == "compiled" else network
    side = side or SIZES.get(name, 224)
    images = torch.randn(batch, 3, side, side).contiguous(memory_format=layout)
    labels = torch.randint(0, 10, (batch,))

    def step():
        if mode == "train":
            optimizer.zero_grad(set_to_none=True)
            F.cross_entropy(called(images), labels).backward()
            optimizer.step()
        else:
            with torch.inference_mode():
                called(images)

    step()
    steps, start = 0, time.perf_counter()
    while (taken := time.perf_counter() - start) < seconds or steps < 2:
        step()
        steps += 1
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(f"{name} {mode} {way}, batch {batch}: {steps * batch / taken:.2f} images/s ({memory:.0f} MB)")


def gpu_time(name, mode, batch, seconds, way, side):
    """A step as a CUDA graph, in bf16; the median of three repeats."""
    import json
    import statistics

    import torch
    import torch.nn.functional as F

    torch.manual_seed(0)
    torch.backends.cudnn.benchmark = True
    training = mode == "train"
    network = torch_network(name).cuda().to(memory_format=torch.channels_last).train(training)
    side = side or SIZES.get(name, 224)
    images = torch.randn(batch, 3, side, side, device="cuda").contiguous(memory_format=torch.channels_last)
    labels = torch.randint(0, 10, (batch,), device="cuda")
    if training:
        optimizer = torch.optim.SGD(network.parameters(), lr=0.01, momentum=0.9, fused=True)
    else:
        network, images = network.to(torch.bfloat16), images.to(torch.bfloat16)
    called = torch.compile(network) if way == "compiled-graph" else network

    def step():
        if not training:
            with torch.no_grad():
                called(images)
            return
        optimizer.zero_grad(set_to_none=True)  # in a recording, gradients are written, not added
        with torch.autocast("cuda", dtype=torch.bfloat16):
            loss = F.cross_entropy(called(images), labels)
        loss.backward()
        optimizer.step()

    began = time.perf_counter()
    aside = torch.cuda.Stream()
    aside.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(aside):
        for _ in range(4):
            step()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step()
    first = time.perf_counter() - began
    rates = []
    for _ in range(4):  # the first warms up
        torch.cuda.synchronize()
        start, steps = time.perf_counter(), 0
        while time.perf_counter() - start < seconds:
            for _ in range(8):
                graph.replay()
            steps += 8
            torch.cuda.synchronize()
        rates.append(steps * batch / (time.perf_counter() - start))
    print(json.dumps({
        "peer": "torch", "version": torch.__version__, "way": way, "model": name, "mode": mode, "batch": batch, "side": side,
        "precision": "bf16", "images_per_s": statistics.median(rates[1:]), "repeats": rates[1:], "first_step_s": first,
        "peak_gpu_mb": torch.cuda.max_memory_reserved() / 2**20, "device": torch.cuda.get_device_name()}))


def torch_time(**args):
    measure = gpu_time if args["way"].endswith("graph") else cpu_time
    measure(**args)


parser = argparse.ArgumentParser()
commands = parser.add_subparsers(dest="command", required=True)
command = commands.add_parser("keras")
command.add_argument("folder")
command = commands.add_parser("onnx")
command.add_argument("folder")
command.add_argument("names", nargs="+")
command.add_argument("--side", type=int)
command = commands.add_parser("torch")
command.add_argument("name")
command.add_argument("mode", choices=["train", "infer"])
command.add_argument("batch", type=int)
command.add_argument("seconds", type=float)
command.add_argument("way", nargs="?", default="channels_last", choices=["eager", "channels_last", "compiled", "graph", "compiled-graph"])
command.add_argument("--side", type=int)
args = vars(parser.parse_args())
{"keras": keras_files, "onnx": onnx_files, "torch": torch_time}[args.pop("command")](**args)
