//! The modules of a package: which file is which, what each defines, imports and names.
//!
//! Files are parsed, so comments and texts are not mistaken for code. A macro's tokens are searched for paths and for
//! `mod NAME;`, since what it makes of them is not known. What is compiled only for tests is left out of what a module
//! names, but its files count as named. A file that does not parse is a fault, and a module without contents.

use crate::crates::Package;
use crate::{Fault, Tree};
use proc_macro2::{TokenStream, TokenTree};
use std::collections::{BTreeMap, BTreeSet};
use syn::visit::{self, Visit};
use syn::{Attribute, Item, UseTree};

/// A module, or the first file of a library or program.
#[derive(Debug, Default)]
pub struct Module {
    /// The file that holds it; modules in braces are in their parent's.
    pub file: String,
    /// The module around it.
    pub parent: Option<usize>,
    /// Modules that it declares.
    pub children: BTreeMap<String, usize>,
    /// What it defines, by name.
    pub items: BTreeSet<String>,
    /// What it imports: the name here, the path, and whether others may import it from here.
    pub imports: Vec<Import>,
    /// Paths that its code names, one segment or more.
    pub named: BTreeSet<Vec<String>>,
    /// Whether it is compiled for tests alone.
    pub tests: bool,
}

/// One name of a `use`.
#[derive(Clone, Debug)]
pub struct Import {
    /// The name here; nothing for `*`, and for `as _`.
    pub name: Option<String>,
    /// What is imported; of `*`, the module whose names they are.
    pub path: Vec<String>,
    /// `use path::*`.
    pub all: bool,
    /// `pub use` of any kind: it hands the name on, and uses it only where its own code says the name.
    pub handed_on: bool,
}

/// All modules below one first file. Number 0 is that file.
#[derive(Debug, Default)]
pub struct Modules {
    /// By number.
    pub all: Vec<Module>,
    /// Files that do not parse, and why.
    pub faults: Vec<Fault>,
}

/// Files of `src` that no module names, that do not parse, or that do not open with a head.
pub fn check(tree: &Tree, packages: &[Package]) -> Vec<Fault> {
    let mut faults = Vec::new();
    for package in packages {
        let mut named: BTreeSet<String> = package.roots.iter().cloned().collect();
        for root in &package.roots {
            let modules = of(tree, root);
            named.extend(modules.all.into_iter().map(|module| module.file));
            faults.extend(modules.faults);
        }
        let src = format!("{}/src/", package.folder);
        for (path, text) in tree.ending(".rs").filter(|(path, _)| path.starts_with(&src)) {
            if !named.contains(path) {
                faults.push(Fault::new(path, 0, "no module names it"));
            }
            if !text.starts_with("//!") {
                faults.push(Fault::new(
                    path,
                    1,
                    "it opens without a head: expected `//!` and what the file holds",
                ));
            }
        }
    }
    faults
}

/// The modules below a first file.
pub fn of(tree: &Tree, root: &str) -> Modules {
    let mut modules = Modules::default();
    let folder = root.rsplit_once('/').map_or("", |(folder, _)| folder);
    modules.file(tree, root, folder, None, false);
    modules
}

impl Modules {
    /// Adds a file. Its modules' files are in `folder`.
    fn file(&mut self, tree: &Tree, path: &str, folder: &str, parent: Option<usize>, tests: bool) -> usize {
        let number = self.all.len();
        self.all.push(Module { file: path.to_owned(), parent, tests, ..Module::default() });
        match syn::parse_file(tree.text(path).unwrap_or("")) {
            Ok(file) => self.items(tree, number, folder, &file.items),
            Err(error) => self.faults.push(Fault::new(path, 0, format!("it does not parse: {error}"))),
        }
        number
    }

    fn items(&mut self, tree: &Tree, number: usize, folder: &str, items: &[Item]) {
        for item in items {
            self.item(tree, number, folder, item);
        }
    }

