//! Trees made up for one fault each, and the check that must find it.

use xtask::{Fault, Tree, check, circles, crates, docs, layers, quiet, words};

/// A package of two files that is as it should be, and a front page.
fn sound() -> Tree {
    Tree::of(&[
        ("README.md", "# It\n\nSee [the code](hal/src/lib.rs) and [below](#below).\n\n## Below\n"),
        ("hal/Cargo.toml", "[package]\nname = \"pageferry-hal\"\n"),
        ("hal/src/lib.rs", "//! What a machine is.\n\nmod upper;\npub mod lower;\npub use upper::Up;\n"),
        ("hal/src/upper.rs", "//! Above.\nuse crate::lower::Low;\n/** It. */ pub struct Up(Low);\n"),
        ("hal/src/lower.rs", "//! Below.\n/** It. */ pub struct Low;\n"),
    ])
}

fn found(tree: &Tree) -> Vec<String> {
    check(tree).iter().map(ToString::to_string).collect()
}

/// The one fault that is found, which says this.
fn only(tree: &Tree, says: &str) {
    let faults = found(tree);
    assert!(faults.len() == 1 && faults[0].contains(says), "expected one fault, `{says}`: {faults:#?}");
}

#[test]
fn what_is_sound_has_no_faults() {
    assert_eq!(found(&sound()), Vec::<String>::new());
}

#[test]
fn an_arrow_up() {
    let up = "[package]\nname = \"pageferry-hal\"\n[dependencies]\npageferry-vm.workspace = true\n";
    let vm = "[package]\nname = \"pageferry-vm\"\n";
    only(&sound().with("hal/Cargo.toml", up).with("vm/Cargo.toml", vm), "an arrow up, to `pageferry-vm`");
    let renamed =
        up.replace("pageferry-vm.workspace = true", "v = { package = \"pageferry-vm\", path = \"../vm\" }");
    only(
        &sound().with("hal/Cargo.toml", &renamed).with("vm/Cargo.toml", vm),
        "an arrow up, to `pageferry-vm`",
    );
    let of_target = up.replace("[dependencies]", "[target.'cfg(unix)'.dependencies]");
    only(
        &sound().with("hal/Cargo.toml", &of_target).with("vm/Cargo.toml", vm),
        "an arrow up, to `pageferry-vm`",
    );
    // What tests alone use is free.
    let of_tests = up.replace("[dependencies]", "[dev-dependencies]");
    assert_eq!(
        found(&sound().with("hal/Cargo.toml", &of_tests).with("vm/Cargo.toml", vm)),
        Vec::<String>::new()
    );
}

#[test]
fn a_package_without_a_floor_and_a_list_out_of_order() {
    only(&sound().with("new/Cargo.toml", "[package]\nname = \"new\"\n"), "it has no floor");
    let floors: &[(&str, &[&[&str]])] = &[("upper", &[&["lower"]]), ("lower", &[])];
    let faults = layers::check_by(floors, &[]);
    assert_eq!(faults, [Fault::new("xtask/src/layers.rs", 0, "`upper` stands before `lower`")]);
}

#[test]
fn a_line_too_wide_and_a_file_too_long() {
    let wide = format!("//! Below.\n// {}\n/** It. */ pub struct Low;\n", "x".repeat(118));
    only(&sound().with("hal/src/lower.rs", &wide), "121 characters wide");
    let narrow = format!("//! Below.\n// {}\n/** It. */ pub struct Low;\n", "é".repeat(117));
    assert_eq!(found(&sound().with("hal/src/lower.rs", &narrow)), Vec::<String>::new());
    let long = format!("//! Below.\n/** It. */ pub struct Low;\n{}", "//\n".repeat(799));
    only(&sound().with("hal/src/lower.rs", &long), "801 lines long");
    only(&sound().with("data/one.toml", &format!("text = \"{}\"\n", "x".repeat(120))), "characters wide");
    only(&sound().with("hal/README.md", &"word ".repeat(30)), "characters wide");
    let table = format!("| {} |\n|---|\n", "x".repeat(130));
    assert_eq!(found(&sound().with("hal/README.md", &table)), Vec::<String>::new());
}

