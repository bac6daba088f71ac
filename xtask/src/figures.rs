//! How the source stands, in numbers: `cargo run -p xtask -- figures`.

use crate::{Tree, circles, crates, layers, lines};
use std::fmt::Write as _;
use syn::visit::{self, Visit};

/// The figures as text: a line for each package, then those of the whole repository.
pub fn of(tree: &Tree) -> String {
    let packages = crates::of(tree);
    let up = layers::check(&packages);
    let mut out = String::new();
    let head = ["package", "files", "up", "circles", "in them", "no doc"];
    let [package, files, up_head, circles, within, bare] = head;
    let _ = writeln!(out, "{package:22} {files:>6} {up_head:>6} {circles:>9} {within:>9} {bare:>9}");
    for package in &packages {
        let manifest = format!("{}/Cargo.toml", package.folder);
        let src = format!("{}/src/", package.folder);
        let files: Vec<_> = tree.ending(".rs").filter(|(path, _)| path.starts_with(&src)).collect();
        let up = up.iter().filter(|fault| fault.path == manifest).count();
        let circles = circles::circles(&circles::arrows(tree, package));
        let within: usize = circles.iter().map(Vec::len).sum();
        let bare: usize = files.iter().map(|(_, text)| undocumented(text)).sum();
        let (files, circles) = (files.len(), circles.len());
        let _ = writeln!(out, "{:22} {files:>6} {up:>6} {circles:>9} {within:>9} {bare:>9}", package.name);
    }
    let mut ends: Vec<(&str, usize)> = Vec::new();
    for (path, text) in tree.texts().filter(|(path, _)| lines::is_read(path)) {
        let end =
            path.rsplit('/').next().and_then(|name| name.rsplit_once('.')).map_or("scripts", |(_, end)| end);
        let wide = lines::wide(path, text).len();
        match ends.iter_mut().find(|(known, _)| *known == end) {
            Some((_, sum)) => *sum += wide,
            None => ends.push((end, wide)),
        }
    }
    let _ = writeln!(out, "\nlines over {} characters: {}", lines::MAX_WIDTH, listed(&ends));
    let longest = tree.ending(".rs").map(|(path, text)| (text.lines().count(), path)).max();
    if let Some((lines, path)) = longest {
        let _ = writeln!(out, "longest file of Rust: {lines} lines, {path}");
    }
    let readme = tree.text("README.md").map_or(0, |text| text.lines().count());
    let _ = writeln!(out, "README: {readme} lines");
    out
}

fn listed(counts: &[(&str, usize)]) -> String {
    counts.iter().map(|(end, count)| format!("{count} {end}")).collect::<Vec<_>>().join(", ")
}

/// Public items of a file without documentation, wherever they can be reached from.
fn undocumented(text: &str) -> usize {
    let mut bare = Bare(0);
    if let Ok(file) = syn::parse_file(text) {
        bare.visit_file(&file);
    }
    bare.0
}

struct Bare(usize);

impl Bare {
    fn look(&mut self, vis: &syn::Visibility, attributes: &[syn::Attribute]) {
        let public = matches!(vis, syn::Visibility::Public(_));
        let said = attributes.iter().any(|attribute| attribute.path().is_ident("doc"));
        self.0 += usize::from(public && !said);
    }
}

impl<'a> Visit<'a> for Bare {
    fn visit_item_fn(&mut self, item: &'a syn::ItemFn) {
        self.look(&item.vis, &item.attrs);
    }
    fn visit_item_struct(&mut self, item: &'a syn::ItemStruct) {
        self.look(&item.vis, &item.attrs);
        visit::visit_item_struct(self, item);
    }
    fn visit_item_enum(&mut self, item: &'a syn::ItemEnum) {
        self.look(&item.vis, &item.attrs);
    }
    fn visit_item_trait(&mut self, item: &'a syn::ItemTrait) {
        self.look(&item.vis, &item.attrs);
    }
    fn visit_item_const(&mut self, item: &'a syn::ItemConst) {
        self.look(&item.vis, &item.attrs);
    }
    fn visit_item_type(&mut self, item: &'a syn::ItemType) {
        self.look(&item.vis, &item.attrs);
    }
    fn visit_impl_item_fn(&mut self, item: &'a syn::ImplItemFn) {
        self.look(&item.vis, &item.attrs);
    }
    fn visit_field(&mut self, field: &'a syn::Field) {
        self.look(&field.vis, &field.attrs);
    }
}
