//! Factors on the losses of the classes: `class_weight`.

use crate::{Error, Result};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::Path;
use towers_options::{Refused, hint, message};

/// The factors on the losses of the classes, as `class_weight` of Keras' `fit`: the loss of a training sample is multiplied by
/// the weight of its class. Metrics and validation are not weighted.
///
/// ```
/// use towers_config::ClassWeight;
///
/// let classes = ["cat", "dog"].map(str::to_owned);
/// let weights = ClassWeight::BALANCED.of(&classes, &[10, 30])?;
/// assert_eq!(weights, [2.0, 40.0 / 60.0]);
/// # Ok::<(), towers_config::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum ClassWeight {
    /// A rule that counts the training samples.
    Rule(WeightRule),
    /// The weights of classes by their name, or by their number from 0. Others have 1.
    Classes(BTreeMap<String, f64>),
}

/// A rule for the weights of classes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum WeightRule {
    /// Each class has the same part in the loss: the number of samples over that of classes and that of the class' own
    /// samples, as `class_weight="balanced"` of scikit-learn.
    Balanced,
}

impl ClassWeight {
    /// Each class has the same part in the loss.
    pub const BALANCED: Self = ClassWeight::Rule(WeightRule::Balanced);
    pub(crate) const ACCEPTED: &str =
        "balanced, CLASS=WEIGHT,..., or a file: JSON with a weight for each class, or lines of CLASS,WEIGHT";

    /// Checks that weights are numbers from 0.
    pub(crate) fn check(&self) -> Result<()> {
        let ClassWeight::Classes(weights) = self else { return Ok(()) };
        let valid = |weight: f64| (weight as f32).is_finite() && weight >= 0.0;
        match weights.iter().find(|(_, weight)| !valid(**weight)) {
            Some((class, weight)) => Err(Error::option(
                "class_weight",
                format!("{class}={weight}"),
                "a number from 0 for each class",
            )),
            None => Ok(()),
        }
    }

    /// The weight of each class, of which there are as many training samples as `counts` says.
    ///
    /// # Errors
    /// [`Error::Option`] for a name that is no class, and for weights that leave nothing to train on.
    pub fn of(&self, classes: &[String], counts: &[usize]) -> Result<Vec<f64>> {
        match self {
            ClassWeight::Rule(WeightRule::Balanced) => {
                let present = counts.iter().filter(|count| **count > 0).count();
                let even = counts.iter().sum::<usize>() as f64 / present as f64;
                Ok(counts.iter().map(|&count| if count > 0 { even / count as f64 } else { 1.0 }).collect())
            }
            ClassWeight::Classes(given) => {
                let mut weights: Vec<Option<f64>> = vec![None; classes.len()];
                for (name, weight) in given {
                    let named = classes.iter().position(|class| class == name);
                    let numbered = || name.parse().ok().filter(|number| *number < classes.len());
                    let Some(class) = named.or_else(numbered) else {
                        let near = hint(name, classes.iter().map(String::as_str));
                        let accepted = format!("the weights of classes of the data{near}");
                        return Err(Error::option("class_weight", format!("`{name}`"), accepted));
                    };
                    if weights[class].replace(*weight).is_some() {
                        let accepted = "one weight for each class, by its name or by its number";
                        return Err(Error::option("class_weight", format!("`{name}` once more"), accepted));
                    }
                }
                let weights: Vec<f64> = weights.into_iter().map(|weight| weight.unwrap_or(1.0)).collect();
                let counts = weights.iter().zip(counts).any(|(weight, count)| *weight > 0.0 && *count > 0);
                if !counts {
                    let accepted = "such that a class with training samples has a weight above 0";
                    return Err(Error::option("class_weight", "0 for each of them", accepted));
                }
                Ok(weights)
            }
        }
    }
}

/// The first line that files of weights may have.
const HEADER: &str = "class,weight";

