use core::ops::Range;

/// One direction of the sums of a depthwise convolution: which pixels of the source each output reads. The forward
/// pass reads the input, the gradient of the input that of the output.
#[derive(Clone, Copy, Debug)]
pub(super) struct Axis {
    /// Source pixels.
    pub size: usize,
    /// Output pixels.
    pub outputs: usize,
    pub kernel: usize,
    pub stride: usize,
    pub dilation: usize,
    pub pad: usize,
    /// Whether outputs are inputs of the convolution.
    pub backward: bool,
}

/// What the outputs `phase, phase + phases, ...` read: output number `o` of these reads, with its tap `t`, the source at
/// `first + o * step + t * tap_step`, and the weights of the kernel's element `w_first + t * w_step`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Taps {
    pub count: usize,
    pub first: isize,
    pub step: usize,
    pub tap_step: isize,
    pub w_first: usize,
    pub w_step: usize,
}

impl Axis {
    /// Outputs that far apart have the same taps.
    pub fn phases(&self) -> usize {
        if self.backward { self.stride.min(self.outputs).max(1) } else { 1 }
    }

    /// How many outputs a phase has.
    pub fn count(&self, phase: usize) -> usize {
        (self.outputs - phase).div_ceil(self.phases())
    }

    /// The taps of output `at`, as the first one of its phase.
    pub fn taps(&self, at: usize) -> Taps {
        let place = at as isize + self.pad as isize;
        if !self.backward {
            let first = (at * self.stride) as isize - self.pad as isize;
            let (step, tap_step) = (self.stride, self.dilation as isize);
            return Taps { count: self.kernel, first, step, tap_step, w_first: 0, w_step: 1 };
        }
        // Output `i` of the convolution read this place with the kernel's element `u` if
        // `i * stride + u * dilation` is the place: one in so many elements.
        let common = gcd(self.stride, self.dilation);
        let w_step = self.stride / common;
        let of = |u: usize| place - (u * self.dilation) as isize;
        let w_first = (0..w_step.min(self.kernel)).find(|&u| of(u).rem_euclid(self.stride as isize) == 0);
        let count = w_first.map_or(0, |u| (self.kernel - u).div_ceil(w_step));
        let w_first = w_first.unwrap_or(0);
        let first = of(w_first).div_euclid(self.stride as isize);
        // Outputs of one phase are a stride apart, or there is one.
        Taps { count, first, step: 1, tap_step: -((self.dilation / common) as isize), w_first, w_step }
    }

    /// The source pixels that the outputs in a range may read, those outside of the source among them. Both ends grow with
    /// those of the range.
    pub fn under(&self, outputs: Range<usize>) -> Range<isize> {
        let (first, last) = (outputs.start as isize, outputs.end as isize - 1);
        let (pad, rise) = (self.pad as isize, ((self.kernel - 1) * self.dilation) as isize);
        let stride = self.stride as isize;
        if self.backward {
            let low = (first + pad - rise).div_euclid(stride);
            low..(last + pad).div_euclid(stride) + 1
        } else {
            first * stride - pad..last * stride - pad + rise + 1
        }
    }

    /// The most source pixels that so many outputs may read.
    pub fn most_under(&self, outputs: usize) -> usize {
        let rise = (self.kernel - 1) * self.dilation;
        if outputs == 0 {
            0
        } else if self.backward {
            // One more at each end, for places between.
            (outputs - 1 + rise) / self.stride + 2
        } else {
            (outputs - 1) * self.stride + rise + 1
        }
    }
}

impl Taps {
    /// Those of the taps that lie inside of a source of so many pixels, for output 0.
    pub fn inside(&self, size: usize) -> Range<usize> {
        let is_inside = |t: usize| {
            let at = self.first + t as isize * self.tap_step;
            at >= 0 && at < size as isize
        };
        let start = (0..self.count).find(|&t| is_inside(t)).unwrap_or(self.count);
        let end = (start..self.count).find(|&t| !is_inside(t)).unwrap_or(self.count);
        start..end
    }
}

fn gcd(a: usize, b: usize) -> usize {
    if b == 0 { a.max(1) } else { gcd(b, a % b) }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Of every output, the pairs of source and kernel's element that the definition says.
    #[test]
    fn taps_are_those_of_the_definition() {
        for (size, kernel, stride, dilation, pad) in [
            (7, 3, 1, 1, 1),
            (9, 3, 2, 1, 0),
            (9, 3, 2, 1, 1),
            (12, 5, 3, 2, 4),
            (11, 2, 4, 2, 3),
            (8, 4, 2, 4, 7),
        ] {
            let padded = size + 2 * pad;
            let outputs = (padded - (kernel - 1) * dilation - 1) / stride + 1;
            let forward = Axis { size, outputs, kernel, stride, dilation, pad, backward: false };
            let backward = Axis { size: outputs, outputs: size, backward: true, ..forward };
            let mut pairs = [Vec::new(), Vec::new()];
            for (axis, pairs) in [forward, backward].iter().zip(&mut pairs) {
                for o in 0..axis.outputs {
                    let phase = o % axis.phases();
                    let (own, of_phase) = (axis.taps(o), axis.taps(phase));
                    let moved = of_phase.first + (o / axis.phases() * of_phase.step) as isize;
                    assert_eq!((own.first, own.count), (moved, of_phase.count));
                    let under = axis.under(o..o + 1);
                    assert!(under.len() <= axis.most_under(1));
                    for t in 0..own.count {
                        let at = own.first + t as isize * own.tap_step;
                        assert!(under.contains(&at));
                        assert_eq!(own.inside(axis.size).contains(&t), (0..axis.size as isize).contains(&at));
                        if (0..axis.size as isize).contains(&at) {
                            pairs.push((o, at as usize, own.w_first + t * own.w_step));
                        }
                    }
                }
            }
            let [mut forward, mut turned] = pairs;
            turned.iter_mut().for_each(|(o, i, _)| core::mem::swap(o, i));
            forward.sort_unstable();
            turned.sort_unstable();
            assert_eq!(forward, turned, "{size} {kernel} {stride} {dilation} {pad}");
        }
    }
}
