//! How strong the operations of RandAugment and its relatives are: torchvision's `_AUGMENTATION_SPACE`.

use crate::Operation;

/// Which operation, without its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Identity,
    ShearX,
    ShearY,
    TranslateX,
    TranslateY,
    Rotate,
    Brightness,
    Color,
    Contrast,
    Sharpness,
    Posterize,
    Solarize,
    AutoContrast,
    Equalize,
    Invert,
}

impl Kind {
    /// The list of RandAugment and TrivialAugment.
    pub(crate) const ALL: [Kind; 14] = [
        Kind::Identity,
        Kind::ShearX,
        Kind::ShearY,
        Kind::TranslateX,
        Kind::TranslateY,
        Kind::Rotate,
        Kind::Brightness,
        Kind::Color,
        Kind::Contrast,
        Kind::Sharpness,
        Kind::Posterize,
        Kind::Solarize,
        Kind::AutoContrast,
        Kind::Equalize,
    ];
}

/// The longest way of a translation.
pub(crate) enum Reach {
    /// This share of the side.
    Share(f64),
    /// So many pixels.
    Pixels(f64),
}

/// The largest number of each operation.
pub(crate) struct Space {
    /// Of a shear.
    pub(crate) shear: f64,
    /// Of a translation.
    pub(crate) translate: Reach,
    /// Degrees.
    pub(crate) rotate: f64,
    /// How far the factors of brightness, colour, contrast and sharpness lie from 1.
    pub(crate) color: f64,
    /// The bits that posterizing keeps at strength 0, and how many fewer at the largest strength.
    pub(crate) bits: [f64; 2],
}

impl Space {
    /// The operation at a strength for images of `h` by `w` pixels. `at` gives the number at that strength between those at
    /// strength 0 and at the largest one.
    pub(crate) fn operation(
        &self,
        kind: Kind,
        negative: bool,
        [h, w]: [usize; 2],
        at: impl Fn(f64, f64) -> f64,
    ) -> Operation {
        let signed = |most: f64| if negative { -at(0.0, most) } else { at(0.0, most) };
        let reach = |side: usize| match self.translate {
            Reach::Share(share) => signed(share * side as f64) as i32,
            Reach::Pixels(pixels) => signed(pixels) as i32,
        };
        let factor = || 1.0 + signed(self.color);
        match kind {
            Kind::Identity => Operation::Identity,
            Kind::ShearX => Operation::ShearX(signed(self.shear)),
            Kind::ShearY => Operation::ShearY(signed(self.shear)),
            Kind::TranslateX => Operation::TranslateX(reach(w)),
            Kind::TranslateY => Operation::TranslateY(reach(h)),
            Kind::Rotate => Operation::Rotate(signed(self.rotate)),
            Kind::Brightness => Operation::Brightness(factor()),
            Kind::Color => Operation::Color(factor()),
            Kind::Contrast => Operation::Contrast(factor()),
            Kind::Sharpness => Operation::Sharpness(factor()),
            Kind::Posterize => {
                let [bits, fewer] = self.bits;
                Operation::Posterize((bits - at(0.0, fewer).round_ties_even()) as u32)
            }
            Kind::Solarize => Operation::Solarize(at(255.0, 0.0)),
            Kind::AutoContrast => Operation::AutoContrast,
            Kind::Equalize => Operation::Equalize,
            Kind::Invert => Operation::Invert,
        }
    }
}

/// Number `k` of `torch.linspace(from, to, bins)`, which counts in single precision and from the nearer end.
pub(crate) fn linspace(from: f64, to: f64, bins: u32, k: u32) -> f64 {
    let (from, to) = (from as f32, to as f32);
    let step = f64::from((to - from) / (bins - 1) as f32);
    let number = if k < bins / 2 {
        f64::from(from) + step * f64::from(k)
    } else {
        f64::from(to) - step * f64::from(bins - 1 - k)
    };
    f64::from(number as f32)
}

#[cfg(test)]
impl Kind {
    /// The kind of torchvision's name.
    pub(crate) fn named(name: &str) -> Kind {
        let all = Kind::ALL.into_iter().chain([Kind::Invert]);
        all.into_iter().find(|kind| format!("{kind:?}") == name).unwrap()
    }
}

#[cfg(test)]
impl Space {
    /// Compares with torchvision's magnitudes of all strengths.
    pub(crate) fn check(&self, name: &str, at: impl Fn(u32, f64, f64) -> f64) {
        let golden = crate::golden::golden();
        let [h, w, _] = crate::golden::shape(&golden);
        let space = golden["spaces"][name].as_object().unwrap();
        assert!(space.len() >= 13);
        for (operation, magnitudes) in space {
            let kind = Kind::named(operation);
            for (k, magnitude) in magnitudes.as_array().into_iter().flatten().enumerate() {
                let magnitude = magnitude.as_f64().unwrap();
                for (negative, sign) in [(false, 1.0), (true, -1.0)] {
                    let expected = match kind {
                        Kind::TranslateX | Kind::TranslateY => (sign * magnitude).trunc(),
                        Kind::Brightness | Kind::Color | Kind::Contrast | Kind::Sharpness => {
                            1.0 + sign * magnitude
                        }
                        Kind::Posterize | Kind::Solarize => magnitude,
                        _ => sign * magnitude,
                    };
                    let got =
                        self.operation(kind, negative, [h, w], |from, to| at(k as u32, from, to)).number();
                    assert!(
                        (got - expected).abs() <= 1e-6 * expected.abs(),
                        "{operation} {k}: {got}, not {expected}"
                    );
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::golden::{bytes, golden, list, shape, wrong};

    #[test]
    fn operations_are_pillows_to_the_bit_in_both_ways_of_moving() {
        let golden = golden();
        let shape = shape(&golden);
        let cases = golden["operations"].as_array().unwrap();
        assert!(cases.len() > 12);
        for case in cases {
            let x: f64 = list(&case["magnitude"]);
            let operation = match Kind::named(case["name"].as_str().unwrap()) {
                Kind::ShearX => Operation::ShearX(x),
                Kind::ShearY => Operation::ShearY(x),
                Kind::TranslateX => Operation::TranslateX(x as i32),
                Kind::TranslateY => Operation::TranslateY(x as i32),
                Kind::Rotate => Operation::Rotate(x),
                Kind::Sharpness => Operation::Sharpness(1.0 + x),
                Kind::Posterize => Operation::Posterize(x as u32),
                Kind::Solarize => Operation::Solarize(x),
                Kind::Invert => Operation::Invert,
                other => panic!("{other:?}"),
            };
            let mut image = bytes(&golden["image"]);
            match list(&case["bilinear"]) {
                true => operation.apply_bilinear(shape, &mut image, &mut Vec::new()),
                false => operation.apply(shape, &mut image, &mut Vec::new()),
            }
            assert_eq!(wrong(&image, &bytes(&case["out"])), 0, "{operation} {}", case["bilinear"]);
        }
        let mut grey = bytes(&golden["image"]);
        Operation::Color(0.0).apply(shape, &mut grey, &mut Vec::new());
        assert_eq!(wrong(&grey, &bytes(&golden["grayscale"])), 0);
    }

    #[test]
    fn hues_are_pillows_to_the_bit() {
        let golden = golden();
        for case in golden["hues"].as_array().unwrap() {
            let mut image = bytes(&golden["colors"]);
            Operation::Hue(list(&case["hue"])).apply(shape(&golden), &mut image, &mut Vec::new());
            assert_eq!(wrong(&image, &bytes(&case["out"])), 0, "{}", case["hue"]);
        }
    }
}
