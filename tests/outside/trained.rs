use std::path::Path;
use towers_trained::{Classifier, ForeignWeights, Trained};

fn main() {
    match Trained::read(Path::new("no/such/run")) {
        Err(error) => println!("{error}"),
        Ok(trained) => {
            let classifier = Classifier::new(&trained, &towers_tensor_cpu::device(1), 64).expect("enough memory");
            println!("{}", classifier.classes.join(", "));
        }
    }
    println!("{}", ForeignWeights::keras(Path::new("net.keras"), None).expect_err("there is no such file"));
}
