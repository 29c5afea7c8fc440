//! Programs in the documents are those that networks have.

use std::fs;
use std::path::Path;
use towers_layers::{BatchNormalization, Conv2D, Dense, Flatten, Graph, MaxPooling2D, Mode};
use towers_program::Activation;

/// After a change of it, the text that this prints belongs into the page.
#[test]
fn the_example_of_the_page_is_true() {
    let mut graph = Graph::new("example", [4, 4, 3]);
    let x = graph.add(Conv2D::new(2, 3).same(), graph.input()).unwrap();
    let x = graph.add(BatchNormalization::new().activation(Activation::Relu), x).unwrap();
    let x = graph.add(MaxPooling2D::new(2), x).unwrap();
    let x = graph.add(Flatten, x).unwrap();
    let logits = graph.add(Dense::new(3), x).unwrap();
    let text = graph.program(logits, Mode::Training, true).unwrap().to_string();
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let page = fs::read_to_string(root.join("docs/programs.md")).unwrap();
    assert!(page.contains(&format!("```text\n{text}```\n")), "{text}");
}
