//! Public items without a word of documentation.
//!
//! The compiler's `missing_docs` looks at what another crate can reach. What is `pub` in a private module is read as
//! well, by those who work on the crate: here every item, method and field that says `pub` is looked at, and every
//! variant of an enum that does. An item that allows or expects `missing_docs` is left out with all that is in it.
//! Modules have heads, and `use` has what it imports.

use crate::{Fault, Tree};
use syn::spanned::Spanned as _;
use syn::visit::{self, Visit};
use syn::{Attribute, Fields, ImplItem, Item, Visibility};

/// Items of `src` folders that are public and have no documentation.
pub fn check(tree: &Tree) -> Vec<Fault> {
    let mut faults = Vec::new();
    for (path, text) in tree.ending(".rs").filter(|(path, _)| path.contains("/src/")) {
        let Ok(file) = syn::parse_file(text) else { continue };
        let mut visit = Public { path, faults: &mut faults };
        visit.visit_file(&file);
    }
    faults
}

struct Public<'a> {
    path: &'a str,
    faults: &'a mut Vec<Fault>,
}

impl Public<'_> {
    fn expect(&mut self, vis: &Visibility, attrs: &[Attribute], name: &dyn ToString, line: usize) {
        if matches!(vis, Visibility::Public(_)) && !is_told(attrs) {
            let message = format!("`{}` is public: expected `///` and what it is", name.to_string());
            self.faults.push(Fault::new(self.path, line, message));
        }
    }

    fn fields(&mut self, fields: &Fields) {
        for field in fields {
            if let Some(name) = &field.ident {
                self.expect(&field.vis, &field.attrs, name, name.span().start().line);
            }
        }
    }
}

/// It has documentation, or says that it needs none.
fn is_told(attrs: &[Attribute]) -> bool {
    attrs.iter().any(|attr| attr.path().is_ident("doc")) || is_excused(attrs)
}

fn is_excused(attrs: &[Attribute]) -> bool {
    attrs.iter().any(|attr| {
        let says = ["allow", "expect"].iter().any(|level| attr.path().is_ident(level));
        says && matches!(&attr.meta, syn::Meta::List(list) if list.tokens.to_string().contains("missing_docs"))
    })
}

fn is_for_tests(attrs: &[Attribute]) -> bool {
    attrs.iter().any(|attr| {
        attr.path().is_ident("cfg")
            && matches!(&attr.meta, syn::Meta::List(list) if list.tokens.to_string() == "test")
    })
}

impl<'ast> Visit<'ast> for Public<'_> {
    fn visit_item(&mut self, item: &'ast Item) {
        let (attrs, named) = match item {
            Item::Const(it) => (&it.attrs, Some((&it.vis, &it.ident))),
            Item::Enum(it) => (&it.attrs, Some((&it.vis, &it.ident))),
            Item::Fn(it) => (&it.attrs, Some((&it.vis, &it.sig.ident))),
            Item::Static(it) => (&it.attrs, Some((&it.vis, &it.ident))),
            Item::Struct(it) => (&it.attrs, Some((&it.vis, &it.ident))),
            Item::Trait(it) => (&it.attrs, Some((&it.vis, &it.ident))),
            Item::Type(it) => (&it.attrs, Some((&it.vis, &it.ident))),
            Item::Union(it) => (&it.attrs, Some((&it.vis, &it.ident))),
            Item::Impl(it) => (&it.attrs, None),
            Item::Mod(it) => (&it.attrs, None),
            _ => return,
        };
        if is_excused(attrs) || is_for_tests(attrs) {
            return;
        }
        if let Some((vis, name)) = named {
            self.expect(vis, attrs, name, name.span().start().line);
        }
        match item {
            Item::Struct(it) => self.fields(&it.fields),
            Item::Enum(it) => {
                for variant in &it.variants {
                    self.expect(&it.vis, &variant.attrs, &variant.ident, variant.ident.span().start().line);
                }
            }
            Item::Impl(_) | Item::Mod(_) => visit::visit_item(self, item),
            _ => {}
        }
    }

    fn visit_impl_item(&mut self, item: &'ast ImplItem) {
        match item {
            ImplItem::Fn(it) => self.expect(&it.vis, &it.attrs, &it.sig.ident, it.sig.span().start().line),
            ImplItem::Const(it) => self.expect(&it.vis, &it.attrs, &it.ident, it.ident.span().start().line),
            _ => {}
        }
    }
}
