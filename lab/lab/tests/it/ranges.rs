//! Every number of a machine or kernel file has a range, and what is out of it is told with its place and its bounds.

use pageferry_lab::files::{KernelChoice, MachineChoice};
use std::path::Path;

/// Puts `number` in the place of each sourced number of each file of `folder` in turn; says how many there were.
fn replaced(folder: &str, number: &str, find: &dyn Fn(&str) -> Option<String>) -> usize {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(folder);
    let dir = tempfile::tempdir().expect("a directory");
    let mut count = 0;
    for entry in std::fs::read_dir(root).expect("readable") {
        let path = entry.expect("an entry").path();
        let text = std::fs::read_to_string(&path).expect("readable");
        let lines: Vec<&str> = text.lines().collect();
        for (i, line) in lines.iter().enumerate() {
            let Some((key, rest)) = line.split_once(" = { value = ") else { continue };
            let Some((old, rest)) = rest.split_once(',') else { continue };
            if !old.starts_with(|c: char| c.is_ascii_digit()) {
                continue;
            }
            let mut changed: Vec<String> = lines.iter().map(|line| (*line).to_owned()).collect();
            changed[i] = format!("{key} = {{ value = {number},{rest}");
            let file = dir.path().join("x.toml");
            std::fs::write(&file, changed.join("\n")).expect("written");
            let name = file.to_str().expect("text");
            let said = find(name).unwrap_or_else(|| panic!("{}: {key} may be {number}", path.display()));
            let place = format!("{name}:{}:", i + 1);
            assert!(said.starts_with(&place) && said.contains(key) && said.contains(", expected "), "{said}");
            count += 1;
        }
    }
    count
}

#[test]
fn no_number_of_a_file_is_without_bounds() {
    let machine = |name: &str| MachineChoice::find(name).err().map(|e| e.to_string());
    let kernel = |name: &str| KernelChoice::find(name).err().map(|e| e.to_string());
    for number in ["9223372036854775807", "9223372036854775808", "18446744073709551616", "-1"] {
        assert!(replaced("machines/model/machines", number, &machine) > 200);
        assert!(replaced("lab/lab/kernels", number, &kernel) > 50);
    }
}
