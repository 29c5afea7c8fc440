//! The crates of this workspace, as `cargo metadata` lists them.

use crate::cargo;
use anyhow::{Context as _, Result, bail};
use serde_json::Value;
use std::path::{Path, PathBuf};

/// The workspace: where it lies and the crates it has, in the order of their names.
pub struct Workspace {
    pub root: PathBuf,
    pub crates: Vec<Crate>,
}

/// One crate of ours. All paths are relative to the root of the workspace, with `/` between the parts.
pub struct Crate {
    pub name: String,
    pub manifest: String,
    /// False for crates that say `publish = false`.
    pub published: bool,
    /// The source file at the root of its library, or else of its binary.
    pub root: String,
    pub features: Vec<String>,
    /// The names of its examples that are tests: `test = true`.
    pub examples: Vec<String>,
    /// The names of its normal and build dependencies.
    pub dependencies: Vec<String>,
}

impl Workspace {
    /// Asks Cargo, without network and without a lock file.
    pub fn load() -> Result<Workspace> {
        let output = cargo::again()
            .args(["metadata", "--format-version", "1", "--no-deps", "--manifest-path"])
            .arg(manifest_folder()?.join("Cargo.toml"))
            .output()
            .context("`cargo metadata` does not start")?;
        if !output.status.success() {
            bail!("`cargo metadata` failed: {}", String::from_utf8_lossy(&output.stderr).trim_end());
        }
        let metadata: Value =
            serde_json::from_slice(&output.stdout).context("`cargo metadata` printed no JSON")?;
        let root = PathBuf::from(text(&metadata["workspace_root"])?);
        let mut crates = list(&metadata["packages"])
            .map(|package| read_crate(&root, package))
            .collect::<Result<Vec<_>>>()?;
        crates.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(Workspace { root, crates })
    }

    /// Whether `name` is one of our crates.
    pub fn has(&self, name: &str) -> bool {
        self.crates.iter().any(|krate| krate.name == name)
    }
}

/// The folder of xtask's manifest. Cargo sets the variable for the programs it runs, so a moved or copied
/// workspace is found where it is now; the compiled-in value serves a program started by hand.
fn manifest_folder() -> Result<PathBuf> {
    let folder = std::env::var_os("CARGO_MANIFEST_DIR").map(PathBuf::from);
    let folder = folder.unwrap_or_else(|| PathBuf::from(env!("CARGO_MANIFEST_DIR")));
    if !folder.join("Cargo.toml").is_file() {
        bail!("there is no workspace at {}: start this program as `cargo xtask`", folder.display());
    }
    Ok(folder)
}

fn read_crate(root: &Path, package: &Value) -> Result<Crate> {
    let relative = |path: &Value| -> Result<String> {
        let path = Path::new(text(path)?);
        Ok(path.strip_prefix(root).unwrap_or(path).to_string_lossy().replace('\\', "/"))
    };
    let is = |target: &&Value, kind: &str| list(&target["kind"]).any(|of_target| of_target == kind);
    let root_of = |kind: &str| list(&package["targets"]).find(|target| is(target, kind));
    let target = root_of("lib").or_else(|| root_of("bin")).context("a crate has no library and no binary")?;
    let tested = list(&package["targets"]).filter(|target| is(target, "example") && target["test"] == true);
    let shipped = list(&package["dependencies"]).filter(|dependency| dependency["kind"] != "dev");
    Ok(Crate {
        name: text(&package["name"])?.to_owned(),
        manifest: relative(&package["manifest_path"])?,
        published: package["publish"].is_null(),
        root: relative(&target["src_path"])?,
        features: package["features"]
            .as_object()
            .into_iter()
            .flat_map(|table| table.keys().cloned())
            .collect(),
        examples: tested.map(|target| Ok(text(&target["name"])?.to_owned())).collect::<Result<_>>()?,
        dependencies: shipped
            .map(|dependency| Ok(text(&dependency["name"])?.to_owned()))
            .collect::<Result<_>>()?,
    })
}

fn text(value: &Value) -> Result<&str> {
    value.as_str().context("`cargo metadata` lacks a name or a path")
}

fn list(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

/// Crates for the tests of the checks.
#[cfg(test)]
pub fn fake(crates: &[(&str, &[&str])]) -> Workspace {
    let owned = |names: &[&str]| names.iter().map(|name| name.to_string()).collect();
    let krate = |(name, dependencies): &(&str, &[&str])| Crate {
        name: name.to_string(),
        manifest: format!("crates/{name}/Cargo.toml"),
        published: true,
        root: format!("crates/{name}/src/lib.rs"),
        features: Vec::new(),
        examples: vec!["a_use".to_owned()],
        dependencies: owned(dependencies),
    };
    Workspace { root: "/w".into(), crates: crates.iter().map(krate).collect() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_workspace_is_read() {
        let workspace = Workspace::load().unwrap();
        let find = |name: &str| workspace.crates.iter().find(|krate| krate.name == name).unwrap();
        let xtask = find("xtask");
        assert_eq!((xtask.root.as_str(), xtask.manifest.as_str()), ("xtask/src/main.rs", "xtask/Cargo.toml"));
        assert!(!xtask.published && xtask.dependencies.contains(&"anyhow".to_owned()));
        let optim = find("towers-optim");
        assert!(optim.published && !optim.dependencies.contains(&"proptest".to_owned()));
        assert!(find("towers-cifar").features.contains(&"download".to_owned()));
        assert_eq!(find("towers-optim").examples, ["straight_line"]);
    }
}
