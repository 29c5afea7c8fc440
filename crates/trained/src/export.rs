//! Trained networks for other programs.

use crate::input::EPSILON;
use crate::reversed::reversed;
use crate::{Error, Result, Trained};
use std::path::{Path, PathBuf};
use towers_augment::{ImageDataGenerator, Mean, parts::Preprocess};
use towers_checkpoint::{Tensors, load_tensors, save_tensors};
use towers_interchange::{Pixels, Source, pytorch};

/// What a network is written as.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Format {
    /// A model file like that of a run: `.safetensors`.
    Towers,
    /// A PyTorch module, `.py`, and its state dict beside it, `.safetensors`.
    PyTorch,
    /// An ONNX graph, `.onnx`.
    Onnx,
}

impl Format {
    /// The format that a file's ending stands for. A PyTorch module is imported, so its name must be one in Python.
    ///
    /// ```
    /// use towers_trained::Format;
    ///
    /// assert_eq!(Format::of("net.onnx".as_ref())?, Format::Onnx);
    /// assert!(Format::of("net.h5".as_ref()).is_err());
    /// let error = Format::of("my-net.py".as_ref()).unwrap_err().to_string();
    /// assert!(error.ends_with("a name that Python can import, such as my_net.py"), "{error}");
    /// # Ok::<(), towers_trained::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Option`] for any other ending, and for a `.py` that Python can't import.
    pub fn of(file: &Path) -> Result<Self> {
        let extension = file.extension().map(|extension| extension.to_ascii_lowercase());
        let refuse = |accepted: String| Err(Error::option("output", file.display(), accepted));
        match extension.as_ref().and_then(|extension| extension.to_str()) {
            Some("safetensors") => Ok(Format::Towers),
            Some("onnx") => Ok(Format::Onnx),
            Some("py") => {
                let name = file.file_stem().unwrap_or_default().to_string_lossy();
                match pytorch::importable(&name) {
                    own if own == name => Ok(Format::PyTorch),
                    own => refuse(format!("a name that Python can import, such as {own}.py")),
                }
            }
            _ => refuse(
                "a file that ends in .onnx, .py (PyTorch) or .safetensors (a model of towers)".to_owned(),
            ),
        }
    }
}

/// Writes a trained network as the ending of `output` says; returns the files.
///
/// # Errors
/// [`Error::Option`] for an unknown ending, [`Error::Run`] if the preprocessing can't be written for other programs,
/// [`Error::Interchange`] if the network can't.
pub fn export(trained: &Trained, output: &Path) -> Result<Vec<PathBuf>> {
    let format = Format::of(output)?;
    if format == Format::Towers {
        save(output, &trained.to_tensors()?)?;
        return Ok(vec![output.to_owned()]);
    }
    #[cfg(not(feature = "onnx"))]
    if format == Format::Onnx {
        return Err(crate::foreign_weights::without("onnx", output));
    }
    let model = trained.model()?;
    let in_order = match trained.options.reverse_channels {
        false => None,
        true => Some(reversed(&model, &trained.tensors).map_err(|layer| Error::Run {
            path: trained.path.clone(),
            reason: format!(
                "its network takes blue, green, red, and its layer `{layer}` can't take another order; it can only be written for \
                 towers (.safetensors)"
            )
            .into(),
        })?),
    };
    let mut source = Source::of(&model, in_order.as_ref().unwrap_or(&trained.tensors))
        .name(&trained.network)
        .pixels(pixels(&trained.path, &trained.options, trained.image)?)
        .classes(&trained.classes);
    if trained.named {
        source = source.dataset(&trained.dataset);
    }
    #[cfg(feature = "onnx")]
    if format == Format::Onnx {
        towers_interchange::onnx::save(output, &source)?;
        return Ok(vec![output.to_owned()]);
    }
    let weights = output.with_extension("safetensors");
    // A model of this run or of another: the command line did not name this file.
    if weights.is_file()
        && load_tensors(&weights).is_ok_and(|there| there.metadata().contains_key("towers.model"))
    {
        let weights = weights.display();
        let accepted =
            format!("a file whose weights, {weights}, are not the model itself, nor that of another run");
        return Err(Error::option("output", output.display(), accepted));
    }
    let name = weights.file_name().map(|name| name.to_string_lossy()).unwrap_or_default();
    let module = pytorch::module(&source, &name)?;
    save(&weights, &pytorch::state_dict(&source)?)?;
    towers_files::write_output(output, module.as_bytes())?;
    Ok(vec![output.to_owned(), weights])
}

fn save(file: &Path, tensors: &Tensors) -> Result<()> {
    if let Some(folder) = file.parent() {
        std::fs::create_dir_all(folder).map_err(towers_files::Error::io("create", folder))?;
    }
    Ok(save_tensors(file, tensors, tensors.metadata())?)
}