    fn item(&mut self, tree: &Tree, number: usize, folder: &str, item: &Item) {
        if let Item::Mod(inner) = item {
            let name = inner.ident.to_string();
            let tests = self.all[number].tests || only_for_tests(&inner.attrs);
            let below = join(folder, &name);
            let child = match &inner.content {
                Some((_, items)) => {
                    let file = self.all[number].file.clone();
                    let child = self.all.len();
                    self.all.push(Module { file, parent: Some(number), tests, ..Module::default() });
                    self.items(tree, child, &below, items);
                    child
                }
                None => self.declared(tree, number, folder, &name, path_of(&inner.attrs), tests),
            };
            self.all[number].children.insert(name, child);
            return;
        }
        self.all[number].items.extend(name_of(item));
        let mut reader = Reader::default();
        reader.visit_item(item);
        for name in reader.modules {
            let tests = self.all[number].tests;
            let child = self.declared(tree, number, folder, &name, None, tests);
            self.all[number].children.insert(name, child);
        }
        let module = &mut self.all[number];
        module.imports.extend(reader.imports);
        module.named.extend(reader.named);
    }

    /// A module in a file of its own.
    fn declared(
        &mut self,
        tree: &Tree,
        number: usize,
        folder: &str,
        name: &str,
        path: Option<String>,
        tests: bool,
    ) -> usize {
        let plain = join(folder, &format!("{name}.rs"));
        let inner = join(folder, &format!("{name}/mod.rs"));
        let given = path.map(|path| {
            let file = &self.all[number].file;
            join(file.rsplit_once('/').map_or("", |(folder, _)| folder), &path)
        });
        let file = given.unwrap_or(if tree.text(&plain).is_some() { plain } else { inner });
        self.file(tree, &file, &join(folder, name), Some(number), tests)
    }
}

fn join(folder: &str, name: &str) -> String {
    if folder.is_empty() { name.to_owned() } else { format!("{folder}/{name}") }
}

/// `#[path = "..."]`.
fn path_of(attributes: &[Attribute]) -> Option<String> {
    attributes.iter().find_map(|attribute| match &attribute.meta {
        syn::Meta::NameValue(pair) if pair.path.is_ident("path") => match &pair.value {
            syn::Expr::Lit(syn::ExprLit { lit: syn::Lit::Str(text), .. }) => Some(text.value()),
            _ => None,
        },
        _ => None,
    })
}

/// `#[cfg(test)]`, also with more, and what only a checker of schedules compiles.
fn only_for_tests(attributes: &[Attribute]) -> bool {
    attributes.iter().any(|attribute| match &attribute.meta {
        syn::Meta::List(list) if list.path.is_ident("cfg") => {
            let says =
                |word: &str| words(list.tokens.clone()).iter().any(|path| path[..] == [word.to_owned()]);
            (says("test") || says("loom") || says("shuttle")) && !says("not") && !says("any")
        }
        other => other.path().is_ident("test"),
    })
}

fn name_of(item: &Item) -> Option<String> {
    match item {
        Item::Const(item) => Some(item.ident.to_string()),
        Item::Enum(item) => Some(item.ident.to_string()),
        Item::Fn(item) => Some(item.sig.ident.to_string()),
        Item::Macro(item) => item.ident.as_ref().map(ToString::to_string),
        Item::Static(item) => Some(item.ident.to_string()),
        Item::Struct(item) => Some(item.ident.to_string()),
        Item::Trait(item) => Some(item.ident.to_string()),
        Item::TraitAlias(item) => Some(item.ident.to_string()),
        Item::Type(item) => Some(item.ident.to_string()),
        Item::Union(item) => Some(item.ident.to_string()),
        _ => None,
    }
}

/// Paths within tokens: words, joined by `::`.
fn words(tokens: TokenStream) -> Vec<Vec<String>> {
    let mut found: Vec<Vec<String>> = Vec::new();
    let (mut colons, mut open) = (0, false);
    for token in tokens {
        match token {
            TokenTree::Ident(word) => {
                let word = word.to_string();
                match found.last_mut() {
                    Some(path) if open && colons == 2 => path.push(word),
                    _ => found.push(vec![word]),
                }
                (colons, open) = (0, true);
                continue;
            }
            TokenTree::Punct(mark) if mark.as_char() == ':' && open => colons += 1,
            TokenTree::Group(group) => {
                found.extend(words(group.stream()));
                open = false;
            }
            TokenTree::Punct(_) | TokenTree::Literal(_) => open = false,
        }
        if !open {
            colons = 0;
        }
    }
    found
}

