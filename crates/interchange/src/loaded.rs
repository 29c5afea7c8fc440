use crate::{Pixels, Result, Source};
use towers_checkpoint::Tensors;
use towers_layers::Network;
use towers_models::Model;

/// A network of another program with its weights.
#[derive(Debug)]
#[non_exhaustive]
pub struct Loaded {
    /// The network, to be built on a device.
    pub model: Model,
    /// Its parameters, under the names of their slots.
    pub tensors: Tensors,
    /// The preprocessing of pixels, where the file says it.
    pub pixels: Option<Pixels>,
    /// The names of the classes, by label, where the file says them.
    pub classes: Option<Vec<String>>,
    /// Notes on the file, a sentence each.
    pub told: Vec<String>,
}

impl Loaded {
    /// The same network, to be written for another program.
    pub fn source(&self) -> Source<'_> {
        let mut source = Source::of(&self.model, &self.tensors);
        if let Some(pixels) = &self.pixels {
            source = source.pixels(pixels.clone());
        }
        if let Some(classes) = &self.classes {
            source = source.classes(classes);
        }
        source
    }

    /// Copies the parameters into a network that was built of the model.
    ///
    /// # Errors
    /// If a parameter is missing, and those of the device.
    pub fn put_into(&self, network: &mut Network) -> towers_layers::Result<()> {
        let device = network.device().clone();
        let arena = network.arena_mut();
        for slot in arena.slots().to_vec() {
            let Some(tensor) = self.tensors.get(&slot.name) else {
                return Err(towers_layers::Error::Graph {
                    layer: slot.name.clone(),
                    what: "it has no values".into(),
                });
            };
            arena.load(&device, &slot, tensor.data())?;
        }
        Ok(())
    }
}

/// The parameters and averages of a network, copied from its device, under the names of their slots.
///
/// # Errors
/// Those of the device.
pub fn tensors(network: &Network) -> Result<Tensors> {
    let (arena, mut tensors) = (network.arena(), Tensors::new());
    for slot in arena.slots() {
        let values = arena.storage(slot).to_vec(network.device(), slot.span.offset, slot.span.len)?;
        tensors.insert(&slot.name, slot.shape.clone(), values)?;
    }
    Ok(tensors)
}