/// The preprocessing and standardization of the model at `path`, for images of this height, width and channels, as one factor and
/// one summand for each value, in the order of the picture's channels.
pub(crate) fn pixels(path: &Path, options: &ImageDataGenerator, image: [usize; 3]) -> Result<Pixels> {
    let refuse = |what: &str| {
        let reason =
            format!("its {what} can't be written for other programs, only for towers (.safetensors)");
        Err(Error::run(path, reason))
    };
    if options.samplewise_center || options.samplewise_std_normalization {
        return refuse("samplewise standardization");
    }
    if options.zca_whitening {
        return refuse("ZCA whitening");
    }
    let first = match &options.preprocess {
        Preprocess::None => None,
        Preprocess::SubtractMean(mean) => Some(mean),
        _ => return refuse("preprocessing"),
    };
    let channels = image[2];
    let factor = options.rescale.filter(|&factor| factor != 0.0).map_or(1.0, f64::from);
    let then = options.mean.as_ref().filter(|_| options.centers());
    let divisor = |c: usize| match options.std.as_ref().filter(|_| options.divides()) {
        Some(std) => std.get(c).map_or(1.0, |&std| f64::from(std) + EPSILON),
        None => 1.0,
    };
    let at = |mean: Option<&Mean>, k: usize| match mean {
        Some(Mean::PerPixel { values, .. }) => values.get(k).copied().map_or(0.0, f64::from),
        Some(Mean::PerChannel(values)) => values.get(k % channels).copied().map_or(0.0, f64::from),
        None => 0.0,
    };
    let per_pixel = [first, then].into_iter().flatten().any(|mean| matches!(mean, Mean::PerPixel { .. }));
    let shifts = if per_pixel { image.iter().product() } else { channels };
    // The channel of the network that is this one of the picture.
    let place = |k: usize| match options.reverse_channels {
        true => k / channels * channels + channels - 1 - k % channels,
        false => k,
    };
    // What comes first is subtracted from the picture's own channel.
    let shift = |k: usize| -(at(first, k) * factor + at(then, place(k))) / divisor(place(k) % channels);
    Ok(Pixels {
        scale: (0..channels).map(|c| (factor / divisor(place(c))) as f32).collect(),
        shift: (0..shifts).map(|k| shift(k) as f32).collect(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Input;
    use towers_augment::{Draws, Scratch};

    /// One factor and one summand equal the pipeline, for every standardization that they can express.
    #[test]
    fn pixels_are_the_pipeline() {
        let data = towers_cifar::synthetic(3, 20, 2);
        let image = data.test.shape();
        let len: usize = image.iter().product();
        let picture = &data.test.images.as_slice().unwrap()[..len];
        let new = ImageDataGenerator::new;
        let mean = Input::SubtractPixelMean { image, mean: (0..len).map(|k| (k % 251) as f32).collect() };
        let standard = Input::Standardize { mean: vec![120.0, 119.0, 110.0], std: 61.0 };
        for (input, options, says) in [
            (&Input::DivideBy255, new(), ""),
            (&mean, new(), ""),
            (&standard, new(), ""),
            (&Input::DivideBy255, new().featurewise_std_normalization(true), ""),
            (&mean, new().rescale(0.5), ""),
            (&mean, new().samplewise_center(true), "its samplewise standardization"),
            (&mean, new().zca_whitening(true), "its ZCA whitening"),
        ] {
            // What is refused is refused before it is measured: ZCA would take minutes.
            let options = match input.options(options) {
                options if says.is_empty() => options.fit(data.train.images.view()).unwrap(),
                options => options,
            };
            match pixels("model".as_ref(), &options.evaluation(), image) {
                Ok(pixels) => {
                    let mut expected = vec![0.0; len];
                    let pipeline = options.evaluation().build(image).unwrap();
                    pipeline
                        .apply(&Draws::default(), picture, &mut expected, &mut Scratch::default())
                        .unwrap();
                    for (k, (&x, expected)) in picture.iter().zip(expected).enumerate() {
                        let y = f32::from(x) * pixels.scale[k % 3] + pixels.shift[k % pixels.shift.len()];
                        assert!((y - expected).abs() <= 2e-6 * expected.abs().max(1.0), "{y} {expected}");
                    }
                    assert_eq!(says, "");
                }
                Err(error) => assert!(!says.is_empty() && error.to_string().contains(says), "{error}"),
            }
        }
    }

    #[test]
    fn a_network_of_ones_own_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let trained = Trained {
            path: "model".into(),
            network: "mine".into(),
            architecture: towers_models::Architecture::default(),
            classes: vec!["a".into(), "b".into()],
            named: true,
            multi_label: false,
            dataset: "synthetic".into(),
            image: [32, 32, 3],
            input: Input::DivideBy255,
            options: ImageDataGenerator::new(),
            resize: crate::Resizing::default(),
            told: Vec::new(),
            assumed: None,
            own: None,
            tensors: Tensors::new(),
        };
        for file in ["net.onnx", "net.py", "net.safetensors"] {
            let error = export(&trained, &folder.path().join(file)).unwrap_err().to_string();
            let says = "model: its network `mine` is not one of the built-in ones (airbench94, ";
            assert!(error.starts_with(says) && error.contains("small_cnn"), "{error}");
        }
    }
}
