use std::path::Path;
use trained::{Classifier, Trained};

fn main() {
    match Trained::read(Path::new("no/such/run")) {
        Err(error) => println!("{error}"),
        Ok(trained) => {
            let classifier = Classifier::new(&trained, &tensor_cpu::device(1), 64).expect("enough memory");
            println!("{}", classifier.classes.join(", "));
        }
    }
}
