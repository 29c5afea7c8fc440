use crate::{Error, Imported, Result};
use std::path::Path;
use towers_models::Model;

/// The network that a file describes, for images of this height and width or those that the file says.
pub(crate) fn model_of(path: &Path, network: &Imported, image: Option<[usize; 2]>) -> Result<Model> {
    let of_any = "its images may be of any size; load it for one, by load_for(path, [height, width])";
    let [h, w] = image.or(network.image).ok_or_else(|| Error::file(path, of_any))?;
    let no_end = "it has no dense layer at its end, which would tell the number of classes";
    let classes = network.classes.ok_or_else(|| Error::file(path, no_end))?;
    let no_channels = "it does not say how many channels its images have";
    let channels = network.channels.ok_or_else(|| Error::file(path, no_channels))?;
    let built = network.architecture.build(&network.name, [h, w, channels], classes);
    built.map_err(|error| Error::file(path, error.to_string()))
}
