"""Makes onnx_forms.json: small ONNX graphs, one or more for each form of each operator that is read, and what ONNX Runtime computes.

pip install numpy onnx onnxruntime; python tests/golden/onnx_forms.py
Made with numpy 2.4.6, onnx 1.23.2, onnxruntime 1.32.0.

A graph is in the file as its nodes and constants, from which the test makes it again. `says` is what towers says of a graph
that it refuses, and it must name the node. Each other graph must compute what ONNX Runtime computes.
"""

import json
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

from shared.numbers import numbers

SIDE, BATCH, CLASSES = 4, 2, 3
LAST = 28


def node(op, inputs, output="y", name=None, domain="", **attributes):
    """A node, which is called as its output, or `n` if that is `y`."""
    first = output.split()[0]
    name = {"y": "n"}.get(first, first) if name is None else name
    return [op, inputs, output, name, domain, attributes]


def ints(*values, dims=None):
    return {"dims": [len(values)] if dims is None else dims, "ints": list(values)}


def floats(*values, dims=None):
    return {"dims": [len(values)] if dims is None else dims, "floats": list(values)}


def scalar(value):
    return floats(value, dims=[])


# The types of floats of a constant, by the key that it is given by.
TYPES = {"floats": TensorProto.FLOAT, "halves": TensorProto.FLOAT16, "brains": TensorProto.BFLOAT16, "doubles": TensorProto.DOUBLE}


def typed(key, *values, dims=None):
    return {"dims": [len(values)] if dims is None else dims, key: list(values)}


def tensor(name, about):
    if isinstance(about, list):
        return numpy_helper.from_array(numbers(name, about), name)
    if "ints" in about:
        return numpy_helper.from_array(np.array(about["ints"], np.int64).reshape(about["dims"]), name)
    (key,) = about.keys() - {"dims"}
    values = np.array(about[key], np.float32).reshape(about["dims"])
    return numpy_helper.from_array(values.astype(helper.tensor_dtype_to_np_dtype(TYPES[key])), name)


def tail(form):
    """The dense layer behind a form."""
    if "head" not in form:
        return []
    return [node("Flatten", "y", "flat"), node("MatMul", "flat head", "logits")]


def proto(form):
    nodes = []
    for op, inputs, outputs, name, domain, attributes in form["nodes"] + tail(form):
        inputs = inputs.split(" ") if inputs else []
        nodes.append(helper.make_node(op, inputs, outputs.split(), name=name, domain=domain, **attributes))
    batch = BATCH if form.get("fixed") else "batch"
    shape = [batch, SIDE, SIDE, 3] if form.get("channels_last") else [batch, 3, SIDE, SIDE]
    images = helper.make_tensor_value_info("images", TensorProto.FLOAT, shape)
    output = "logits" if "head" in form else "y"
    logits = helper.make_tensor_value_info(output, TensorProto.FLOAT, None)
    constants = [tensor(name, about) for name, about in form["constants"].items()]
    constants += [tensor("head", [form["head"], CLASSES])] if "head" in form else []
    inputs = [images]
    if form.get("inputs"):
        inputs += [helper.make_tensor_value_info(own.name, own.data_type, own.dims) for own in constants]
    graph = helper.make_graph(nodes, "form", inputs, [logits], constants)
    sets = [helper.make_opsetid("", form["opset"])]
    sets += [helper.make_opsetid(domain, 1) for domain in {made[4] for made in form["nodes"]} - {""}]
    return helper.make_model(graph, opset_imports=sets, ir_version=10)


def computed(form):
    """What ONNX Runtime computes of the images; None if it refuses the graph."""
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 4
    images = numbers("images", (BATCH, SIDE, SIDE, 3))
    images = images if form.get("channels_last") else images.transpose(0, 3, 1, 2)
    try:
        session = onnxruntime.InferenceSession(proto(form).SerializeToString(), options, ["CPUExecutionProvider"])
        return session.run(None, {"images": images})[0]
    except Exception as error:
        form["refused"] = str(error)
        return None


FORMS = []


def form(name, nodes, constants=None, says="", opset=20, whole=False, half=False, **more):
    """A graph of these nodes, from `images` to `y`, with a dense layer behind it unless it is whole. `half` tells of 16-bit floats,
    which are rounded there."""
    nodes = [nodes] if isinstance(nodes[0], str) else nodes
    made = {"name": name, "opset": opset, "nodes": nodes, "constants": dict(constants or {}), **more}
    made |= {"half": True} if half else {}
    before = computed(made)
    if not whole:
        made["head"] = 48 if before is None else before.size // BATCH
    logits = computed(made)
    if says:
        made |= {"says": says, "onnxruntime": "refuses" if logits is None else "accepts"}
    else:
        assert logits is not None, f"{name}: ONNX Runtime refuses it: {made['refused']}"
        made["logits"] = [float(f"{x:.7g}") for x in logits.ravel()]
    made.pop("refused", None)
    FORMS.append(made)


def sums():
    k = {"k": scalar(0.5)}
    for op in ["Add", "Sub", "Mul", "Div"]:
        form(f"{op}_number", node(op, "images k"), k)
        form(f"{op}_colors", node(op, "images k"), {"k": [3, 1, 1]})
        form(f"{op}_colors_of_a_batch", node(op, "images k"), {"k": [1, 3, 1, 1]})
        form(f"{op}_columns", node(op, "images k"), {"k": [SIDE]}, f"is a {op} of (batch, 3, 4, 4) and [4]")
        form(f"{op}_more_axes", node(op, "images k"), {"k": [1, 1, 1, 1, 1]}, f"is a {op} of")
        form(f"{op}_attribute", node(op, "images k", axis=1), k, f"is a {op} with the attribute `axis`")
        form(f"{op}_three", node(op, "images k k"), k, f"is a {op} of 3 operands")
    form("Add_left", node("Add", "k images"), k)
    form("Sub_left", node("Sub", "k images"), k)
    form("Div_left", node("Div", "k images"), k, "is a Div in a form")
    form("Add_layers", [node("Relu", "images", "a"), node("Add", "a images")])
    form("Mul_layers", [node("Relu", "images", "a", "a"), node("Mul", "a images")])
    gate = [node("GlobalAveragePool", "images", "p", "p"), node("Sigmoid", "p", "s", "s")]
    form("Mul_gate", [*gate, node("Mul", "images s")])
    form("Mul_gate_left", [*gate, node("Mul", "s images")])
    form("Add_gate", [*gate, node("Add", "s images")])
    one = [node("Conv", "images w", "c", "c"), node("Add", "c k")]
    form("Add_to_one_channel", one, {"w": [1, 3, 1, 1], "k": floats(0.1, 0.2, 0.3, dims=[3, 1, 1])}, "is a Add of")
    same = {"w": [1, 3, 1, 1], "k": floats(0.1, 0.1, 0.1, dims=[3, 1, 1])}
    form("Add_to_one_channel_the_same", one, same, "is a Add of")
    form("Add_bias", [node("Conv", "images w", "c", "c"), node("Add", "c b")], {"w": [2, 3, 1, 1], "b": [2, 1, 1]})
    columns = [node("Conv", "images w", "c", "c"), node("Add", "c b")]
    form("Add_bias_along_columns", columns, {"w": [4, 3, 1, 1], "b": [4]}, "is a Add of (batch, 4, 4, 4) and [4]")
    # Another node reads what has no bias.
    twice = [node("Conv", "images w", "c", "c"), node("Identity", "c", "d", "d"), node("Add", "d b", "e", "e"), node("Add", "c e")]
    form("Add_bias_beside_another_reader", twice, {"w": [2, 3, 1, 1], "b": [2, 1, 1]})
    output = [node("Flatten", "images", "v", "v"), node("MatMul", "v w", "y", "m"), node("Add", "y b", "z", "z")]
    form("Add_bias_behind_the_output", output, {"w": [48, 3], "b": [3]}, whole=True)


