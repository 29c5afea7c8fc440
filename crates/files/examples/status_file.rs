//! Replaces a file atomically, and reads it.

use std::io::Write;

#[cfg_attr(test, test)]
fn main() -> Result<(), towers_files::Error> {
    let folder = std::env::temp_dir().join(format!("towers-outside-files-{}", std::process::id()));
    let path = folder.join("status.json");
    towers_files::write(&path, b"{}")?;
    towers_files::replace(&path, |file| file.write_all(b"{\"epoch\": 3}"))?;
    println!("{}", towers_files::read_text(&path)?);
    std::fs::remove_dir_all(&folder).map_err(towers_files::Error::io("remove", &folder))?;
    println!("{}", towers_files::read_text(&path).expect_err("it was removed"));
    Ok(())
}
