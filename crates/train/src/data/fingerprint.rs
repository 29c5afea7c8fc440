use crate::{Error, Result};
use sha2::{Digest, Sha256};
use towers_callbacks::Fingerprint;
use towers_config::hex;
use towers_dataset::{Dataset, Split};
use towers_trained::listed;

/// The fingerprint of a data set.
///
/// # Errors
/// [`towers_config::Error::Data`] if pictures can't be decoded.
pub fn fingerprint(data: &Dataset) -> Result<Fingerprint> {
    Ok(described(data, digest_seen(&data.train, |_| Ok(()))?))
}

/// The fingerprint with this digest.
pub(crate) fn described(data: &Dataset, sha256: String) -> Fingerprint {
    Fingerprint { classes: data.classes.clone(), samples: data.train.len(), sha256 }
}

/// Refuses data with another fingerprint than `trained_on`.
pub(crate) fn compare(trained_on: &Fingerprint, found: &Fingerprint) -> Result<()> {
    let Fingerprint { classes, samples, sha256 } = found;
    let beyond = |a: &[String], b: &[String]| -> Vec<String> {
        a.iter().filter(|class| !b.contains(class)).cloned().collect()
    };
    let (new, gone) = (beyond(classes, &trained_on.classes), beyond(&trained_on.classes, classes));
    let differs = match (&new[..], &gone[..]) {
        ([], []) if *classes != trained_on.classes => "their classes have another order".to_owned(),
        ([], []) if *samples != trained_on.samples => {
            format!("they have {samples} training samples, not {}", trained_on.samples)
        }
        ([], []) if *sha256 != trained_on.sha256 => {
            "the pixels or the labels of their training samples differ".to_owned()
        }
        ([], []) => return Ok(()),
        (new, []) => format!("they have one more class, {}", listed(new)),
        ([], gone) => format!("they lack the class {}", listed(gone)),
        (new, gone) => format!("they have the class {} instead of {}", listed(new), listed(gone)),
    };
    Err(Error::OtherData(differs))
}

/// SHA-256 of labels and pixels, in hexadecimal. Shows `see` the pixels as well, since decoding them takes time.
pub(crate) fn digest_seen(split: &Split, mut see: impl FnMut(&[u8]) -> Result<()>) -> Result<String> {
    let mut digest = Sha256::new();
    split.labels.iter().for_each(|label| digest.update(label.to_le_bytes()));
    split.multi_hot.iter().flatten().for_each(|has| digest.update([*has]));
    split.each(|images| {
        digest.update(images);
        see(images)
    })?;
    Ok(hex(&digest.finalize()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_differs_is_named() {
        type Change<'a> = &'a dyn Fn(&mut Dataset);
        let data = towers_cifar::synthetic(1, 40, 10);
        let own = fingerprint(&data).unwrap();
        let refused = |change: Change<'_>| {
            let mut other = data.clone();
            change(&mut other);
            compare(&own, &fingerprint(&other).unwrap()).map_err(|error| error.to_string())
        };
        assert_eq!(refused(&|data| data.test = data.test.take(2)), Ok(()));
        assert_eq!(refused(&|data| data.name = "a folder".into()), Ok(()));
        let changes: [(Change<'_>, &str); 7] = [
            (&|data| data.train.images[[39, 31, 31, 2]] ^= 1, "the pixels or the labels"),
            (&|data| data.train.labels.swap(0, 1), "the pixels or the labels"),
            (&|data| data.train = data.train.take(39), "they have 39 training samples, not 40"),
            (&|data| data.classes.swap(0, 1), "another order"),
            (&|data| data.classes.push("fox".into()), "one more class, fox"),
            (&|data| data.classes.truncate(9), "they lack the class checkerboard"),
            (&|data| data.classes[9] = "fox".into(), "the class fox instead of checkerboard"),
        ];
        for (change, says) in changes {
            let error = refused(change).unwrap_err();
            assert!(error.starts_with("these are not the data that the run was trained on: "), "{error}");
            assert!(error.contains(says), "{error}");
        }
    }
}