/// What one item imports and names.
#[derive(Default)]
struct Reader {
    imports: Vec<Import>,
    named: BTreeSet<Vec<String>>,
    /// Modules that a macro is given to declare.
    modules: Vec<String>,
}

impl Reader {
    fn import(&mut self, before: &[String], tree: &UseTree, handed_on: bool) {
        let with = |name: &syn::Ident| [before, &[name.to_string()]].concat();
        let mut add = |name: Option<String>, path: Vec<String>, all| {
            self.imports.push(Import { name, path, all, handed_on });
        };
        match tree {
            UseTree::Path(tree) => self.import(&with(&tree.ident), &tree.tree, handed_on),
            UseTree::Name(tree) if tree.ident == "self" => {
                add(before.last().cloned(), before.to_vec(), false)
            }
            UseTree::Name(tree) => add(Some(tree.ident.to_string()), with(&tree.ident), false),
            UseTree::Rename(tree) => {
                let name = Some(tree.rename.to_string()).filter(|name| name != "_");
                let path = if tree.ident == "self" { before.to_vec() } else { with(&tree.ident) };
                add(name, path, false);
            }
            UseTree::Glob(_) => add(None, before.to_vec(), true),
            UseTree::Group(tree) => tree.items.iter().for_each(|tree| self.import(before, tree, handed_on)),
        }
    }
}

impl<'a> Visit<'a> for Reader {
    fn visit_item(&mut self, item: &'a Item) {
        let attributes = match item {
            Item::Fn(item) => &item.attrs,
            Item::Impl(item) => &item.attrs,
            Item::Use(item) => &item.attrs,
            Item::Macro(item) => &item.attrs,
            Item::Struct(item) => &item.attrs,
            Item::Enum(item) => &item.attrs,
            _ => return visit::visit_item(self, item),
        };
        if !only_for_tests(attributes) {
            visit::visit_item(self, item);
        }
    }

    fn visit_item_use(&mut self, item: &'a syn::ItemUse) {
        if item.leading_colon.is_none() {
            self.import(&[], &item.tree, !matches!(item.vis, syn::Visibility::Inherited));
        }
    }

    fn visit_path(&mut self, path: &'a syn::Path) {
        if path.leading_colon.is_none() {
            self.named.insert(path.segments.iter().map(|segment| segment.ident.to_string()).collect());
        }
        visit::visit_path(self, path);
    }

    fn visit_macro(&mut self, called: &'a syn::Macro) {
        self.visit_path(&called.path);
        self.named.extend(words(called.tokens.clone()));
    }

    fn visit_item_macro(&mut self, item: &'a syn::ItemMacro) {
        self.modules.extend(declared_by(item.mac.tokens.clone()));
        visit::visit_item_macro(self, item);
    }

    /// Documentation and the like name nothing that is used.
    fn visit_attribute(&mut self, _: &'a Attribute) {}

    /// `pub(in path)` uses nothing of the path.
    fn visit_visibility(&mut self, _: &'a syn::Visibility) {}
}

/// `mod NAME;` within tokens.
fn declared_by(tokens: TokenStream) -> Vec<String> {
    let tokens: Vec<_> = tokens.into_iter().collect();
    let mut names = Vec::new();
    for (at, token) in tokens.iter().enumerate() {
        match (token, tokens.get(at + 1), tokens.get(at + 2)) {
            (TokenTree::Ident(word), Some(TokenTree::Ident(name)), Some(TokenTree::Punct(end)))
                if word == "mod" && end.as_char() == ';' =>
            {
                names.push(name.to_string());
            }
            (TokenTree::Group(group), ..) => names.extend(declared_by(group.stream())),
            _ => {}
        }
    }
    names
}
