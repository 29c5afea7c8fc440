use crate::Compiled;
use towers_models::Architecture;

/// A network as a file of another program describes it, without its weights.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct Imported {
    /// The network's name.
    pub name: String,
    /// Its layers. The number of classes is [left open](Architecture::take_classes).
    pub architecture: Architecture,
    /// The number of classes, if a dense layer at the end says it.
    pub classes: Option<usize>,
    /// Height and width of its images, if the file says them.
    pub image: Option<[usize; 2]>,
    /// The channels of its images, 1 or 3, if the file says them.
    pub channels: Option<usize>,
    /// The names of the models inside of it.
    pub parts: Vec<String>,
    /// Options of training in the file that the layers have no words for, a sentence each.
    pub notes: Vec<String>,
    /// The optimizer that the file names, or why it can't be taken. `None` if it names none.
    pub compiled: Option<Result<Compiled, String>>,
}

impl Imported {
    /// A network with these layers, of which nothing else is known.
    pub fn new(name: impl Into<String>, architecture: Architecture) -> Self {
        Imported { name: name.into(), architecture, ..Imported::default() }
    }
}
