use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use towers_checkpoint::Tensors;
use towers_dataset::Resize;

/// The key of a model file's metadata with the way in which its pictures were resized; files without it stretch.
const RESIZE: &str = "towers.resize";

/// [`Resize`] in files: its text.
///
/// ```
/// use towers_dataset::Resize;
/// use towers_trained::Resizing;
///
/// let resizing: Resizing = serde_json::from_str("\"shorter-side:256\"").unwrap();
/// assert_eq!(resizing.0, Resize::ShorterSide(Some(256)));
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Resizing(pub Resize);

impl Resizing {
    /// Adds it to the metadata of a model file.
    pub fn add_to(self, tensors: &mut Tensors) {
        if self.0 != Resize::Stretch {
            tensors.metadata_mut().insert(RESIZE.to_owned(), self.0.to_string());
        }
    }

    /// That of a model file. `None` if it is unknown.
    pub(crate) fn of(tensors: &Tensors) -> Option<Self> {
        tensors
            .metadata()
            .get(RESIZE)
            .map_or(Some(Resizing::default()), |text| text.parse().ok().map(Resizing))
    }
}

impl Serialize for Resizing {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&self.0)
    }
}

impl<'de> Deserialize<'de> for Resizing {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse()
            .map(Resizing)
            .map_err(|accepted| de::Error::custom(format!("`{text}` must be {accepted}")))
    }
}
