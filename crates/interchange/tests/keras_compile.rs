//! The optimizers of models that Keras has compiled: tests/golden/keras_compile.py made the files.

use std::path::Path;
use towers_interchange::Compiled;
use towers_interchange::keras::read_network;

fn compiled(file: &str) -> Option<Result<Compiled, String>> {
    let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/golden/keras");
    read_network(&golden.join(file)).unwrap().compiled
}

#[test]
fn a_compiled_model_has_its_optimizer() {
    let sgd = Compiled {
        optimizer: "sgd:momentum=0.8,nesterov=true".to_owned(),
        lr: 0.02,
        schedule: Some("constant".to_owned()),
        left_out: Vec::new(),
    };
    assert_eq!(compiled("compiled.keras"), Some(Ok(sgd)));
    let adam = Compiled {
        optimizer: "adam:beta1=0.9,beta2=0.999,epsilon=0.0000001,clipnorm=1".to_owned(),
        lr: 0.003,
        schedule: None,
        left_out: vec!["its schedule ExponentialDecay".to_owned()],
    };
    assert_eq!(compiled("compiled.tf215.h5"), Some(Ok(adam)));
    assert_eq!(compiled("tiny.keras"), None);
}
