//! What `cargo metadata` says about the crates of this workspace.

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
    pub description: String,
    pub license: String,
    pub repository: String,
    pub readme: Option<String>,
    /// The source files at the root of its library and its binaries.
    pub roots: Vec<String>,
    pub features: Vec<String>,
    pub dependencies: Vec<Dependency>,
}

/// One line of a crate's dependency tables.
pub struct Dependency {
    pub name: String,
    pub kind: Kind,
    /// Whether it is given by a path: one of ours.
    pub local: bool,
    /// The version requirement; `*` where the manifest has none.
    pub requirement: String,
}

/// The table that a dependency stands in.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    Normal,
    Build,
    Dev,
}

impl Workspace {
    /// Asks Cargo, without network and without a lock file.
    pub fn load() -> Result<Workspace> {
        let manifest = manifest_folder()?.join("Cargo.toml");
        let output = cargo::again()
            .args(["metadata", "--format-version", "1", "--no-deps", "--manifest-path"])
            .arg(&manifest)
            .output()
            .context("`cargo metadata` does not start")?;
        if !output.status.success() {
            bail!("`cargo metadata` failed: {}", String::from_utf8_lossy(&output.stderr).trim_end());
        }
        let metadata = serde_json::from_slice(&output.stdout).context("`cargo metadata` printed no JSON")?;
        Workspace::from_metadata(&metadata)
    }

    /// Reads the JSON document of `cargo metadata --no-deps`.
    pub fn from_metadata(metadata: &Value) -> Result<Workspace> {
        let root = PathBuf::from(text(metadata, "workspace_root")?);
        let mut crates = list(metadata, "packages")
            .map(|package| read_crate(&root, package))
            .collect::<Result<Vec<_>>>()?;
        crates.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(Workspace { root, crates })
    }

    /// The crate called `name`, if it is one of ours.
    pub fn find(&self, name: &str) -> Option<&Crate> {
        self.crates.iter().find(|krate| krate.name == name)
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
    let manifest = relative(root, text(package, "manifest_path")?);
    let folder = manifest.trim_end_matches("Cargo.toml");
    let roots = list(package, "targets")
        .filter(|target| {
            list(target, "kind").any(|kind| matches!(kind.as_str(), Some("lib" | "bin" | "proc-macro")))
        })
        .map(|target| Ok(relative(root, text(target, "src_path")?)))
        .collect::<Result<Vec<_>>>()?;
    let features = package["features"].as_object().map(|table| table.keys().cloned().collect());
    Ok(Crate {
        name: text(package, "name")?.to_owned(),
        published: package["publish"].is_null(),
        description: optional(package, "description"),
        license: optional(package, "license"),
        repository: optional(package, "repository"),
        readme: package["readme"].as_str().map(|readme| format!("{folder}{readme}")),
        roots,
        features: features.unwrap_or_default(),
        dependencies: list(package, "dependencies").map(read_dependency).collect::<Result<Vec<_>>>()?,
        manifest,
    })
}

fn read_dependency(dependency: &Value) -> Result<Dependency> {
    let kind = match dependency["kind"].as_str() {
        None => Kind::Normal,
        Some("build") => Kind::Build,
        Some("dev") => Kind::Dev,
        Some(other) => bail!("`cargo metadata` names an unknown kind of dependency: {other}"),
    };
    Ok(Dependency {
        name: text(dependency, "name")?.to_owned(),
        kind,
        local: dependency["path"].is_string(),
        requirement: text(dependency, "req")?.to_owned(),
    })
}

fn text<'a>(value: &'a Value, key: &str) -> Result<&'a str> {
    value[key].as_str().with_context(|| format!("`cargo metadata` says nothing of `{key}`"))
}

fn optional(value: &Value, key: &str) -> String {
    value[key].as_str().unwrap_or_default().to_owned()
}

fn list<'a>(value: &'a Value, key: &str) -> impl Iterator<Item = &'a Value> {
    value[key].as_array().into_iter().flatten()
}

fn relative(root: &Path, path: &str) -> String {
    let path = Path::new(path);
    path.strip_prefix(root).unwrap_or(path).to_string_lossy().replace('\\', "/")
}

/// Made-up metadata for the tests of the checks.
#[cfg(test)]
pub mod fake {
    use super::*;
    use serde_json::json;

    /// A workspace in `/w` whose crates, given as (name, normal dependencies, dev-dependencies), have
    /// good manifests and lie in `crates/NAME`.
    pub fn workspace(crates: &[(&str, &[&str], &[&str])]) -> Workspace {
        let packages: Vec<Value> =
            crates.iter().map(|(name, normal, dev)| package(name, normal, dev)).collect();
        Workspace::from_metadata(&json!({ "workspace_root": "/w", "packages": packages })).unwrap()
    }

    fn package(name: &str, normal: &[&str], dev: &[&str]) -> Value {
        let line = |kind: Value| {
            move |dependency: &&str| {
                let path = format!("/w/crates/{dependency}");
                json!({ "name": dependency, "kind": kind, "req": "^0.1", "path": path })
            }
        };
        let mut dependencies: Vec<Value> = normal.iter().map(line(Value::Null)).collect();
        dependencies.extend(dev.iter().map(line("dev".into())));
        json!({
            "name": name, "manifest_path": format!("/w/crates/{name}/Cargo.toml"), "publish": null,
            "description": "A crate", "license": "MIT", "repository": "https://example.org", "readme": null,
            "targets": [
                { "kind": ["lib"], "src_path": format!("/w/crates/{name}/src/lib.rs") },
                { "kind": ["test"], "src_path": format!("/w/crates/{name}/tests/all.rs") },
            ],
            "features": {}, "dependencies": dependencies,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_relative_and_roots_are_libraries_and_binaries() {
        let workspace = fake::workspace(&[("b", &["a"], &[]), ("a", &[], &["b"])]);
        assert_eq!(workspace.crates[0].name, "a");
        let krate = workspace.find("b").unwrap();
        assert_eq!(krate.manifest, "crates/b/Cargo.toml");
        assert_eq!(krate.roots, ["crates/b/src/lib.rs"]);
        assert_eq!(krate.dependencies[0].kind, Kind::Normal);
        assert_eq!(workspace.find("a").unwrap().dependencies[0].kind, Kind::Dev);
        assert!(workspace.find("c").is_none());
    }

    #[test]
    fn metadata_without_a_root_is_an_error() {
        let error = Workspace::from_metadata(&serde_json::json!({ "packages": [] })).err().unwrap();
        assert!(error.to_string().contains("workspace_root"), "{error}");
    }

    #[test]
    fn this_workspace_is_read() {
        let workspace = Workspace::load().unwrap();
        let xtask = workspace.find("xtask").unwrap();
        assert_eq!(xtask.roots, ["xtask/src/main.rs"]);
        assert!(!xtask.published);
    }
}
