//! The header and the ABI are what the source says.
//!
//! `include/pageferry.h` is what cbindgen makes of the source now, and `abi.txt` lists what it declares. To
//! write the header anew: `PAGEFERRY_WRITE_HEADER=1 cargo test -p pageferry-capi --test header`.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// In the order of the header.
const SOURCES: [&str; 10] =
    ["fault", "border", "config", "opaque", "channel", "sender", "buffer", "lent", "receiver", "loan"];

fn here() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

fn read(path: impl AsRef<Path>) -> String {
    let path = here().join(path);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// What cbindgen makes of the source. What is written for Rust is put in the words of C.
fn made() -> String {
    let mut config = cbindgen::Config::from_file(here().join("cbindgen.toml")).unwrap();
    config.header = Some(read("src/preface.h").trim_end().to_owned());
    let builder = SOURCES.into_iter().fold(cbindgen::Builder::new().with_config(config), |builder, name| {
        builder.with_src(here().join(format!("src/{name}.rs")))
    });
    let mut bytes = Vec::new();
    builder.generate().unwrap().write(&mut bytes);
    let text = String::from_utf8(bytes).unwrap();
    text.replace(" * # Safety\n", " * The caller promises:\n").replace("[`", "").replace("`]", "()")
}

/// What a header declares, as `abi.txt` has it but for the nodes: its functions and constants.
fn declared(header: &str) -> BTreeSet<String> {
    let code: String = header.split("*/").map(|part| part.split("/*").next().unwrap_or("")).collect();
    let functions = code.split('(').filter_map(|before| before.split([' ', '*', '\n']).next_back());
    let functions = functions.filter(|name| name.starts_with("pf_")).map(|name| format!("function {name}"));
    let constants = code.lines().filter_map(|line| line.strip_prefix("#define PF_"));
    functions.chain(constants.map(|rest| format!("constant PF_{rest}"))).collect()
}

#[test]
fn the_header_is_what_the_source_says() {
    let made = made();
    if std::env::var_os("PAGEFERRY_WRITE_HEADER").is_some() {
        std::fs::write(here().join("include/pageferry.h"), &made).unwrap();
    }
    let is = read("include/pageferry.h");
    let differs = is.lines().zip(made.lines()).enumerate().find(|(_, (is, made))| is != made);
    assert_eq!(differs, None, "include/pageferry.h differs from the source there (counted from 0)");
    assert_eq!(is.len(), made.len(), "include/pageferry.h is longer or shorter than the source says");
}

#[test]
fn the_list_of_the_abi_has_just_what_the_header_declares() {
    let listed: BTreeSet<_> = read("abi.txt")
        .lines()
        .filter_map(|line| match line.split(' ').collect::<Vec<_>>()[..] {
            ["function", _node, name] => Some(format!("function {name}")),
            ["constant", name, value] => Some(format!("constant {name} {value}")),
            _ => None,
        })
        .collect();
    let declared = declared(&made());
    assert!(declared.len() > 100, "the header was not understood: {declared:?}");
    let gone: Vec<_> = listed.difference(&declared).collect();
    let new: Vec<_> = declared.difference(&listed).collect();
    assert!(gone.is_empty(), "in abi.txt and no more in the header: {gone:?}. Programs rely on them.");
    assert!(
        new.is_empty(),
        "in the header and not in abi.txt: {new:?}. A function gets the node of its release."
    );
}
