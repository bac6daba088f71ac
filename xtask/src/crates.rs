//! The packages of the repository, from their `Cargo.toml`.
//!
//! Those outside the workspace (the image, fuzzers) count too: their arrows go the same way. A manifest that cannot be
//! read is no package; cargo says what is wrong with it.

use crate::Tree;
use std::collections::BTreeSet;
use toml::{Table, Value};

/// A package of this repository.
#[derive(Clone, Debug)]
pub struct Package {
    /// The name that it is published under.
    pub name: String,
    /// Its folder, from the root of the repository.
    pub folder: String,
    /// What it depends on, built into it or needed to build it; without what only its tests need.
    pub dependencies: BTreeSet<String>,
    /// The first files of its library and of its programs.
    pub roots: Vec<String>,
}

/// All packages, by folder.
pub fn of(tree: &Tree) -> Vec<Package> {
    tree.ending("Cargo.toml").filter_map(|(path, text)| package(tree, path, text)).collect()
}

fn package(tree: &Tree, path: &str, text: &str) -> Option<Package> {
    let manifest: Table = text.parse().ok()?;
    let name = manifest.get("package")?.get("name")?.as_str()?.to_owned();
    let folder = path.strip_suffix("/Cargo.toml")?.to_owned();
    let mut dependencies = BTreeSet::new();
    let mut tables = vec![&manifest];
    if let Some(targets) = manifest.get("target").and_then(Value::as_table) {
        tables.extend(targets.values().filter_map(Value::as_table));
    }
    for table in tables {
        for kind in ["dependencies", "build-dependencies"] {
            let of_kind = table.get(kind).and_then(Value::as_table).into_iter().flatten();
            dependencies.extend(of_kind.map(|(key, value)| renamed(value).unwrap_or(key).to_owned()));
        }
    }
    let mut roots = vec![format!("{folder}/src/lib.rs"), format!("{folder}/src/main.rs")];
    for kind in ["bin", "lib"] {
        let paths = match manifest.get(kind) {
            Some(Value::Array(all)) => all.iter().filter_map(|one| one.get("path")?.as_str()).collect(),
            Some(one) => one.get("path").and_then(Value::as_str).into_iter().collect::<Vec<_>>(),
            None => Vec::new(),
        };
        roots.extend(paths.into_iter().map(|path| format!("{folder}/{path}")));
    }
    let programs = format!("{folder}/src/bin/");
    roots.extend(tree.ending(".rs").map(|(path, _)| path.to_owned()).filter(|path| {
        path.strip_prefix(&programs).is_some_and(|rest| !rest.contains('/') || rest.ends_with("/main.rs"))
    }));
    roots.retain(|root| tree.text(root).is_some());
    roots.sort();
    roots.dedup();
    Some(Package { name, folder, dependencies, roots })
}

/// The name of a dependency that has another name here.
fn renamed(value: &Value) -> Option<&String> {
    match value.get("package")? {
        Value::String(name) => Some(name),
        _ => None,
    }
}
