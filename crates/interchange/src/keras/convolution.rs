//! The convolutions of a configuration beside those of a network.

use super::graph::Place;
use super::layer::{name, two};
use layers::Step;
use program::{Conv2d, Op, Pad, Shape};

/// What Keras' setting pads an input of this shape by, with the zeros that layers put around it before.
pub(super) fn pad(
    setting: &str,
    x: Shape,
    [top, bottom, left, right]: [usize; 4],
    kernel: [usize; 2],
    stride: [usize; 2],
) -> Option<Pad> {
    let h = x.h.checked_add(top)?.checked_add(bottom)?;
    let w = x.w.checked_add(left)?.checked_add(right)?;
    let own = match setting {
        "valid" => Pad::VALID,
        "same" => Pad::same(h, w, kernel, stride),
        _ => return None,
    };
    Some(Pad {
        top: own.top.checked_add(top)?,
        bottom: own.bottom.checked_add(bottom)?,
        left: own.left.checked_add(left)?,
        right: own.right.checked_add(right)?,
    })
}

/// `((above, below), (left, right))`, as Keras writes it.
pub(super) fn told(pad: Pad) -> String {
    format!("(({}, {}), ({}, {}))", pad.top, pad.bottom, pad.left, pad.right)
}

/// Refuses convolutions that do not exist here: kernels with gaps, channels in groups, other kinds of
/// convolution.
pub(super) fn check(all: &[Place]) -> Result<(), String> {
    for place in all {
        let (own, options) = (name(place.layer), &place.layer["config"]);
        let class = place.class();
        if ["Conv2DTranspose", "DepthwiseConv2D"].contains(&class) {
            return Err(format!("its layer `{own}` is a {class}, but the network has Conv2D alone"));
        }
        if class != "Conv2D" {
            continue;
        }
        let kernel = two(&options["kernel_size"]).unwrap_or([usize::MAX; 2]);
        let gaps = two(&options["dilation_rate"])
            .is_some_and(|rate| rate.iter().zip(kernel).any(|(&rate, kernel)| rate != 1 && kernel != 1));
        if gaps {
            let rate = &options["dilation_rate"];
            return Err(format!(
                "its layer `{own}` has dilation_rate={rate}, but the network's convolutions 1"
            ));
        }
        if let Some(groups) = options["groups"].as_u64().filter(|groups| *groups != 1) {
            return Err(format!("its layer `{own}` has groups={groups}, but the network's convolutions 1"));
        }
    }
    Ok(())
}

/// Compares the strides and paddings of convolutions with those of the steps, in the same order.
pub(super) fn compare(theirs: &[Place], steps: &[&Step]) -> Result<(), String> {
    if theirs.len() != steps.len() {
        return Ok(());
    }
    let pairs: Vec<(&Place, &Step, Conv2d)> = theirs
        .iter()
        .zip(steps)
        .filter_map(|(place, step)| match step.op {
            Some(Op::Conv2dForward(forward)) => Some((place, *step, forward.conv)),
            _ => None,
        })
        .collect();
    for (place, step, conv) in &pairs {
        let strides = &place.layer["config"]["strides"];
        if !strides.is_null() && two(strides) != Some(conv.stride) {
            let (own, stride) = (name(place.layer), conv.stride);
            return Err(format!(
                "its layer `{own}` has strides={strides}, but the network's `{}` {stride:?}",
                step.name
            ));
        }
    }
    // Where the order is another, this is not the layer that the step is.
    let fits = |(place, _, conv): &(&Place, &Step, Conv2d)| {
        let options = &place.layer["config"];
        two(&options["kernel_size"]).is_none_or(|kernel| kernel == conv.kernel)
            && options["filters"].as_u64().is_none_or(|filters| filters == conv.outputs as u64)
    };
    if !pairs.iter().all(fits) {
        return Ok(());
    }
    pairs.iter().try_for_each(|(place, step, conv)| compare_padding(place, step, *conv))
}

fn compare_padding(place: &Place, step: &Step, conv: Conv2d) -> Result<(), String> {
    let Some(setting) = place.layer["config"]["padding"].as_str() else { return Ok(()) };
    let Some(zeros) = place.zeros() else { return Ok(()) };
    let Some(pad) = pad(setting, step.x, zeros, conv.kernel, conv.stride) else { return Ok(()) };
    // Zeros below and to the right that no window reaches change nothing.
    let windows = |pad: Pad| {
        let output = Conv2d { pad, ..conv }.output(step.x).ok();
        (pad.top, pad.left, output.map(|y| (y.h, y.w)))
    };
    if windows(pad) == windows(conv.pad) {
        return Ok(());
    }
    let behind = if zeros == [0; 4] { "" } else { " behind a ZeroPadding2D" };
    Err(format!(
        "its layer `{}` has padding=\"{setting}\"{behind}, which pads by {}, but the network's `{}` by {}",
        name(place.layer),
        told(pad),
        step.name,
        told(conv.pad)
    ))
}
