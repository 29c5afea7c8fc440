//! The random steps that have a text, for recipes and command lines.

use crate::text::{Field, Listed, Pairs, refuse, set};
use crate::{
    AugMix, AutoAugment, ColorJitter, Compose, Error, Flip, GaussianBlur, Operation, RandAugment,
    RandomErasing, RandomPerspective, RandomResizedCrop, Transform, TrivialAugmentWide,
};
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

/// A name, the probability without the key `p`, and what makes the transform of the other keys.
type Entry = (&'static str, f64, fn(&Pairs<'_>) -> Result<Arc<dyn Transform>, Error>);

/// All of them: the names, keys and defaults of torchvision. Where it has no default, that of its documentation's example.
const LIST: [Entry; 18] = [
    (AugMix::NAME, 1.0, read::<AugMix>),
    (AutoAugment::NAME, 1.0, read::<AutoAugment>),
    (ColorJitter::NAME, 1.0, read::<ColorJitter>),
    (GaussianBlur::NAME, 1.0, read::<GaussianBlur>),
    (RandAugment::NAME, 1.0, read::<RandAugment>),
    ("random-adjust-sharpness", 0.5, |pairs| of_number(pairs, "sharpness-factor", 2.0, Operation::Sharpness)),
    ("random-autocontrast", 0.5, |pairs| fixed(pairs, Operation::AutoContrast)),
    ("random-equalize", 0.5, |pairs| fixed(pairs, Operation::Equalize)),
    (RandomErasing::NAME, 0.5, read::<RandomErasing>),
    ("random-grayscale", 0.1, |pairs| fixed(pairs, Operation::Color(0.0))),
    ("random-horizontal-flip", 0.5, |pairs| fixed(pairs, Flip::Horizontal)),
    ("random-invert", 0.5, |pairs| fixed(pairs, Operation::Invert)),
    (RandomPerspective::NAME, 0.5, read::<RandomPerspective>),
    ("random-posterize", 0.5, |pairs| of_number(pairs, "bits", 2, Operation::Posterize)),
    (RandomResizedCrop::NAME, 1.0, read::<RandomResizedCrop>),
    ("random-solarize", 0.5, |pairs| of_number(pairs, "threshold", 192.0, Operation::Solarize)),
    ("random-vertical-flip", 0.5, |pairs| fixed(pairs, Flip::Vertical)),
    (TrivialAugmentWide::NAME, 1.0, read::<TrivialAugmentWide>),
];

fn read<T: Listed + Transform>(pairs: &Pairs<'_>) -> Result<Arc<dyn Transform>, Error> {
    let mut transform = T::default();
    set(T::NAME, &mut transform.fields(), pairs)?;
    Ok(Arc::new(transform))
}

fn fixed(pairs: &Pairs<'_>, transform: impl Transform + 'static) -> Result<Arc<dyn Transform>, Error> {
    let name = transform.text().unwrap_or_default();
    set(&name, &mut [], pairs)?;
    Ok(Arc::new(transform))
}

fn of_number<T: Field + Copy>(
    pairs: &Pairs<'_>,
    key: &'static str,
    mut number: T,
    operation: fn(T) -> Operation,
) -> Result<Arc<dyn Transform>, Error> {
    let text = operation(number).text().unwrap_or_default();
    set(text.split(':').next().unwrap_or_default(), &mut [(key, &mut number)], pairs)?;
    Ok(Arc::new(operation(number)))
}

/// One step, as in `random-erasing:value=random,p=0.25`, and its probability.
fn step(text: &str) -> Result<(f64, Arc<dyn Transform>), Error> {
    let spelled = |word: &str| word.trim().replace('_', "-");
    let (name, rest) = text.split_once(':').unwrap_or((text, ""));
    let name = spelled(name);
    let Some((_, mut p, make)) = LIST.into_iter().find(|(known, ..)| *known == name) else {
        let names = LIST.map(|(name, ..)| name).join(", ");
        return Err(refuse(name, format!("one of {names}")));
    };
    let mut pairs: Vec<(String, &str)> = Vec::new();
    for pair in rest.split(',').map(str::trim).filter(|pair| !pair.is_empty()) {
        let (key, value) = pair.split_once('=').unwrap_or((pair, "true"));
        let (key, value) = (spelled(key), value.trim());
        if pairs.iter().any(|(known, _)| *known == key) {
            return Err(refuse(text.trim(), format!("given `{key}` once")));
        }
        pairs.push((key, value));
    }
    if let Some(at) = pairs.iter().position(|(key, _)| key == "p") {
        let (_, value) = pairs.remove(at);
        set(&name, &mut [("p", &mut p)], &[("p".to_owned(), value)])?;
        if !(0.0..=1.0).contains(&p) {
            return Err(refuse(format!("{name}:p={p}"), "with a probability `p` from 0 to 1"));
        }
    }
    Ok((p, make(&pairs)?))
}

impl FromStr for Compose {
    type Err = Error;

    /// Steps with `+` between them: torchvision's names and keys with `-` between words, `p` for the probability, and `/` between
    /// the numbers of a range.
    ///
    /// ```
    /// use towers_augment::Compose;
    ///
    /// let text = "color-jitter:brightness=0.4,hue=0.1,p=0.8+trivial-augment-wide+random-erasing:p=0.25";
    /// let compose: Compose = text.parse()?;
    /// assert_eq!(compose.to_string(), text);
    /// let error = "color-jiter".parse::<Compose>().unwrap_err();
    /// assert!(error.to_string().contains("must be one of aug-mix, auto-augment, color-jitter"));
    /// # Ok::<(), towers_augment::Error>(())
    /// ```
    fn from_str(text: &str) -> Result<Self, Error> {
        let steps = text.split('+').map(str::trim).map(step);
        steps.collect::<Result<Vec<_>, _>>().map(Compose::of)
    }
}

impl Compose {
    /// The text of each step; `None` if one of them is a type of yours, or another one without a text.
    pub fn texts(&self) -> Option<Vec<String>> {
        let text = |(p, transform): (f64, &dyn Transform)| {
            let text = transform.text()?;
            let name = text.split(':').next()?;
            let (_, default, _) = LIST.into_iter().find(|(known, ..)| *known == name)?;
            let mark = if text.contains(':') { ',' } else { ':' };
            Some(if p == default { text } else { format!("{text}{mark}p={p}") })
        };
        self.steps().map(text).collect()
    }
}

impl fmt::Display for Compose {
    /// The text that is read back, or as `Debug` if a step has none.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.texts() {
            Some(texts) => f.write_str(&texts.join("+")),
            None => write!(f, "{self:?}"),
        }
    }
}

/// A list of texts; `null` if a step has none.
#[cfg(feature = "serde")]
impl serde::Serialize for Compose {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.texts().serialize(serializer)
    }
}

#[cfg(feature = "serde")]
impl<'de> serde::Deserialize<'de> for Compose {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let texts = Vec::<String>::deserialize(deserializer)?;
        let steps = texts.iter().map(|text| step(text)).collect::<Result<_, _>>();
        steps.map(Compose::of).map_err(serde::de::Error::custom)
    }
}