#[test]
fn a_file_without_a_head_and_one_that_no_module_names() {
    only(&sound().with("hal/src/lower.rs", "/** It. */ pub struct Low;\n"), "opens without a head");
    only(&sound().with("hal/src/lost.rs", "//! Lost.\n"), "no module names it");
    let commented = "//! Machines.\n// mod lost;\nmod upper;\npub mod lower;\npub use upper::Up;\n";
    only(
        &sound().with("hal/src/lost.rs", "//! Lost.\n").with("hal/src/lib.rs", commented),
        "no module names it",
    );
    let below = sound().with("hal/src/lower.rs", "//! Below.\nmod deep;\n/** It. */ pub struct Low;\n");
    assert_eq!(found(&below.clone().with("hal/src/lower/deep.rs", "//! Deep.\n")), Vec::<String>::new());
    assert_eq!(found(&below.with("hal/src/lower/deep/mod.rs", "//! Deep.\n")), Vec::<String>::new());
}

#[test]
fn a_circle_of_files() {
    let circle = "a circle of files: hal/src/lower.rs, hal/src/upper.rs";
    let lower = |code: &str| {
        sound().with("hal/src/lower.rs", &format!("//! Below.\n/** It. */ pub struct Low;\n{code}"))
    };
    only(&lower("use crate::upper::Up;\n"), circle);
    only(&lower("/** It. */ pub fn up() -> Option<super::upper::Up> { None }\n"), circle);
    // By the name that the root hands on.
    only(&lower("use crate::Up;\n"), circle);
    only(&lower("use super::*;\n/** It. */ pub fn up() -> Option<Up> { None }\n"), circle);
    only(&lower("/** It. */ pub fn up() { let _ = core::mem::size_of::<crate::Up>(); }\n"), circle);
    only(&lower("/** It. */ pub fn up() { println!(\"{}\", core::mem::size_of::<crate::Up>()); }\n"), circle);
    only(&lower("use crate::upper;\n/** It. */ pub fn up() -> Option<upper::Up> { None }\n"), circle);
    // Neither a module's name alone, nor a test, nor a comment is a use.
    for none in [
        "use crate::upper as _;\n",
        "#[cfg(test)]\nmod tests { use crate::upper::Up; }\n",
        "#[cfg(test)]\nuse crate::upper::Up;\n",
        "/// See [`crate::upper::Up`].\npub struct Lower;\n",
        "/** It. */ pub fn up() -> &'static str { \"crate::upper::Up\" }\n",
        "use std::fmt::Debug as Up;\n/** It. */ pub fn up() -> Option<Box<dyn Up>> { None }\n",
    ] {
        assert_eq!(found(&lower(none)), Vec::<String>::new(), "{none}");
    }
}

#[test]
fn a_circle_of_three_by_a_root_that_defines_something() {
    let tree = sound()
        .with("hal/src/lib.rs", "//! Machines.\nmod upper;\npub mod lower;\npub struct Top(upper::Up);\n")
        .with("hal/src/lower.rs", "//! Below.\npub struct Low;\nimpl From<Low> for crate::Top { }\n");
    let packages = crates::of(&tree);
    let circles = circles::circles(&circles::arrows(&tree, &packages[0]));
    assert_eq!(circles, [["hal/src/lib.rs", "hal/src/lower.rs", "hal/src/upper.rs"]]);
}

#[test]
fn a_banned_word() {
    let banned = [("most_", "max_")];
    let faults = |code: &str| words::check_by(&banned, &[], &sound().with("hal/src/lower.rs", code));
    assert_eq!(faults("//! Below.\npub fn f(most_bytes: usize) {}\n").len(), 1);
    assert_eq!(faults("//! Below.\npub struct S {\n    at_most_bytes: u8,\n}\n")[0].line, 3);
    assert_eq!(
        faults("//! At most_ here.\n// most_\npub fn almost_all() -> &'static str { \"most_\" }\n"),
        []
    );
    assert_eq!(faults("//! Below.\npub const MOST_BYTES: usize = 1;\n").len(), 1);
    assert_eq!(faults("//! Below.\npub fn least_recently_used() {}\n"), []);
    assert_eq!(faults("//! Below.\npub fn f(most: u8, mostly: u8) {}\n").len(), 1);
}

#[test]
fn a_type_whose_name_is_no_noun() {
    let faults =
        |code: &str| words::check_by(&[], &["Told", "Held"], &sound().with("hal/src/lower.rs", code));
    let found =
        faults("//! Below.\npub(crate) struct Told<T>(T);\nenum Other {\n    Held,\n}\ntype Held = u8;\n");
    assert_eq!(found.iter().map(|fault| fault.line).collect::<Vec<_>>(), [2, 6]);
    // A word in a longer name, a variant and a comment are none.
    assert_eq!(faults("//! Held.\nstruct HeldMessage;\nenum State { Held }\n// struct Told\n"), []);
}

