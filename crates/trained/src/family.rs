//! The preprocessing of networks that people know by name.

use crate::Preprocessing;

/// The names of `keras.applications`, or how they begin, and what their `preprocess_input` does. Networks that normalize pixels by
/// themselves are not among them.
const KERAS: [(&str, Preprocessing); 18] = [
    ("vgg16", Preprocessing::Caffe),
    ("vgg19", Preprocessing::Caffe),
    ("resnet50", Preprocessing::Caffe),
    ("resnet101", Preprocessing::Caffe),
    ("resnet152", Preprocessing::Caffe),
    ("resnet50v2", Preprocessing::Tf),
    ("resnet101v2", Preprocessing::Tf),
    ("resnet152v2", Preprocessing::Tf),
    ("inception_v3", Preprocessing::Tf),
    ("inception_resnet_v2", Preprocessing::Tf),
    ("xception", Preprocessing::Tf),
    ("mobilenet_", Preprocessing::Tf),
    ("mobilenetv2_", Preprocessing::Tf),
    ("nasnet", Preprocessing::Tf),
    ("nasnet_", Preprocessing::Tf),
    ("densenet121", Preprocessing::Torch),
    ("densenet169", Preprocessing::Torch),
    ("densenet201", Preprocessing::Torch),
];

impl Preprocessing {
    /// The preprocessing for a network that is called so, or has a model called so inside of it, and why, as a sentence. `None` for
    /// names that are not those of `keras.applications`.
    ///
    /// ```
    /// use towers_trained::Preprocessing;
    ///
    /// let (preprocessing, why) = Preprocessing::of_family(["model_1", "resnet50"]).unwrap();
    /// assert_eq!((preprocessing, why.as_str()), (Preprocessing::Caffe, "as keras.applications prepares pixels for its resnet50"));
    /// assert_eq!(Preprocessing::of_family(["mobilenetv2_1.00_224"]).unwrap().0, Preprocessing::Tf);
    /// assert!(Preprocessing::of_family(["resnet500", "mine"]).is_none());
    /// ```
    pub fn of_family<'a>(names: impl IntoIterator<Item = &'a str>) -> Option<(Preprocessing, String)> {
        names.into_iter().find_map(|name| {
            let lower = name.to_ascii_lowercase();
            let is_called = |known: &str| lower == known || known.ends_with('_') && lower.starts_with(known);
            let (_, preprocessing) = KERAS.into_iter().find(|(known, _)| is_called(known))?;
            Some((preprocessing, format!("as keras.applications prepares pixels for its {lower}")))
        })
    }
}
