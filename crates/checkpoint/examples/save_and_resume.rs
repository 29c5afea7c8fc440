//! Saves a checkpoint, and finds the newest valid one.

use towers_checkpoint::{Store, Tensors, epoch_name};

#[cfg_attr(test, test)]
fn main() -> Result<(), Box<dyn std::error::Error>> {
    let folder = std::env::temp_dir().join(format!("towers-outside-{}", std::process::id()));
    let store = Store::open(&folder)?;
    let mut tensors = Tensors::new();
    tensors.insert("dense/kernel", [2, 2], vec![1.0, 2.0, 3.0, 4.0])?;
    store.save(&epoch_name(3), &tensors, &"after three epochs")?;
    let found = store.newest_valid::<String>()?.found.ok_or("nothing was saved")?;
    println!("{}: {}", found.name, found.state);
    std::fs::remove_dir_all(folder)?;
    Ok(())
}