def activations():
    for op, opset in [("Relu", 20), ("Sigmoid", 20), ("Tanh", 20), ("Elu", 20), ("Gelu", 20), ("Swish", LAST), ("Identity", 20)]:
        # ONNX Runtime has no kernel of the newest one yet.
        if op != "Swish":
            form(op, node(op, "images"), opset=opset)
        form(f"{op}_attribute", node(op, "images", slope=1.0), {}, f"is a {op} with the attribute `slope`", opset)
        form(f"{op}_two", node(op, "images images"), {}, f"is a {op} ", opset)
    form("Elu_alpha", node("Elu", "images", alpha=2.0), {}, "is a Elu with alpha=2")
    form("Elu_alpha_of_another_type", node("Elu", "images", alpha=1), {}, "must have a float as its `alpha`")
    form("Gelu_tanh", node("Gelu", "images", approximate="tanh"), {}, "is a Gelu with an approximation")
    form("LeakyRelu", node("LeakyRelu", "images", alpha=0.1))
    form("LeakyRelu_default", node("LeakyRelu", "images"))
    form("HardSigmoid", node("HardSigmoid", "images"))
    form("HardSigmoid_sixth", node("HardSigmoid", "images", alpha=1 / 6, beta=0.5))
    form("HardSigmoid_offset", node("HardSigmoid", "images", beta=0.25))
    form("HardSwish", node("HardSwish", "images"))
    form("Softplus", node("Softplus", "images"))
    form("Mish", node("Mish", "images"))
    form("Cos", node("Cos", "images"), {}, "is a Cos, which is not supported; supported are Abs, Add, ")
    form("Domain", node("Gelu", "images", domain="com.microsoft"), {}, "is a Gelu of the domain `com.microsoft`")
    zero, one = {"k": scalar(0.0)}, {"k": scalar(1.0), "l": scalar(0.1)}
    form("Max_zero", node("Max", "images k"), zero)
    form("Max_zero_left", node("Max", "k images"), zero)
    form("Max_one", node("Max", "images k"), one, "is a Max from 1 to inf")
    form("Max_three", node("Max", "images k l"), {"k": scalar(0.0), "l": scalar(0.1)}, "is a Max from 0.1 to inf")
    form("Clip_relu", node("Clip", "images k"), zero)
    form("Clip_largest", node("Clip", "images k l"), {**zero, "l": scalar(3.4028234663852886e38)})
    form("Clip_six", node("Clip", "images k l"), {**zero, "l": scalar(0.3)})
    form("Clip_only_max", node("Clip", "images  l"), {"l": scalar(0.3)}, "is a Clip from -inf to 0.3")
    cast = [node("Constant", "", "i", "i", value_int=6), node("Cast", "i", "l", "l", to=1), node("Clip", "images k l")]
    form("Clip_six_by_a_cast", cast, zero)
    high = [node("ReduceMax", "images", "l", "l", keepdims=0), node("Clip", "images k l")]
    form("Clip_by_the_images", high, zero, "its node `l` is a ReduceMax")
    low = [node("Identity", "images", "l", "l"), node("Clip", "images k l")]
    form("Clip_by_a_layer", low, zero, "is a Clip whose operand `l` is computed")
    form("Clip_attributes", node("Clip", "images", min=0.0), opset=10)
    form("Clip_attributes_six", node("Clip", "images", min=0.0, max=0.3), opset=10)
    form("Clip_attributes_late", node("Clip", "images", min=0.0), {}, "is a Clip with the attribute `min`", 11)
    gelu = lambda half="h", one="o", root="r": [
        node("Div", f"images {root}", "a", "a"), node("Erf", "a", "b", "b"), node("Add", f"b {one}", "c", "c"),
        node("Mul", "images c", "d", "d"), node("Mul", f"d {half}"),
    ]
    numbers_ = {"r": scalar(2**0.5), "o": scalar(1.0), "h": scalar(0.5), "z": scalar(0.4)}
    form("Gelu_parts", gelu(), numbers_)
    form("Gelu_another_half", gelu(half="z"), numbers_, "its node `b` is a Erf in a form")
    form("Gelu_another_one", gelu(one="z"), numbers_, "its node `b` is a Erf in a form")
    form("Gelu_another_root", gelu(root="z"), numbers_, "its node `b` is a Erf in a form")
    silu = [node("Sigmoid", "images", "s", "s"), node("Mul", "images s")]
    form("Silu", silu)
    form("Silu_of_another", [node("Relu", "images", "r", "r"), silu[0], node("Mul", "r s")], {})


def types():
    for to, what in [(6, "int32"), (7, "int64"), (9, "bool")]:
        there = [node("Cast", "images", "i", "i", to=to), node("Cast", "i", to=1)]
        form(f"Cast_{what}", there, {}, f"its node `i` is a Cast to another type than floats (its `to` is {to})")
    form("Cast_double", [node("Cast", "images", "i", "i", to=11), node("Cast", "i", to=1)])
    for to, what in [(10, "float16"), (16, "bfloat16")]:
        form(f"Cast_{what}", [node("Cast", "images", "i", "i", to=to), node("Cast", "i", to=1)], half=True)
    form("Cast_float", node("Cast", "images", to=1))
    form("Cast_without", node("Cast", "images"), {}, "is a Cast to another type than floats (its `to` is 0)")