/// Reads the option's text: a rule, weights, or a file that has them.
pub(crate) fn read(text: &str) -> Result<Value, Refused> {
    let refuse = || Refused::MustBe(ClassWeight::ACCEPTED.into());
    if text == "balanced" {
        return Ok(text.into());
    }
    let path = Path::new(text);
    let weights = if path.is_file() {
        let content =
            towers_files::read_text(path).map_err(|error| Refused::Because(error.to_string().into()))?;
        let bad = |why: String| Refused::Because(message!("the weights of classes in {text}: {why}"));
        match serde_json::from_str::<BTreeMap<String, f64>>(&content) {
            Ok(weights) => weights,
            Err(error) if content.trim_start().starts_with('{') => return Err(bad(error.to_string())),
            Err(_) => {
                pairs(content.lines().filter(|line| !line.trim().is_empty() && line.trim() != HEADER), ',')
                    .map_err(|line| bad(format!("`{line}` is no line CLASS,WEIGHT")))?
            }
        }
    } else {
        pairs(text.split(','), '=').map_err(|_| refuse())?
    };
    if weights.is_empty() { Err(refuse()) } else { Ok(serde_json::json!(weights)) }
}

/// The classes and weights of texts that have both, each class once; else the first text that doesn't.
fn pairs<'a>(
    texts: impl Iterator<Item = &'a str>,
    separator: char,
) -> Result<BTreeMap<String, f64>, &'a str> {
    let mut all = BTreeMap::new();
    for text in texts {
        let (class, weight) = text.rsplit_once(separator).ok_or(text)?;
        let weight = weight.trim().parse().ok().filter(|weight: &f64| weight.is_finite()).ok_or(text)?;
        // A class that is named twice has no weight.
        if all.insert(class.trim().to_owned(), weight).is_some() {
            return Err(text);
        }
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn classes() -> Vec<String> {
        ["cat", "dog", "bird"].map(str::to_owned).to_vec()
    }

    fn weights(text: &str) -> ClassWeight {
        serde_json::from_value(read(text).unwrap()).unwrap()
    }

    /// As `compute_class_weight("balanced", ...)` of scikit-learn 1.9 on 2, 6 and 4 samples.
    #[test]
    fn balanced_weights_are_those_of_scikit_learn() {
        let all = weights("balanced").of(&classes(), &[2, 6, 4]).unwrap();
        assert_eq!(all, [2.0, 2.0 / 3.0, 1.0]);
        assert_eq!(ClassWeight::BALANCED.of(&classes(), &[3, 0, 1]).unwrap(), [4.0 / 6.0, 1.0, 2.0]);
    }

    #[test]
    fn classes_are_named_or_numbered() {
        let of = |text| weights(text).of(&classes(), &[1, 1, 1]);
        assert_eq!(of("dog=2.5, 0=3").unwrap(), [3.0, 2.5, 1.0]);
        assert!(of("dgo=2").unwrap_err().to_string().contains("dog"));
        assert!(of("3=2").is_err());
        assert!(of("dog=2,1=3").unwrap_err().to_string().contains("one weight for each class"));
        assert!(of("cat=0,dog=0,bird=0").is_err());
        let round_trip = serde_json::to_value(weights("cat=2")).unwrap();
        assert_eq!(serde_json::from_value::<ClassWeight>(round_trip).unwrap(), weights("cat=2"));
    }

    #[test]
    fn files_and_bad_texts() {
        let folder = tempfile::tempdir().unwrap();
        let (json, csv) = (folder.path().join("w.json"), folder.path().join("w.csv"));
        std::fs::write(&json, r#"{"cat": 2, "a, b": 0.5}"#).unwrap();
        std::fs::write(&csv, "class,weight\ncat,2\na, b,0.5\n\n").unwrap();
        assert_eq!(read(json.to_str().unwrap()), read(csv.to_str().unwrap()));
        std::fs::write(&csv, "class,weight\ncat,two\n").unwrap();
        std::fs::write(&json, r#"{"cat": "two"}"#).unwrap();
        let nothing = folder.path().join("none.json").display().to_string();
        for bad in [
            json.to_str().unwrap(),
            csv.to_str().unwrap(),
            &nothing,
            "cat",
            "cat=x",
            "cat=inf",
            "cat=1,cat=2",
            "",
        ] {
            assert!(read(bad).is_err(), "{bad}");
        }
        for bad in ["cat=-1", "cat=1e99"] {
            assert!(weights(bad).check().is_err(), "{bad}");
        }
    }
}
