//! Circles between the files of a package: what a file uses must not use it in turn.
//!
//! A file uses another if its code names something that the other defines, by a path or through an import; the names
//! are followed through what modules hand on (`pub use`) to where they are defined. A parent that declares its
//! children, or hands on their names, does not use them by that. Methods are not seen, as they have no paths: an arrow
//! may be missing, but each arrow that is found is there.

use crate::crates::Package;
use crate::modules::{self, Modules};
use crate::{Fault, Tree};
use std::collections::{BTreeMap, BTreeSet};

/// Circles that stay, each with its files.
pub const KNOTS: &[(&str, &[&str])] = &[];

/// What each file of a package uses of the others.
pub type Arrows = BTreeMap<String, BTreeSet<String>>;

/// What a path leads to.
#[derive(Clone, Copy)]
enum Found {
    Module(usize),
    Item(usize),
    Elsewhere,
}

/// How far names are followed: imports may go round.
const MAX_STEPS: usize = 32;

/// Circles that are no known knots.
pub fn check(tree: &Tree, packages: &[Package]) -> Vec<Fault> {
    packages.iter().flat_map(|package| faults(package, &circles(&arrows(tree, package)))).collect()
}

fn faults(package: &Package, circles: &[Vec<String>]) -> Vec<Fault> {
    let known = |files: &[String]| {
        KNOTS
            .iter()
            .any(|(name, knot)| *name == package.name && files.iter().all(|f| knot.contains(&f.as_str())))
    };
    let unknown = circles.iter().filter(|files| !known(files));
    unknown
        .map(|files| Fault::new(&files[0], 0, format!("a circle of files: {}", files.join(", "))))
        .collect()
}

/// What the files of a package use of each other.
pub fn arrows(tree: &Tree, package: &Package) -> Arrows {
    let mut arrows = Arrows::new();
    for root in &package.roots {
        let modules = modules::of(tree, root);
        let paths = Paths::of(&modules);
        for (number, module) in modules.all.iter().enumerate().filter(|(_, module)| !module.tests) {
            let imported = module.imports.iter().filter(|import| !import.handed_on && !import.all);
            for path in module.named.iter().chain(imported.map(|import| &import.path)) {
                if let Found::Item(at) = paths.find(number, path, MAX_STEPS)
                    && modules.all[at].file != module.file
                {
                    arrows.entry(module.file.clone()).or_default().insert(modules.all[at].file.clone());
                }
            }
        }
    }
    arrows
}

/// The modules of a package, and from which of them each imports all names.
struct Paths<'a> {
    modules: &'a Modules,
    all_of: Vec<Vec<usize>>,
}

impl<'a> Paths<'a> {
    fn of(modules: &'a Modules) -> Paths<'a> {
        let mut paths = Paths { modules, all_of: vec![Vec::new(); modules.all.len()] };
        // The path of such an import may itself lead through others: each round knows more of them.
        loop {
            let found: Vec<Vec<usize>> =
                (0..modules.all.len()).map(|module| paths.imported(module)).collect();
            if found == paths.all_of {
                return paths;
            }
            paths.all_of = found;
        }
    }

    /// The modules of which a module imports all names.
    fn imported(&self, module: usize) -> Vec<usize> {
        let all = self.modules.all[module].imports.iter().filter(|import| import.all);
        all.filter_map(|import| match self.find(module, &import.path, MAX_STEPS) {
            Found::Module(other) if other != module => Some(other),
            _ => None,
        })
        .collect()
    }

    /// Where a path leads from a module.
    fn find(&self, from: usize, path: &[String], steps: usize) -> Found {
        let Some((first, rest)) = path.split_first() else { return Found::Elsewhere };
        let Some(steps) = steps.checked_sub(1) else { return Found::Elsewhere };
        let parent = |module: usize| self.modules.all[module].parent.map_or(Found::Elsewhere, Found::Module);
        let mut at = match first.as_str() {
            "crate" => Found::Module(0),
            "self" => Found::Module(from),
            "super" => parent(from),
            name => self.look_up(from, name, steps).unwrap_or(Found::Elsewhere),
        };
        for name in rest {
            let Found::Module(module) = at else { return at };
            at = match name.as_str() {
                "super" => parent(module),
                "self" => at,
                // What is not seen there, a macro makes.
                _ => self.look_up(module, name, steps).unwrap_or(Found::Item(module)),
            };
        }
        at
    }

    /// What a name means in a module: its own, or of those whose names it has all, each looked into once.
    fn look_up(&self, module: usize, name: &str, steps: usize) -> Option<Found> {
        let mut seen = BTreeSet::new();
        let mut open = vec![module];
        while let Some(module) = open.pop() {
            if !seen.insert(module) {
                continue;
            }
            if let Some(found) = self.own(module, name, steps) {
                return Some(found);
            }
            open.extend(self.all_of[module].iter().rev());
        }
        None
    }

    /// What a name means that a module defines, declares or imports by itself.
    fn own(&self, module: usize, name: &str, steps: usize) -> Option<Found> {
        let it = &self.modules.all[module];
        if it.items.contains(name) {
            return Some(Found::Item(module));
        }
        if let Some(child) = it.children.get(name) {
            return Some(Found::Module(*child));
        }
        let import = it.imports.iter().find(|import| import.name.as_deref() == Some(name))?;
        // `use name::...` of another package, under the name that it has here.
        let round = import.path.first().is_some_and(|first| first == name);
        Some(if round { Found::Elsewhere } else { self.find(module, &import.path, steps) })
    }
}

/// Files that use each other, directly or by others: each circle's files in order.
pub fn circles(arrows: &Arrows) -> Vec<Vec<String>> {
    let reached: BTreeMap<&str, BTreeSet<&str>> =
        arrows.keys().map(|file| (file.as_str(), reached_from(arrows, file))).collect();
    let mut circles: BTreeSet<Vec<String>> = BTreeSet::new();
    for (file, reach) in reached.iter().filter(|(file, reach)| reach.contains(*file)) {
        let back = |other: &str| reached.get(other).is_some_and(|reach| reach.contains(file));
        circles.insert(reach.iter().filter(|other| back(other)).map(|other| (*other).to_owned()).collect());
    }
    circles.into_iter().collect()
}

/// All that a file uses, and what that uses.
fn reached_from<'a>(arrows: &'a Arrows, file: &str) -> BTreeSet<&'a str> {
    let mut reached = BTreeSet::new();
    let mut open: Vec<&str> = arrows.get(file).into_iter().flatten().map(String::as_str).collect();
    while let Some(next) = open.pop() {
        if reached.insert(next) {
            open.extend(arrows.get(next).into_iter().flatten().map(String::as_str));
        }
    }
    reached
}