#[test]
fn a_test_that_says_quietly_that_it_looks_at_nothing() {
    let faults = |code: &str| quiet::check(&sound().with("hal/src/lower.rs", code));
    let quiet = |said: &str| format!("//! Below.\nfn f() {{\n    println!(\"{said}\");\n}}\n");
    assert_eq!(faults(&quiet("no tool: nothing is tested"))[0].line, 3);
    assert_eq!(faults(&quiet("no tool")), []);
    // On a line of its own.
    assert_eq!(faults(&quiet("{}\",\n        \"not tested")).len(), 1);
    assert_eq!(faults("//! Below.\nfn f() {\n    untested(\"lower\", \"no tool\"); // not tested\n}\n"), []);
}

#[test]
fn a_public_item_without_documentation() {
    let lines = |code: &str| {
        let faults = docs::check(&sound().with("hal/src/lower.rs", code));
        faults.iter().map(|fault| fault.line).collect::<Vec<_>>()
    };
    let code = "//! Below.\npub struct S {\n    pub a: u8,\n    b: u8,\n    pub(crate) c: u8,\n}\nimpl S {\n    \
                #[inline]\n    pub fn f() {}\n    fn g() {}\n}\n/// Told.\npub enum E {\n    A,\n}\nenum F { A }\n";
    assert_eq!(lines(code), [2, 3, 9, 14]);
    let excused = "//! Below.\n#[expect(missing_docs, reason = \"names\")]\npub enum E { A }\npub mod m;\n";
    assert_eq!(lines(excused), []);
    assert_eq!(lines("//! Below.\n#[cfg(test)]\nmod tests {\n    pub fn f() {}\n}\n"), []);
}

#[test]
fn a_front_page_too_long_or_none() {
    only(&sound().with("README.md", &"line\n".repeat(101)), "101 lines: expected 100 at most");
    let without = Tree::of(&[("hal/Cargo.toml", "[package]\nname = \"pageferry-hal\"\n")]);
    only(&without, "README.md: there is none");
}

#[test]
fn links_that_lead_nowhere() {
    only(&sound().with("a.md", "See\n[it](hal/src/gone.rs).\n"), "a.md:2: a link to `hal/src/gone.rs`");
    only(&sound().with("a.md", "[it](README.md#above)\n"), "no heading there has that name");
    only(&sound().with("a.md", "[it](../README.md)\n"), "which is not there");
    only(&sound().with("a.md", "See\n`hal/src/gone.rs`.\n"), "a.md:2: `hal/src/gone.rs` is named");
    let named = "`hal/src/lower.rs`, `src/gone.rs` of another tree, `hal/src/*.rs`\n";
    assert_eq!(found(&sound().with("a.md", named)), Vec::<String>::new());
    let fenced =
        "```\n[it](gone.md)\n```\n[one](https://example.org/gone) [two](README.md#below) [three](hal/src)\n";
    assert_eq!(found(&sound().with("a.md", fenced)), Vec::<String>::new());
}

#[test]
fn chapters_of_the_book() {
    let book = sound().with("book/src/SUMMARY.md", "- [One](one.md)\n").with("book/src/one.md", "# One\n");
    assert_eq!(found(&book), Vec::<String>::new());
    only(&book.clone().with("book/src/two.md", "# Two\n"), "does not list");
    only(&book.clone().with("book/src/one.md", "[out](../../README.md)\n"), "leaves the book");
    let public = |path| format!("[out](https://github.com/pageferry/pageferry/blob/main/{path})\n");
    only(&book.clone().with("book/src/one.md", &public("gone.md")), "which is not there");
    assert_eq!(found(&book.clone().with("book/src/one.md", &public("README.md#it"))), Vec::<String>::new());
    only(
        &book.clone().with("book/src/one.md", "{{#include ../../gone.toml}}\n"),
        "`gone.toml` is put in here",
    );
    let included = book.with("book/src/one.md", "```toml\n{{#include ../../hal/Cargo.toml}}\n```\n");
    assert_eq!(found(&included), Vec::<String>::new());
}