def windows():
    w, b = {"w": [2, 3, 3, 3]}, {"w": [2, 3, 3, 3], "b": [2]}
    form("Conv", node("Conv", "images w"), w)
    form("Conv_bias", node("Conv", "images w b", pads=[1, 0, 2, 1], strides=[1, 2], kernel_shape=[3, 3], group=1), b)
    form("Conv_same", node("Conv", "images w", auto_pad="SAME_UPPER", strides=[2, 2]), w)
    form("Conv_valid", node("Conv", "images w", auto_pad="VALID"), w)
    form("Conv_lower", node("Conv", "images w", auto_pad="SAME_LOWER", strides=[2, 2]), w, "must have its padding in")
    form("Conv_negative", node("Conv", "images w", pads=[-1, 0, 2, 1]), w, "must have its padding in")
    form("Conv_two_pads", node("Conv", "images w", pads=[1, 1]), w, "must have its padding in")
    form("Conv_kernel_shape", node("Conv", "images w", kernel_shape=[1, 3]), w, "has the kernel_shape [1, 3], but weights of [3, 3]")
    form("Conv_dilations", node("Conv", "images w", dilations=[1, 2], pads=[0, 1, 0, 2]), w)
    form("Conv_groups", node("Conv", "images w", group=3, pads=[1, 1, 1, 1], dilations=[2, 2]), {"w": [6, 1, 3, 3]})
    form("Conv_no_groups", node("Conv", "images w", group=0), w, "must have a number from 1 on as its `group`")
    form("Conv_strides", node("Conv", "images w", strides=[2]), w, "must have two numbers from 1 on as its `strides`")
    form("Conv_types", node("Conv", "images w", strides=[1.0, 1.0]), w, "must have whole numbers as its `strides`")
    form("Conv_attribute", node("Conv", "images w", activation="Relu"), w, "is a Conv with the attribute `activation`")
    form("Conv_four", node("Conv", "images w b b"), b, "is a Conv with the operand `b`")
    form("Conv_bias_of_images", node("Conv", "images w b"), {"w": [2, 3, 3, 3], "b": [2, 1, 1]}, "must have a number for each filter")
    form("Conv_computed", [node("Relu", "w", "v", "v"), node("Conv", "images v")], w)
    form("Conv_nothing", node("Conv", "images"), {}, "is a Conv without weights of 4 axes")
    form("Conv_of_a_vector", [node("Flatten", "images", "v", "v"), node("Conv", "v w")], w, "is a Conv of 2 axes")
    form("Conv_twice", [node("Conv", "images w", "c", "c"), node("Conv", "images w", "d", "d"), node("Add", "c d")], w, "its node `d` uses the weights `w` again")
    form("Conv_unknown", node("Conv", "nothing w"), w, "reads `nothing`, which nothing before it gives")
    form("Conv_large", node("Conv", "images w"), {"w": [2, 3, 5, 5]}, "has windows that are larger than its images")
    for op in ["MaxPool", "AveragePool"]:
        form(op, node(op, "images", kernel_shape=[2, 2]))
        form(f"{op}_strides", node(op, "images", kernel_shape=[2, 3], strides=[2, 1]))
        form(f"{op}_pads", node(op, "images", kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1]))
        form(f"{op}_uneven", node(op, "images", kernel_shape=[3, 3], strides=[2, 2], pads=[0, 1, 1, 0]))
        form(f"{op}_same", node(op, "images", kernel_shape=[3, 3], strides=[2, 2], auto_pad="SAME_UPPER"))
        form(f"{op}_ceil", node(op, "images", kernel_shape=[3, 3], strides=[2, 2], ceil_mode=1))
        form(f"{op}_ceil_pads", node(op, "images", kernel_shape=[2, 2], strides=[2, 2], pads=[1, 1, 0, 0], ceil_mode=1))
        form(f"{op}_dilations", node(op, "images", kernel_shape=[2, 2], dilations=[2, 2]), {}, f"is a {op} with dilations=[2, 2]")
        form(f"{op}_nothing", node(op, "images"), {}, "lacks its `kernel_shape`")
        form(f"{op}_unnamed", node(op, "images", "y", "", kernel_shape=[3, 3], dilations=[2, 2]), {}, f"its node with the output `y` is a {op} with dilations=[2, 2]")
    zeros = {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1]}
    form("AveragePool_counts_zeros", node("AveragePool", "images", count_include_pad=1, **zeros))
    form("AveragePool_counts_one_side", node("AveragePool", "images", count_include_pad=1, kernel_shape=[3, 2], pads=[0, 1, 1, 0]))
    form("AveragePool_counts_same", node("AveragePool", "images", count_include_pad=1, kernel_shape=[3, 3], strides=[2, 2], auto_pad="SAME_UPPER"))
    form("AveragePool_counts_ceil", node("AveragePool", "images", count_include_pad=1, ceil_mode=1, strides=[2, 2], **zeros))
    form("AveragePool_counts", node("AveragePool", "images", count_include_pad=1, kernel_shape=[2, 2]))
    form("MaxPool_order", node("MaxPool", "images", kernel_shape=[2, 2], storage_order=1), {}, "is a MaxPool with storage_order=1")
    form("MaxPool_places", node("MaxPool", "images", "y z", kernel_shape=[2, 2]))
    form("Relu_places", node("Relu", "images", "y z"), {}, "is a Relu with 2 outputs")
    pad = lambda **a: [node("Pad", "images p", "a", "pad", **a), node("Conv", "a w", "y", "c")]
    form("Pad", pad(), {**w, "p": ints(0, 0, 1, 0, 0, 0, 2, 1)})
    form("Pad_reflect", pad(mode="reflect"), {**w, "p": ints(0, 0, 1, 0, 0, 0, 2, 1)}, "its node `pad` is a Pad of anything but zeros")
    form("Pad_negative", pad(), {**w, "p": ints(0, 0, 1, 0, 0, 0, -1, 1)})
    form("Pad_cuts", node("Pad", "images p"), {"p": ints(0, 0, -1, 0, 0, 0, 0, -2)})
    form("Pad_cuts_all", node("Pad", "images p"), {"p": ints(0, 0, -3, 0, 0, 0, -1, 0)}, "has windows that are larger than its images")
    form("Pad_alone", node("Pad", "images p"), {"p": ints(0, 0, 1, 0, 0, 0, 2, 1)})
    zeros_before = [node("Pad", "images p", "a", "pad"), node("MaxPool", "a", kernel_shape=[3, 3], strides=[2, 2])]
    form("Pad_before_a_pool", zeros_before, {"p": ints(0, 0, 1, 1, 0, 0, 1, 1)})
    form("Pad_channels", pad(), {"w": [2, 4, 3, 3], "p": ints(0, 1, 1, 0, 0, 0, 2, 1)}, "its node `pad` is a Pad of [0, 1, 1")
    values = lambda inputs: [node("Pad", inputs, "a", "pad"), node("Conv", "a w", "y", "c")]
    one = {**w, "p": ints(0, 0, 1, 0, 0, 0, 2, 1), "v": scalar(1.0), "z": scalar(0.0), "x": ints(0, 1, 2, 3)}
    form("Pad_zero", values("images p z"), one)
    form("Pad_one", values("images p v"), one, "its node `pad` is a Pad of anything but zeros")
    form("Pad_axes", values("images p z x"), one, "is a Pad with the operand `x`")
    computed_ = [node("Cast", "k", "v", "v", to=1), *values("images p v")]
    form("Pad_by_a_cast", computed_, {**w, "p": ints(0, 0, 1, 0, 0, 0, 2, 1), "k": ints(1, dims=[])}, "its node `pad` is a Pad of anything but zeros")
    old = [node("Pad", "images", "a", "pad", pads=[0, 0, 1, 0, 0, 0, 2, 1]), node("Conv", "a w", "y", "c")]
    form("Pad_attributes", old, w, opset=10)


