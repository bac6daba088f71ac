//! All checks, one after the other.

use crate::{Fault, Tree, circles, crates, docs, layers, lines, links, modules, prose, quiet, words};

/// All checks, on one tree. The faults come in the order of the files.
pub fn check(tree: &Tree) -> Vec<Fault> {
    let crates = crates::of(tree);
    let mut faults = layers::check(&crates);
    faults.extend(lines::check(tree));
    faults.extend(modules::check(tree, &crates));
    faults.extend(circles::check(tree, &crates));
    faults.extend(words::check(tree));
    faults.extend(quiet::check(tree));
    faults.extend(docs::check(tree));
    faults.extend(prose::check(tree));
    faults.extend(links::check(tree));
    faults.sort();
    faults.dedup();
    faults
}
