//! Files of sourced numbers: what is read from them, and what is said of those that are wrong.

use pageferry_sourced::{
    ConfigError, Ranges, SourceKind, Sourced, constants_of, load_extending, load_toml, nearest,
};
use serde::{Deserialize, Serialize};

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Sample {
    cpu: Cpu,
    #[serde(default)]
    cache: Vec<Level>,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Cpu {
    clock_mhz: Sourced<u64>,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Level {
    name: String,
    ways: Sourced<u64>,
}

fn fault(text: &str) -> ConfigError {
    load_toml::<Sample>("m.toml", text).expect_err("the file is faulty")
}

const GOOD: &str = "[cpu]\nclock_mhz = { value = 2400, source = \"paper, 3\", kind = \"paper\" }\n";

#[test]
fn a_good_file_is_read() {
    let sample: Sample = load_toml("m.toml", GOOD).expect("good");
    assert_eq!(sample.cpu.clock_mhz.value, 2400);
    assert_eq!(sample.cpu.clock_mhz.kind, SourceKind::Paper);
}

#[test]
fn an_unknown_key_gets_the_nearest_name() {
    let e = fault("[cpu]\nclok_mhz = { value = 2400, source = \"s\", kind = \"paper\" }\n");
    assert_eq!((e.line, e.column, e.key.as_str()), (2, 1, "cpu.clok_mhz"));
    assert_eq!(e.suggestion.as_deref(), Some("clock_mhz"));
    assert!(e.to_string().starts_with("m.toml:2:1: `cpu.clok_mhz`: unknown key"), "{e}");
    assert!(e.to_string().ends_with("did you mean `clock_mhz`?"), "{e}");
}

#[test]
fn a_plain_number_is_yours_and_goes_through_toml() {
    let sample: Sample = load_toml("m.toml", "[cpu]\nclock_mhz = 3000\n").expect("good");
    let clock = &sample.cpu.clock_mhz;
    assert_eq!((clock.value, clock.source.as_str(), clock.kind), (3000, "", SourceKind::Yours));
    let written = toml::to_string(&sample).expect("TOML");
    assert_eq!(load_toml::<Sample>("m.toml", &written).expect("good").cpu.clock_mhz, *clock);
    assert_eq!(constants_of(&sample)[0].kind, SourceKind::Yours);
}

#[test]
fn anything_else_is_told_what_was_expected() {
    for (wrong, found) in [
        ("\"fast\"", "the text \"fast\""),
        ("[1]", "a list"),
        ("-1", "the number -1"),
        ("1.5", "the number 1.5"),
    ] {
        let told =
            format!("found {found}, expected a whole number of megahertz, such as `clock_mhz = 3000`, or {{");
        let e = fault(&format!("[cpu]\nclock_mhz = {wrong}\n"));
        assert_eq!((e.line, e.column, e.key.as_str()), (2, 13, "cpu.clock_mhz"), "{e}");
        assert!(e.problem.starts_with(&told), "{e}");
        assert!(e.problem.contains("or { value = ..., source = \"...\", kind = \"...\" }"), "{e}");
    }
    let e = fault("[cpu]\nclock_mhz = { value = 3000 }\n");
    assert_eq!((e.line, e.problem.as_str(), e.key.as_str()), (2, "missing key `source`", "cpu.clock_mhz"));
    let e = fault("[cpu]\nclock_mhz = { value = 3000, source = \"s\" }\n");
    assert_eq!((e.line, e.problem.as_str(), e.key.as_str()), (2, "missing key `kind`", "cpu.clock_mhz"));
}

#[test]
fn a_file_that_may_extend_others_is_told_so() {
    let load = |text: &str| {
        let none = Ranges(&[]);
        load_extending::<Sample>("m.toml", text, "machine", &|_| None, &none, &[], &|_| Ok(()))
            .expect_err("the file is faulty")
    };
    let e = load(&format!("extend = \"xeon-up\"\n{GOOD}"));
    assert_eq!((e.suggestion.as_deref(), e.line), (Some("extends"), 1), "{e}");
    assert!(e.problem.ends_with("expected one of: cpu, cache, extends"), "{e}");
    // Not in a table, where it means nothing.
    assert!(!load("[cpu]\nextends = 1\n").problem.contains("clock_mhz, extends"));
}

#[test]
fn a_wrong_type_and_a_wrong_word_are_placed() {
    let e = fault("[cpu]\nclock_mhz = { value = \"fast\", source = \"s\", kind = \"paper\" }\n");
    assert_eq!((e.line, e.column, e.key.as_str()), (2, 23, "cpu.clock_mhz.value"));
    assert!(e.problem.contains("expected a whole number of megahertz, such as `clock_mhz = 3000`"), "{e}");
    let e = fault("[cpu]\nclock_mhz = { value = 1, source = \"s\", kind = \"mesured\" }\n");
    assert_eq!(
        (e.line, e.key.as_str(), e.suggestion.as_deref()),
        (2, "cpu.clock_mhz.kind", Some("measured"))
    );
}

#[test]
fn calibrated_goes_with_against_and_only_so() {
    let e = fault("[cpu]\nclock_mhz = { value = 1, source = \"s\", kind = \"calibrated\" }\n");
    assert!(e.problem.contains("missing `against`"), "{e}");
    assert_eq!((e.line, e.key.as_str()), (2, "cpu.clock_mhz"));
    let e = fault("[cpu]\nclock_mhz = { value = 1, source = \"s\", kind = \"paper\", against = \"x\" }\n");
    assert!(e.problem.contains("only where kind is calibrated"), "{e}");
}

#[test]
fn broken_toml_and_missing_keys_are_placed() {
    let e = fault("[cpu]\nclock_mhz = { value = 1, source = \n");
    assert_eq!(e.line, 2);
    assert_eq!(e.key, "clock_mhz");
    let e = fault("[cpu]\n");
    assert_eq!((e.line, e.problem.as_str(), e.key.as_str()), (1, "missing key `clock_mhz`", "cpu"));
}

#[test]
fn names_are_found_by_likeness_only() {
    let names = ["xeon-up", "xeon-htt", "opteron-mp"];
    assert_eq!(nearest("xeonup", names), Some("xeon-up"));
    assert_eq!(nearest("XEON-HT", names), Some("xeon-htt"));
    assert_eq!(nearest("sparc64", names), None);
    assert_eq!(nearest("ab", ["cd"]), None);
    assert_eq!(nearest("x", Vec::<&str>::new()), None);
}

#[test]
fn a_file_that_extends_another_replaces_a_constant_as_a_whole() {
    let base = "[cpu]\nclock_mhz = { value = 1, source = \"s\", kind = \"calibrated\", against = \"i\" }\n\
                [[cache]]\nname = \"L1\"\nways = 3\n";
    let over = "extends = \"base\"\n[cpu]\nclock_mhz = { value = 2, source = \"t\", kind = \"paper\" }\n";
    let lookup = |name: &str| (name == "base").then(|| base.to_owned());
    let merged: Sample =
        load_extending("over", over, "machine", &lookup, &Ranges(&[]), &[], &|_| Ok(())).expect("good");
    let clock = &merged.cpu.clock_mhz;
    assert_eq!((clock.value, clock.kind, clock.against.as_deref()), (2, SourceKind::Paper, None));
    assert_eq!(merged.cache[0].ways.value, 3);
}

#[test]
fn a_parameter_keeps_what_is_not_of_its_value() {
    #[derive(Debug, PartialEq, serde::Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Parameter {
        value: u64,
        quick: Option<u64>,
        min: u64,
        source: Option<String>,
    }
    #[derive(serde::Deserialize)]
    struct File {
        size: Parameter,
    }
    let base = "[size]\nvalue = 8\nquick = 4\nmin = 1\nsource = \"s\"\n";
    let lookup = |name: &str| (name == "base").then(|| base.to_owned());
    let size = |over: &str| {
        let text = format!("extends = \"base\"\n{over}");
        let file = load_extending("over", &text, "file", &lookup, &Ranges(&[]), &[], &|_: &File| Ok(()));
        let Parameter { value, quick, min, source } = file.expect("good").size;
        (value, quick, min, source)
    };
    assert_eq!(size("size = 16\n"), (16, None, 1, None), "a plain value is the value in all runs");
    assert_eq!(size("[size]\nvalue = 16\nquick = 2\n"), (16, Some(2), 1, None));
    assert_eq!(size("[size]\nquick = 2\n"), (8, Some(2), 1, Some("s".into())));
}

#[test]
fn constants_are_listed_with_their_path() {
    let text = format!(
        "{GOOD}[[cache]]\n\
         name = \"L1\"\n\
         ways = {{ value = 4, source = \"s\", kind = \"calibrated\", against = \"i\" }}\n"
    );
    let sample: Sample = load_toml("m.toml", &text).expect("good");
    let constants = constants_of(&sample);
    let keys: Vec<_> = constants.iter().map(|c| (c.key.as_str(), c.value.as_str())).collect();
    assert_eq!(keys, [("cache.L1.ways", "4"), ("cpu.clock_mhz", "2400")]);
    assert_eq!(constants[0].against.as_deref(), Some("i"));
}

#[test]
fn a_fault_of_a_value_is_placed_where_the_value_is() {
    let text = "[cpu]\nclock_mhz = 1\n[[cache]]\nways = 2\n[[cache]]\nways = 3\n";
    let place = |key: &str| {
        let e = ConfigError::of_value("m.toml", text, key, "wrong");
        (e.line, e.column)
    };
    assert_eq!(place("cpu.clock_mhz"), (2, 13));
    assert_eq!(place("cache[1].ways"), (6, 8));
    assert_eq!(place("tlb"), (0, 0));
}

#[test]
fn a_fault_within_a_list_names_the_element() {
    let e =
        fault(&format!("{GOOD}[[cache]]\nname = \"L1\"\nways = 4\n[[cache]]\nname = \"L2\"\nways = true\n"));
    assert_eq!((e.line, e.key.as_str()), (8, "cache[1].ways"), "{e}");
}

#[test]
fn what_toml_can_say_and_no_key_means_is_told() {
    let e = fault("[cpu]\nclock_mhz = 2005-01-01\n");
    assert!(e.problem.starts_with("found a date, expected a whole number of megahertz"), "{e}");
    let e = fault(&format!("[cpu]\nclock_mhz = {}\n", "9".repeat(40)));
    assert!(e.problem.starts_with("found a number of more than 64 bits, expected a whole number"), "{e}");
    let e = fault("cpu = 1\n");
    assert_eq!(
        (e.line, e.key.as_str(), e.problem.as_str()),
        (1, "cpu", "found the number 1, expected a table")
    );
}
