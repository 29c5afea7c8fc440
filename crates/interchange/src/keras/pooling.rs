//! The poolings of a configuration beside those of a network.

use super::convolution::{pad, told as told_pad};
use super::graph::Place;
use super::layer::{name, two, uses};
use layers::Step;
use program::{Op, Pad, Pool2d, Shape};

/// A pooling of a file.
struct Pooling {
    told: String,
    average: bool,
    /// The window and its strides, where it is not the whole image.
    window: Option<[[usize; 2]; 2]>,
    padding: String,
    /// What was put around its input before, if the file says it.
    zeros: Option<[usize; 4]>,
}

/// A pooling of a network.
struct Own {
    told: String,
    average: bool,
    pool: Pool2d,
    x: Shape,
}

impl Pooling {
    fn of_file(place: &Place) -> Option<Self> {
        let (class, options) = (place.class(), &place.layer["config"]);
        let (average, whole) = match class {
            "MaxPooling2D" => (false, false),
            "AveragePooling2D" => (true, false),
            "GlobalMaxPooling2D" => (false, true),
            "GlobalAveragePooling2D" => (true, true),
            _ => return None,
        };
        let size = two(&options["pool_size"]).unwrap_or([2; 2]);
        let window = (!whole).then(|| [size, two(&options["strides"]).unwrap_or(size)]);
        let padding = options["padding"].as_str().unwrap_or("valid").to_owned();
        let mut told = told(class, window);
        if !whole && padding != "valid" {
            told.insert_str(told.len() - 1, &format!(", padding=\"{padding}\""));
        }
        let zeros = place.zeros();
        if let Some(zeros) = zeros.filter(|zeros| *zeros != [0; 4]) {
            let [top, bottom, left, right] = zeros;
            let pad = told_pad(Pad { top, bottom, left, right });
            told.push_str(&format!(" behind a ZeroPadding2D({pad})"));
        }
        let told = format!("its layer `{}` is {told}", name(place.layer));
        Some(Pooling { told, average, window, padding, zeros })
    }

    /// Whether this pooling equals one of a network, on an image of the same size.
    fn is(&self, own: &Own) -> bool {
        let Own { average, pool, x, .. } = *own;
        if self.average != average {
            return false;
        }
        // Behind a ReLU, zeros are never above the maximum, as padding isn't; a mean counts them, and no padding.
        let around = self.zeros.unwrap_or([0; 4]);
        if average && around != [0; 4] {
            return false;
        }
        let theirs = match self.window {
            None => over_all(x),
            Some([kernel, stride]) => {
                if stride.contains(&0) {
                    return false;
                }
                match pad(&self.padding, x, around, kernel, stride) {
                    Some(pad) => Pool2d { kernel, stride, pad },
                    None => return false,
                }
            }
        };
        // Where the file doesn't describe the zeros around it, it may be the same.
        let theirs = if self.zeros.is_none() && self.padding == "valid" {
            Pool2d { pad: pool.pad, ..theirs }
        } else {
            theirs
        };
        computes(theirs, x).is_some_and(|theirs| Some(theirs) == computes(pool, x))
    }
}

impl Own {
    fn of_step(step: &Step) -> Option<Self> {
        let (average, pool) = match step.op? {
            Op::MaxPool(max) => (false, max.pool),
            Op::AveragePool(average) => (true, average.pool),
            _ => return None,
        };
        let mut told = told(&step.kind, (!step.flat).then_some([pool.kernel, pool.stride]));
        if pool.pad != Pad::VALID {
            told.insert_str(told.len() - 1, &format!(", padding={}", told_pad(pool.pad)));
        }
        Some(Own { told, average, pool, x: step.x })
    }
}

/// One window as large as the image.
fn over_all(x: Shape) -> Pool2d {
    Pool2d { kernel: [x.h, x.w], stride: [1; 2], pad: Pad::VALID }
}

/// What two poolings of an image have alike if they compute the same, by rows and by columns: the window, where the first one
/// lies, how many there are, and how far the next is if there are several.
fn computes(pool: Pool2d, x: Shape) -> Option<[(usize, usize, usize, usize); 2]> {
    let y = pool.output(x).ok()?;
    let next = |count: usize, stride: usize| if count > 1 { stride } else { 0 };
    Some([
        (pool.kernel[0], pool.pad.top, y.h, next(y.h, pool.stride[0])),
        (pool.kernel[1], pool.pad.left, y.w, next(y.w, pool.stride[1])),
    ])
}

fn told(class: &str, window: Option<[[usize; 2]; 2]>) -> String {
    let number = |[h, w]: [usize; 2]| if h == w { h.to_string() } else { format!("[{h}, {w}]") };
    window.map_or(class.to_owned(), |[size, strides]| {
        format!("{class}({}, strides={})", number(size), number(strides))
    })
}

/// Compares the poolings, in any order.
pub(super) fn compare(all: &[Place], steps: &[Step]) -> Result<(), String> {
    let mut left: Vec<Own> = steps.iter().filter_map(Own::of_step).collect();
    let own: Vec<String> = left.iter().map(|own| own.told.clone()).collect();
    for place in all {
        for node in 0..uses(place.layer).min(steps.len()) {
            let Some(pooling) = Pooling::of_file(&place.at(node)) else { break };
            let Some(k) = left.iter().position(|own| pooling.is(own)) else {
                let own = if own.is_empty() { "none".to_owned() } else { own.join(", ") };
                return Err(format!("{}, but the poolings of the network are: {own}", pooling.told));
            };
            left.remove(k);
        }
    }
    match left.first() {
        Some(own) => Err(format!("it has no {} where the network has one", own.told)),
        None => Ok(()),
    }
}