def larger():
    scales = {"s": floats(1, 1, 2, 3)}
    resize = lambda inputs="images  s", **a: node("Resize", inputs, **a)
    plain = {"coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
    form("Resize", resize(), scales)
    form("Resize_asymmetric", resize(**plain), scales)
    form("Resize_asymmetric_rounded", resize(coordinate_transformation_mode="asymmetric"), scales, "is a Resize with mode=nearest, asymmetric and round_prefer_floor")
    form("Resize_linear", resize(mode="linear"), scales)
    form("Resize_linear_pytorch", resize(mode="linear", coordinate_transformation_mode="pytorch_half_pixel"), scales)
    form("Resize_linear_corners", resize(mode="linear", coordinate_transformation_mode="align_corners"), scales, "is a Resize with mode=linear, align_corners and")
    form("Resize_cubic", resize(mode="cubic"), scales, "is a Resize with mode=cubic")
    form("Resize_sizes", resize("images   z", **plain), {"z": ints(BATCH, 3, 2 * SIDE, 3 * SIDE)})
    form("Resize_smaller", resize(), {"s": floats(1, 1, 0.5, 0.5)}, "is a Resize by anything but a whole number")
    form("Resize_part", resize(), {"s": floats(1, 1, 1.5, 1.5)}, "is a Resize by anything but a whole number")
    form("Resize_channels", resize(), {"s": floats(1, 2, 2, 2)}, "is a Resize by anything but a whole number")
    form("Resize_10", node("Resize", "images s"), scales, opset=10)
    form("Upsample", node("Upsample", "images s"), scales, opset=9)
    form("Upsample_linear", node("Upsample", "images s", mode="linear"), scales, "is a Upsample with mode=linear, asymmetric", 9)
    form("Upsample_attribute", node("Upsample", "images", scales=[1.0, 1.0, 2.0, 2.0]), opset=8)


def normalizations():
    form("LRN", node("LRN", "images", size=3))
    form("LRN_options", node("LRN", "images", size=3, alpha=0.5, beta=0.6, bias=1.5))
    form("LRN_nothing", node("LRN", "images"), {}, "lacks its `size`")
    bn = {"g": [3], "b": [3], "m": [3], "v": floats(0.5, 1.0, 2.0)}
    form("BatchNormalization", node("BatchNormalization", "images g b m v"), bn)
    form("BatchNormalization_epsilon", node("BatchNormalization", "images g b m v", epsilon=0.1, momentum=0.8), bn)
    vector = [node("Flatten", "images", "f", "f"), node("BatchNormalization", "f g b m v")]
    form("BatchNormalization_vector", vector, {"g": [48], "b": [48], "m": [48], "v": floats(*[1.5] * 48)})
    form("BatchNormalization_axes", node("BatchNormalization", "images g b m v"), {**bn, "g": [3, 1, 1]}, "must have a vector as its operand number 2")
    form("BatchNormalization_four", node("BatchNormalization", "images g b m"), bn, "must have a vector as its operand number 5")
    form("BatchNormalization_attribute", node("BatchNormalization", "images g b m v", is_test=1), bn, "with the attribute `is_test`")
    form("BatchNormalization_spatial", node("BatchNormalization", "images g b m v", spatial=0), bn, "with spatial=0", 8)
    w = {"w": [4, 3, 1, 1]}
    conv = node("Conv", "images w", "c", "c")
    form("GroupNormalization", [conv, node("GroupNormalization", "c g b", num_groups=2)], {**w, "g": [4], "b": [4]}, opset=21)
    form("GroupNormalization_old", [conv, node("GroupNormalization", "c g b", num_groups=2)], {**w, "g": [2], "b": [2]}, "of the operators before version 21", 20)
    form("GroupNormalization_groups", [conv, node("GroupNormalization", "c g b")], {**w, "g": [4], "b": [4]}, "lacks its `num_groups`", 21)
    form("GroupNormalization_type", [conv, node("GroupNormalization", "c g b", num_groups=2, stash_type=10)], {**w, "g": [4], "b": [4]}, "with stash_type=10", 21)
    form("InstanceNormalization", [conv, node("InstanceNormalization", "c g b", epsilon=0.01)], {**w, "g": [4], "b": [4]})
    form("InstanceNormalization_axes", [conv, node("InstanceNormalization", "c g b")], {**w, "g": [1, 4], "b": [4]}, "must have a vector")
    steps = lambda first="r", back="s": [
        conv, node("Reshape", f"c {first}", "d", "d"), node("InstanceNormalization", "d one zero", "e", "e", epsilon=1e-3),
        node("Reshape", f"e {back}", "f", "f"), node("Mul", "f g", "h", "h"), node("Add", "h b"),
    ]
    parts = {**w, "r": ints(0, 2, -1), "s": ints(-1, 4, 4, 4), "one": floats(1, 1), "zero": floats(0, 0), "g": [4, 1, 1], "b": [4, 1, 1]}
    form("Group_parts", steps(), parts)
    form("Group_parts_of_a_batch", steps(), {**parts, "g": [1, 4, 1, 1], "b": [1, 4, 1, 1]})
    form("Group_parts_gamma_along_columns", steps(), {**parts, "g": [4]}, "its node `h` is a Mul of (batch, 4, 4, 4) and [4]")
    form("Group_parts_beta_along_rows", steps(), {**parts, "b": [4, 1]}, "is a Add of (batch, 4, 4, 4) and [4, 1]")
    form("Group_parts_scaled", steps(), {**parts, "one": floats(1, 2)}, "its node `e` is a InstanceNormalization of groups")
    form("Group_parts_other_shape", steps(), {**parts, "s": ints(-1, 2, 8, 4), "g": [2, 1, 1], "b": [2, 1, 1]}, "its node `h` is a Mul of (batch, 2, 8, 4) and [2, 1, 1]")
    form("Group_parts_other_rows", steps(), {**parts, "s": ints(0, 4, 2, 8)})
    form("Group_parts_across_images", steps(), {**parts, "r": ints(1, 2, -1)}, "its node `d` is a Reshape from (batch, 4, 4, 4) to (1, 2, -1)")
    form("Group_parts_of_three", steps(), {**parts, "r": ints(0, 3, -1)}, "its node `d` is a Reshape from")


def dense():
    flat = node("Flatten", "images", "v", "v")
    end = {"whole": True}
    w, t = {"w": [48, 3], "b": [3]}, {"w": [3, 48], "b": [3]}
    form("Gemm", [flat, node("Gemm", "v w")], w, **end)
    form("Gemm_bias", [flat, node("Gemm", "v w b", transB=1, alpha=1.0, beta=1.0, transA=0)], t, **end)
    form("Gemm_bias_of_rows", [flat, node("Gemm", "v w b")], {**w, "b": [1, 3]}, **end)
    form("Gemm_one_bias", [flat, node("Gemm", "v w b")], {**w, "b": [1]}, **end)
    form("Gemm_scalar_bias", [flat, node("Gemm", "v w b")], {**w, "b": []}, **end)
    form("Gemm_bias_along_the_batch", [flat, node("Gemm", "v w b")], {"w": [48, 2], "b": [2, 1]}, "is a Gemm with a bias of [2, 1]", **end)
    form("Gemm_alpha", [flat, node("Gemm", "v w b", alpha=0.5)], w, **end)
    form("Gemm_beta", [flat, node("Gemm", "v w b", beta=0.5)], w, **end)
    form("Gemm_beta_of_nothing", [flat, node("Gemm", "v w", beta=0.5)], w, **end)
    form("Gemm_trans", [flat, node("Gemm", "v w", transA=1)], {"w": [2, 3]}, "is a Gemm with transA=1", **end)
    form("Gemm_flag", [flat, node("Gemm", "v w", transB=2)], t, "must have 0 or 1 as its `transB`", **end)
    form("Gemm_broadcast", [flat, node("Gemm", "v w b", broadcast=1)], w, "is a Gemm with the attribute `broadcast`", **end)
    form("Gemm_image", node("Gemm", "images w"), {"w": [4, 3]}, "is a Gemm of an image, (batch, 3, 4, 4)", **end)
    form("MatMul", [flat, node("MatMul", "v w")], w, **end)
    form("MatMul_bias", [flat, node("MatMul", "v w", "m", "m"), node("Add", "b m")], w, **end)
    form("MatMul_bias_of_rows", [flat, node("MatMul", "v w", "m", "m"), node("Add", "m b")], {**w, "b": [1, 3]}, **end)
    form("MatMul_bias_of_more_axes", [flat, node("MatMul", "v w", "m", "m"), node("Add", "m b")], {**w, "b": [1, 1, 3]}, "is a Add of", **end)
    form("MatMul_transposed", [flat, node("Transpose", "w", "t", "t", perm=[1, 0]), node("MatMul", "v t")], t, **end)
    form("MatMul_attribute", [flat, node("MatMul", "v w", transB=1)], w, "is a MatMul with the attribute `transB`", **end)
    form("MatMul_columns", node("MatMul", "images w"), {"w": [4, 4]}, "is a MatMul of an image, (batch, 3, 4, 4)")
    last = lambda *nodes: [flat, node("Gemm", "v w b", "z", "z"), *nodes]
    for op in ["Softmax", "LogSoftmax"]:
        form(op, last(node(op, "z")), w, **end)
        form(f"{op}_axis", last(node(op, "z", axis=1)), w, **end)
        form(f"{op}_old", last(node(op, "z")), w, opset=12, **end)
        form(f"{op}_batch", last(node(op, "z", axis=0)), w, f"is a {op} of the axis 0 of (batch, 3)", **end)
        pooled = [node("GlobalAveragePool", "images", "p", "p"), node(op, "p", "q", "q", axis=1), node("Flatten", "q")]
        form(f"{op}_image", pooled, {}, "layer q: softmax is possible in the last layer alone", **end)
        pooled = [node("GlobalAveragePool", "images", "p", "p"), node(op, "p", "q", "q"), node("Flatten", "q")]
        form(f"{op}_column", pooled, {}, f"its node `q` is a {op} of the axis -1 of (batch, 3, 1, 1)", **end)
        form(f"{op}_images", [node(op, "images", "q", "q", axis=1), node("GlobalAveragePool", "q", "p", "p"), node("Flatten", "p")], {}, f"its node `q` is a {op} of the axis 1 of", **end)
    form("Dropout", last(node("Dropout", "z r")), {**w, "r": scalar(0.3)}, **end)
    form("Dropout_seed", last(node("Dropout", "z", seed=3)), w, **end)
    form("Dropout_old", last(node("Dropout", "z", ratio=0.3)), w, opset=10, **end)
    form("Dropout_late", last(node("Dropout", "z", ratio=0.3)), w, "is a Dropout with the attribute `ratio`", **end)
    form("Dropout_computed", last(node("Sigmoid", "z", "r", "r"), node("Dropout", "z r")), w, "is a Dropout whose operand `r` is computed", **end)
    for name, to, says in [
        ("same", ints(-1, 3), ""), ("copied", ints(0, 0), ""), ("of_another_batch", ints(-1, 6), "is a Reshape from (batch, 3) to (-1, 6)"),
        ("of_one", ints(-1, 1), "is a Reshape from (batch, 3) to (-1, 1)"), ("of_all", ints(-1), "is a Reshape from (batch, 3) to (-1)"),
        ("of_three", ints(0, 3, 1), "its output has axes of (batch, 3, 1)"),
    ]:
        form(f"Reshape_behind_the_last_{name}", last(node("Reshape", "z to")), {**w, "to": to}, says, **end)


def shapes():
    pooled = node("GlobalAveragePool", "images", "p", "p")
    for name, to, says in [
        ("rest", ints(0, -1), ""), ("all", ints(-1, 48), ""), ("one", ints(1, -1), "is a Reshape from (batch, 3, 4, 4) to (1, -1)"), ("batch", ints(2, -1), "is a Reshape from (batch, 3, 4, 4) to (2, -1)"),
        ("halves", ints(-1, 24), "is a Reshape from (batch, 3, 4, 4) to (-1, 24)"), ("same", ints(0, 3, 4, -1), ""),
        ("other", ints(0, 4, 4, 3), "is a Reshape from (batch, 3, 4, 4) to (0, 4, 4, 3)"), ("two", ints(-1, -1), "is a Reshape from"),
    ]:
        form(f"Reshape_{name}", node("Reshape", "images to"), {"to": to}, says)
    form("Reshape_zero", node("Reshape", "images to", allowzero=1), {"to": ints(0, -1)}, "is a Reshape from (batch, 3, 4, 4) to (0, -1)")
    form("Reshape_computed", [node("Relu", "images", "to", "to"), node("Reshape", "images to")], {}, "is a Reshape whose operand `to` is computed")
    form("Reshape_floats", node("Reshape", "images to"), {"to": floats(-1, 48)}, "is a Reshape without whole numbers as its shape")
    form("Reshape_attribute", node("Reshape", "images to", shape=[1]), {"to": ints(0, -1)}, "is a Reshape with the attribute `shape`")
    by_shape = lambda *nodes, axis=0: [node("Shape", "images", "s", "s"), node("Gather", "s at", "g", "g", axis=axis), *nodes, node("Reshape", "images t")]
    concat = node("Concat", "g rest", "t", "t", axis=0)
    form("Shape_batch", by_shape(concat), {"at": ints(0), "rest": ints(-1)})
    form("Shape_last", by_shape(concat), {"at": ints(-1), "rest": ints(-1)}, "is a Reshape from (batch, 3, 4, 4) to (4, -1)")
    form("Shape_beyond", by_shape(concat), {"at": ints(4), "rest": ints(-1)}, "its node `g` is a Gather in a form")
    scalar_ = [node("Unsqueeze", "g axes", "u", "u"), node("Concat", "u rest", "t", "t", axis=0)]
    form("Shape_scalar", by_shape(*scalar_), {"at": ints(0, dims=[]), "rest": ints(-1), "axes": ints(0)})
    product = [node("Mul", "g four", "m", "m"), node("Concat", "m rest", "t", "t", axis=0)]
    form("Shape_product", by_shape(*product), {"at": ints(0), "four": ints(4), "rest": ints(-1)}, "is a Reshape from (batch, 3, 4, 4) to (?, -1)")
    part = [node("Shape", "images", "s", "s", start=0, end=1), node("Concat", "s rest", "t", "t", axis=0), node("Reshape", "images t")]
    form("Shape_part", part, {"rest": ints(-1)})
    as_floats = [node("Shape", "images", "s", "s"), node("Cast", "s", "f", "f", to=1), node("Gather", "f at", "g", "g"), node("Add", "images g")]
    form("Shape_as_floats", as_floats, {"at": ints(0, dims=[])}, "its node `f` is a Cast")
    for axis, says in [(1, ""), (-3, ""), (0, "at the axis 0"), (2, "at the axis 2"), (-1, "at the axis -1")]:
        form(f"Flatten_{axis}", node("Flatten", "images", axis=axis), {}, says)
    form("Flatten_type", node("Flatten", "images", axis=1.0), {}, "must have a whole number as its `axis`")
    form("Squeeze", [pooled, node("Squeeze", "p a")], {"a": ints(2, 3)})
    form("Squeeze_negative", [pooled, node("Squeeze", "p a")], {"a": ints(-1, -2)})
    form("Squeeze_all", [pooled, node("Squeeze", "p")])
    form("Squeeze_two_steps", [pooled, node("Squeeze", "p a", "q", "q"), node("Squeeze", "q a")], {"a": ints(-1)})
    form("Squeeze_one_step", [pooled, node("Squeeze", "p a")], {"a": ints(-1)})
    form("Squeeze_channels", [pooled, node("Squeeze", "p a")], {"a": ints(1)}, "is a Squeeze of (batch, 3, 1, 1) at the axes [1]")
    form("Squeeze_images", node("Squeeze", "images a"), {"a": ints(2, 3)}, "is a Squeeze of (batch, 3, 4, 4) at the axes [2, 3]")
    form("Squeeze_old", [pooled, node("Squeeze", "p", axes=[2, 3])], opset=12)
    form("Squeeze_late", [pooled, node("Squeeze", "p", axes=[2, 3])], {}, "is a Squeeze with the attribute `axes`")
    form("Transpose", [node("Transpose", "images", "t", "t", perm=[0, 2, 3, 1]), node("Flatten", "t")])
    form("Transpose_columns", node("Transpose", "images", perm=[0, 1, 3, 2]), {}, "its node `logits` is a MatMul of axes of")
    form("Transpose_default", node("Transpose", "images"), {}, "is a Transpose of (batch, 3, 4, 4) with perm=[3, 2, 1, 0]")
    form("Transpose_then_relu", [node("Transpose", "images", "t", "t", perm=[0, 2, 3, 1]), node("Relu", "t")])
    form("Unsqueeze_images", node("Unsqueeze", "images a"), {"a": ints(0)}, "is a Unsqueeze of (batch, 3, 4, 4) at the axes [0]")
    form("Concat", [node("Relu", "images", "r", "r"), node("Concat", "images r", axis=1)])
    form("Concat_negative", [node("Relu", "images", "r", "r"), node("Concat", "images r", axis=-3)])
    form("Concat_rows", [node("Relu", "images", "r", "r"), node("Concat", "images r", axis=2)], {}, "is a Concat of the axis 2")
    form("Concat_without", [node("Relu", "images", "r", "r"), node("Concat", "images r")], {}, "lacks its `axis`")
    form("Concat_constant", node("Concat", "images k", axis=1), {"k": [2, 1, 4, 4]}, "is a Concat in a form")
    for op in ["ReduceMean", "ReduceMax"]:
        form(op, node(op, "images a"), {"a": ints(2, 3)})
        form(f"{op}_vector", node(op, "images a", keepdims=0), {"a": ints(-1, -2)})
        form(f"{op}_rows", node(op, "images a"), {"a": ints(2)}, f"is a {op} over the axes [2]")
        form(f"{op}_channels", node(op, "images a"), {"a": ints(1, 2)}, f"is a {op} over the axes [1, 2]")
        form(f"{op}_all", node(op, "images"), {}, f"is a {op} over the axes []")
        form(f"{op}_old", node(op, "images", axes=[2, 3]), opset=17)
        form(f"{op}_late", node(op, "images", axes=[2, 3]), {}, f"is a {op} ")
        form(f"{op}_vectors", [node("Flatten", "images", "v", "v"), node(op, "v a")], {"a": ints(-1)}, f"is a {op} over the axes [-1] of (batch, 48)")
    for op in ["GlobalAveragePool", "GlobalMaxPool"]:
        form(op, node(op, "images"))
        form(f"{op}_attribute", node(op, "images", axis=1), {}, f"is a {op} with the attribute `axis`")
    form("GlobalAveragePool_plus_image", [pooled, node("Add", "p images")])


def values():
    form("Constant_floats", [node("Constant", "", "k", "k", value_floats=[0.5]), node("Mul", "images k")])
    form("Constant_float", [node("Constant", "", "k", "k", value_float=0.5), node("Mul", "images k")])
    form("Constant_word", [node("Constant", "", "k", "k", value_string="a"), node("Mul", "images k")], {}, "its node `k` is a Constant without a value")
    two = [node("Constant", "", "k", "k", value_float=0.5, value_int=2), node("Mul", "images k")]
    form("Constant_two", two, {}, "its node `k` is a Constant with the attribute `value_int`")
    form("Twice", [node("Relu", "images", "y", "a"), node("Tanh", "images")], {}, "gives `y`, which is there before it")
    form("Gives_the_images", [node("Relu", "images", "images"), node("Relu", "images")], {}, "gives `images`, which is there before it")
    form("Later", [node("Relu", "z", "y", "a"), node("Relu", "images", "z", "b")], {}, "its node `a` reads `z`, which nothing before it gives")
    form("Version_old", node("Relu", "images"), {}, "its operators are of version 2, but must be of one from 3 to 28", 2)
    form("Version_new", node("Relu", "images"), {}, "its operators are of version 99, but must be", 99)


def more_types():
    w = [round(0.01 * k * k - 0.4, 3) for k in range(12)]
    there, back = node("Cast", "images", "i", "i", to=10), node("Cast", "c", to=1)
    weights = {"w": typed("halves", *w, dims=[4, 3, 1, 1]), "b": typed("halves", 0.5, -0.25, 1.0, 0.125)}
    form("Conv_halves", [there, node("Conv", "i w b", "c", "c"), back], weights, half=True)
    for key in ["halves", "brains", "doubles"]:
        cast = [node("Cast", "w", "v", "v", to=1), node("Conv", "images v")]
        form(f"Conv_of_{key}_cast", cast, {"w": typed(key, *w, dims=[4, 3, 1, 1])})
    form("Weights_are_inputs", node("Conv", "images w b"), {"w": [2, 3, 3, 3], "b": [2]}, inputs=True)


def folded():
    w = {"w": [2, 3, 3, 3]}
    of = lambda *nodes: [*nodes, node("Conv", "images v")]
    form("Fold_sum", of(node("Add", "w k", "v", "v")), {**w, "k": [3, 1, 3]})
    standardized = [
        node("ReduceMean", "w a", "m", "m"), node("Sub", "w m", "d", "d"), node("Mul", "d d", "q", "q"), node("ReduceMean", "q a", "e", "e"),
        node("Add", "e k", "f", "f"), node("Sqrt", "f", "r", "r"), node("Div", "d r", "v", "v"),
    ]
    form("Fold_standardized", of(*standardized), {**w, "a": ints(1, 2, 3), "k": scalar(1e-3)})
    form("Fold_transpose", of(node("Transpose", "w", "v", "v", perm=[3, 2, 0, 1])), {"w": [3, 3, 3, 2]})
    form("Fold_reshape", of(node("Reshape", "w s", "v", "v")), {"w": [54], "s": ints(2, 3, -1, 3)})
    form("Fold_full", of(node("ConstantOfShape", "s", "v", "v")), {"s": ints(2, 3, 3, 3)})
    form("Fold_expand", of(node("Expand", "w s", "v", "v")), {"w": [3, 1, 1], "s": ints(2, 3, 2, 2)})
    form("Fold_concat", of(node("Concat", "w x", "v", "v", axis=1)), {"w": [2, 1, 3, 3], "x": [2, 2, 3, 3]})
    form("Fold_gather", of(node("Gather", "w s", "v", "v", axis=1)), {"w": [2, 4, 3, 3], "s": ints(3, 0, -2)})
    form("Fold_slice", of(node("Slice", "w s e a t", "v", "v")), {"w": [2, 9, 3, 3], "s": ints(1), "e": ints(-1), "a": ints(1), "t": ints(3)})
    form("Fold_pow", of(node("Pow", "w k", "v", "v")), {**w, "k": scalar(2.0)})
    form("Fold_identity", of(node("Identity", "w", "v", "v")), w)
    form("Fold_where", of(node("Equal", "s t", "c", "c"), node("Where", "c w x", "v", "v")), {**w, "x": [2, 3, 3, 3], "s": ints(0, 1, 2), "t": ints(1)})
    form("Fold_unknown", of(node("Cos", "w", "v", "v")), w, "its node `v` is a Cos, which is not supported")
    form("Fold_unlike", of(node("Add", "w k", "v", "v")), {**w, "k": [2]}, "its node `v` is a Add in a form")
    sizes = [
        node("Shape", "images", "s", "s"), node("Slice", "s from to", "b", "b"), node("Concat", "b rest", "t", "t", axis=0), node("Reshape", "images t"),
    ]
    form("Shape_slice", sizes, {"from": ints(0), "to": ints(1), "rest": ints(48)})
    floor = [
        node("Shape", "images", "s", "s"), node("Gather", "s two", "h", "h"), node("Div", "h half", "o", "o"), node("Mul", "o half", "p", "p"),
        node("Concat", "p p", "t", "t", axis=0), node("Concat", "batch t", "u", "u", axis=0), node("Reshape", "v u"),
    ]
    conv = node("Conv", "images w", "v", "v")
    form("Shape_computed", [conv, *floor], {"w": [1, 3, 1, 1], "two": ints(2), "half": ints(2), "batch": ints(0, -1)})
    form("Shape_computed_channels", [conv, *floor], {"w": [5, 3, 1, 1], "two": ints(2), "half": ints(2), "batch": ints(0, 5)})
    kernel = {"w": [1, 2, 27], "g": [2], "b": [2], "m": [2], "v": floats(0.5, 2.0), "s": ints(2, 3, 3, 3)}
    made = [node("Reshape", "a s", "k", "k"), node("Conv", "images k")]
    form("Weights_standardized", [node("BatchNormalization", "w g b m v", "a mean variance", "a", training_mode=1, momentum=1.0), *made], kernel)
    form("Weights_normalized", [node("BatchNormalization", "w g b m v", "a", "a", epsilon=0.1), *made], kernel)
    form("Clip_of_constants", [node("Clip", "k l ", "c", "c"), node("Mul", "images c")], {"k": scalar(0.3), "l": scalar(0.6)})
    form("Clip_of_constants_by_a_vector", [node("Clip", "k l", "c", "c"), node("Mul", "images c")], {"k": scalar(0.3), "l": floats(0.6, 0.7, 0.8, dims=[3, 1, 1])}, "its node `c` must have one float32 as its operand number 2")
    form("Clip_of_constants_four", [node("Clip", "k l k k", "c", "c"), node("Mul", "images c")], {"k": scalar(0.3), "l": scalar(0.2)}, "its node `c` is a Clip")
    pads = {"p": ints(1, 2, 0, 3, 0, 0, 0, 0, dims=[4, 2]), "f": ints(-1), "e": ints(-(2**63) + 1), "z": ints(0)}
    turned = [node("Slice", "p f e z f", "d", "d"), node("Transpose", "d", "t", "t", perm=[1, 0]), node("Reshape", "t f", "r", "r")]
    form("Pads_from_behind", [*turned, node("Pad", "images r ")], pads)
    form("Slice_downwards", [node("Slice", "k f e z m", "d", "d"), node("Reshape", "d s", "r", "r"), node("Mul", "images r")], {"k": [5], "f": ints(9), "e": ints(-6), "z": ints(0), "m": ints(-2), "s": ints(1, 3, 1, 1)})


def views():
    there, back = {"perm": [0, 2, 3, 1]}, {"perm": [0, 3, 1, 2]}
    w = {"w": [2, 3, 3, 3], "b": [2], "k": [3]}
    wrapped = lambda *nodes: [node("Transpose", "images", "t", "t", **there), *nodes, node("Transpose", "u", "v", "v", **back), node("Conv", "v w")]
    form("View_relu", wrapped(node("Relu", "t", "u", "u")), w)
    form("View_colors", wrapped(node("Mul", "t k", "u", "u")), w)
    form("View_sum", wrapped(node("Relu", "t", "r", "r"), node("Add", "t r", "u", "u")), w)
    form("View_concat", wrapped(node("Relu", "t", "r", "r"), node("Concat", "t r", "u", "u", axis=3)), {"w": [2, 6, 3, 3]})
    form("View_concat_rows", wrapped(node("Relu", "t", "r", "r"), node("Concat", "t r", "u", "u", axis=1)), w, "its node `u` is a Concat of axes of (batch, 4, 4, 3)")
    form("View_matmul", wrapped(node("MatMul", "t m", "u", "u")), {"w": [2, 5, 3, 3], "m": [3, 5]})
    form("View_matmul_bias", wrapped(node("MatMul", "t m", "x", "x"), node("Add", "x n", "u", "u")), {"w": [2, 5, 3, 3], "m": [3, 5], "n": [5]})
    form("View_matmul_rows", [node("MatMul", "images m", "u", "u"), node("Conv", "u w")], {**w, "m": [4, 4]}, "its node `u` is a MatMul of an image")
    form("View_norm", wrapped(node("MatMul", "t m", "u", "u"))[:-1] + [node("BatchNormalization", "v g h e f", "x", "x"), node("Relu", "x")], {"m": [3, 4], "g": [4], "h": [4], "e": [4], "f": floats(0.5, 1, 2, 1)})
    form("View_mean", [node("Transpose", "images", "t", "t", **there), node("ReduceMean", "t a", keepdims=0)], {"a": ints(1, 2)})
    form("View_mean_channels", [node("Transpose", "images", "t", "t", **there), node("ReduceMean", "t a")], {"a": ints(3)}, "is a ReduceMean over the channels")
    form("View_tokens", [node("Reshape", "images s", "t", "t"), node("Transpose", "t", "u", "u", perm=[0, 2, 1]), node("MatMul", "u m", "x", "x"), node("ReduceMean", "x a", keepdims=0)], {"s": ints(0, 3, 16), "m": [3, 5], "a": ints(1)})
    form("View_without_a_way_back", [node("Transpose", "images", "t", "t", **there), node("Conv", "t w")], {"w": [2, 4, 3, 3]}, "is a Conv of axes of (batch, 4, 4, 3)")
    form("View_flat_sum", [node("Transpose", "images", "t", "t", **there), node("Flatten", "t", "f", "f"), node("Relu", "f", "r", "r"), node("Add", "f r")])
    form("View_flat_and_last", [node("Transpose", "images", "t", "t", **there), node("Flatten", "t", "f", "f"), node("Flatten", "images", "g", "g"), node("Add", "f g")], {}, "reads flattened images in the order channel, row, column")
    form("Channels_last", [node("Transpose", "images", "t", "t", **back), node("Conv", "t w")], w, channels_last=True)
    form("Channels_last_dense", [node("MatMul", "images m", "u", "u"), node("Relu", "u")], {"m": [3, 5]}, channels_last=True)
    form("Channels_last_flat", node("Flatten", "images"), channels_last=True)
    form("Squeeze_and_back", [node("GlobalAveragePool", "images", "p", "p"), node("Squeeze", "p a", "s", "s"), node("Unsqueeze", "s a", "u", "u"), node("Conv", "u w")], {"a": ints(2, 3), "w": [5, 3, 1, 1]})
    gather = lambda k: [node("Gather", f"images at{k}", f"g{k}", f"g{k}", axis=1), node("Unsqueeze", f"g{k} one", f"u{k}", f"u{k}"), node("Mul", f"u{k} s{k}", f"m{k}", f"m{k}"), node("Add", f"m{k} o{k}", f"a{k}", f"a{k}")]
    colors = {"one": ints(1)} | {f"at{k}": ints(k, dims=[]) for k in range(3)} | {f"s{k}": scalar(0.5 + k) for k in range(3)} | {f"o{k}": scalar(0.1 * k) for k in range(3)}
    form("Colors", [*gather(0), *gather(1), *gather(2), node("Concat", "a0 a1 a2", axis=1)], colors)
    form("Colors_in_another_order", [*gather(0), *gather(1), *gather(2), node("Concat", "a1 a0 a2", axis=1)], colors)
    slices = [node("Slice", "images z o c", "a", "a"), node("Slice", "images o t c", "b", "b"), node("Concat", "a b", axis=1)]
    form("Slices_together", slices, {"z": ints(0), "o": ints(1), "t": ints(3), "c": ints(1)})
    form("Slice_rows", node("Slice", "images z o c"), {"z": ints(0), "o": ints(1), "c": ints(2)})
    form("Slice_sides", node("Slice", "images f t c"), {"f": ints(1, -3), "t": ints(99, -1), "c": ints(2, 3)})
    form("Slice_no_rows", node("Slice", "images z o c"), {"z": ints(3), "o": ints(3), "c": ints(2)}, "has windows that are larger than its images")
    form("Slice_every_second_row", node("Slice", "images z o c s"), {"z": ints(0), "o": ints(4), "c": ints(2), "s": ints(2)}, "is a Slice from 0 to 4 in steps of 2 of the axis 2")
    last = [node("Transpose", "images", "l", "l", perm=[0, 2, 3, 1]), node("Slice", "l z o c", "m", "m"), node("Transpose", "m", perm=[0, 3, 1, 2])]
    form("Slice_rows_with_channels_last", last, {"z": ints(1), "o": ints(9), "c": ints(1)})
    six = [node("Conv", "images w", "x", "x")]
    w6, turn = {"w": [6, 3, 1, 1]}, {"perm": [0, 2, 1, 3, 4]}
    for groups in [2, 3]:
        shuffle = [node("Reshape", "x five", "a", "a"), node("Transpose", "a", "b", "b", **turn), node("Reshape", "b four", "z", "z"), node("Conv", "z v")]
        sizes = {"five": ints(0, groups, 6 // groups, 4, 4), "four": ints(0, 6, 4, 4)}
        form(f"Shuffle_{groups}", [*six, *shuffle], w6 | {"v": [2, 6, 1, 1]} | sizes)
    part = [node("Slice", "x o t c", "s", "s"), node("Relu", "s")]
    form("Slice_channels", [*six, *part], w6 | {"o": ints(1), "t": ints(5), "c": ints(1)})
    form("Slice_all", node("Slice", "images z o c"), {"z": ints(0), "o": ints(99), "c": ints(2)})


def channels():
    w = {"w": [6, 3, 1, 1]}
    conv = node("Conv", "images w", "c", "c")
    back = node("Concat", "b a", axis=1)
    form("Split", [conv, node("Split", "c s", "a b", "s", axis=1), back], {**w, "s": ints(2, 4)})
    form("Split_one_read", [conv, node("Split", "c s", "a b", "s", axis=1), node("Relu", "b")], {**w, "s": ints(2, 4)})
    form("Split_equal", [conv, node("Split", "c", "a b", "s", axis=1), back], w, opset=13)
    form("Split_attribute", [conv, node("Split", "c", "a b", "s", axis=1, split=[1, 5]), back], w, opset=11)
    form("Split_num_outputs", [conv, node("Split", "c", "a b", "s", axis=-3, num_outputs=2), back], w)
    form("Split_uneven", [node("Split", "images", "a b", "s", axis=1, num_outputs=2), back])
    form("Split_rows", [conv, node("Split", "c s", "a b", "s", axis=2), node("Concat", "a b", axis=2)], {**w, "s": ints(2, 2)}, "its node `s` is a Split of the axis 2")
    form("Split_too_many", [conv, node("Split", "c s", "a b", "s", axis=1), back], {**w, "s": ints(2, 5)}, "its node `s` is a Split of 6 channels into [2, 5]")
    form("Split_together", [conv, node("Split", "c s", "a b", "s", axis=1), node("Concat", "a b", axis=1)], {**w, "s": ints(2, 4)})
    form("Split_last", [conv, node("Transpose", "c", "t", "t", perm=[0, 2, 3, 1]), node("Split", "t s", "a b", "s", axis=-1), node("Concat", "b a", axis=3)], {**w, "s": ints(2, 4)})
    form("Gather_channels", [conv, node("Gather", "c k", axis=1)], {**w, "k": ints(2, 3, 4)})
    pool = [conv, node("GlobalAveragePool", "c", "p", "p")]
    eca = lambda kernel="k", **how: [*pool, node("Reshape", "p line", "l", "l"), node("Conv", f"l {kernel}", "e", "e", **how), node("Sigmoid", "e", "g", "g"), node("Reshape", "g image", "i", "i"), node("Mul", "c i")]
    vectors = {**w, "line": ints(-1, 1, 6), "image": ints(-1, 6, 1, 1), "k": [1, 1, 3], "five": [1, 1, 5], "two": [2, 1, 3], "b": [1]}
    form("Conv_over_channels", eca(pads=[1, 1]), vectors)
    form("Conv_over_channels_of_a_mean", [conv, node("ReduceMean", "c a", "p", "p", keepdims=0), *eca(kernel="five", pads=[2, 2], kernel_shape=[5], strides=[1], dilations=[1])[2:]], {**vectors, "a": ints(2, 3)})
    form("Conv_over_channels_dilated", eca(pads=[2, 2], dilations=[2]), vectors)
    form("Conv_over_channels_two_dilations", eca(pads=[1, 1], dilations=[1, 2])[:4] + [node("Relu", "e")], vectors, "its node `e` is a Conv along one axis with the dilations [1, 2]")
    form("Conv_over_channels_valid", [*eca()[:4], node("Relu", "e")], vectors, "its node `e` is a Conv that leaves out channels")
    form("Conv_over_channels_with_bias", eca(kernel="k b", pads=[1, 1]), vectors, "its node `e` is a Conv of (batch, 1, 6) and weights of [1, 1, 3] and a bias")
    form("Conv_over_channels_twice", [*eca(kernel="two", pads=[1, 1])[:4], node("Relu", "e")], vectors, "its node `e` is a Conv of weights of [2, 1, 3]")
    gate = [*pool, node("Sigmoid", "p", "g", "g"), node("Shape", "c", "s", "s"), node("Expand", "g s", "x", "x")]
    form("Expand_then_multiply", [*gate, node("Mul", "c x")], w)
    form("Expand_then_add", [*gate, node("Add", "x c")], w)
    form("Expand_to_itself", [conv, node("Shape", "c", "s", "s"), node("Expand", "c s", "x", "x"), node("Relu", "x")], w)
    form("Expand_then_activate", [*gate, node("Relu", "x")], w, "its node `n` is a Relu of a tensor that an Expand spreads to (batch, 6, 4, 4)")
    form("Expand_then_multiply_small", [*gate, node("Mul", "x g")], w, "its node `n` is a Mul of a tensor that an Expand spreads to (batch, 6, 4, 4)")
    form("Expand_elsewhere", [*gate[:-1], node("Expand", "g five", "x", "x"), node("Mul", "c x")], {**w, "five": ints(5, 1, 1, 1, 1)}, "its node `x` is a Expand from (batch, 6, 1, 1) to (5, 1, 1, 1, 1)")
    flat = [node("Reshape", "images whole", "f", "f"), node("Gather", "f at")]
    form("Gather_as_strided", flat, {"whole": ints(-1), "at": ints(*range(96), dims=[2, 3, 4, 4])}, fixed=True)
    form("Gather_backwards", flat, {"whole": ints(-1), "at": ints(*range(95, -1, -1), dims=[2, 3, 4, 4])}, "its node `n` is a Gather", fixed=True)
    form("Gather_scattered", [conv, node("Gather", "c k", axis=1)], {**w, "k": ints(2, 4)}, "is a Gather of [2, 4] along the axis 1")
    shuffle = lambda to, perm=(0, 2, 1, 3, 4): [conv, node("Reshape", "c to", "r", "r"), node("Transpose", "r", "t", "t", perm=list(perm)), node("Reshape", "t back", "z", "z"), node("Conv", "z v")]
    more = {**w, "back": ints(0, 6, 4, 4), "v": [4, 6, 1, 1]}
    form("Shuffle", shuffle(0), {**more, "to": ints(0, 2, 3, 4, 4)})
    parts = {**more, "to": ints(0, 2, 3, 4, 4), "s": ints(2, 4), "o": ints(1), "f": ints(5), "a": ints(1), "k": ints(2, 3)}
    form("Split_shuffled", [*shuffle(0)[:-1], node("Split", "z s", "d e", "p", axis=1), node("Concat", "e d", axis=1)], parts)
    form("Slice_shuffled", [*shuffle(0)[:-1], node("Slice", "z o f a")], parts)
    form("Gather_shuffled", [*shuffle(0)[:-1], node("Gather", "z k", axis=1)], parts)
    form("Shuffle_three", shuffle(0), {**more, "to": ints(0, 3, -1, 4, 4)})
    form("Shuffle_rows", shuffle(0, (0, 1, 3, 2, 4)), {**more, "to": ints(0, 2, 3, 4, 4)}, "is a Reshape from (batch, 2, 4, 3, 4) to (0, 6, 4, 4)")
    norm = [conv, node("BatchNormalization", "c g b m s", "q", "q"), node("Mul", "q k", "p", "p"), node("Add", "p o")]
    pair = {**w, "g": [6], "b": [6], "m": [6], "s": floats(*[0.5 + k for k in range(6)]), "k": [6, 1, 1], "o": [1, 6, 1, 1]}
    form("Norm_then_scale", norm, pair)
    form("Norm_then_scale_beside", [*norm[:3], node("Add", "p q")], pair)


def old():
    """Before version 7. ONNX Runtime computes some of these alone."""
    w = {"w": [2, 3, 3, 3], "b": [2]}
    conv = node("Conv", "images w", "c", "c")
    form("Old_dropout", [node("Dropout", "images", "d m", "d", ratio=0.3), node("Conv", "d w")], w, opset=7)
    bn = {"g": [3], "b": [3], "m": [3], "v": floats(0.5, 1.0, 2.0)}
    form("Old_norm_outputs", node("BatchNormalization", "images g b m v", spatial=1, momentum=0.9), bn, opset=8)
    form("Old_sum", [conv, node("Relu", "c", "r", "r"), node("Sum", "c r")], w)
    form("Sum_three", [conv, node("Relu", "c", "r", "r"), node("Tanh", "c", "s", "s"), node("Sum", "c r s")], w)
    form("Sum_one", [conv, node("Sum", "c")], w)


def without_defaults(made):
    """A node without its last parts where they are as by default."""
    op, inputs, output, name, domain, attributes = made
    parts = [attributes, domain, name]
    defaults = [{}, "", node("", "", output)[3]]
    while parts and parts[-1] == defaults[len(parts) - 1]:
        parts.pop()
    return [op, inputs, output, *parts]


def main():
    for group in [sums, activations, types, windows, larger, normalizations, dense, shapes, values, more_types, folded, views, channels, old]:
        group()
    names = [made["name"] for made in FORMS]
    assert len(set(names)) == len(names)
    for made in FORMS:
        made["nodes"] = [without_defaults(node) for node in made["nodes"]]
    lines = ",\n".join(json.dumps(made, separators=(",", ":")) for made in FORMS)
    Path(__file__).with_name("onnx_forms.json").write_text(f"[\n{lines}\n]\n")
    lenient = [made["name"] for made in FORMS if made.get("onnxruntime") == "accepts"]
    print(f"{len(FORMS)} forms; {len(lenient)} are refused that ONNX Runtime computes")


if __name__ == "__main__":
    main()
