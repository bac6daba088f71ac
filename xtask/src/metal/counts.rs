//! The small programs in ring 3, and whether what is counted of their measured part is what the model counts.
//!
//! Both count the same events by name (`pageferry_verify::counts`). What comes of a program's own image and stack is
//! counted apart and left out, for a closure has none. On one CPU without preemption the order is the same without a
//! schedule. On several it is not: there the kernel's own programs are conducted, which is `verify`.

use super::image::{Image, Programs};
use super::qemu::{Machine, Qemu};
use std::collections::BTreeMap;
use std::process::Command;

/// Counts by name.
pub(super) type Counts = BTreeMap<String, u64>;

/// What was counted in ring 3.
pub(super) struct Counted {
    /// Of what both machines do.
    pub(super) shared: Counts,
    /// Of the program's own image and stack.
    pub(super) own: Counts,
}

/// What differs.
pub(super) struct Difference {
    /// Counts that were compared, and are not zero.
    pub(super) compared: usize,
    /// Those that differ: name, of the model, of metal.
    pub(super) differing: Vec<(String, u64, u64)>,
    /// What cannot be compared, and why.
    pub(super) left_out: Option<String>,
}

/// The frames of page tables are freed when a process ends, those for its image and stack among them.
const FREED_WITH_TABLES: &str = "frames_freed";

/// Has a program run in ring 3; `program` is its name and its words, with commas between.
pub(super) fn on_metal(
    image: &Image,
    programs: &Programs,
    program: &str,
    scheme: &str,
    cpus: usize,
) -> Result<Counted, String> {
    let line = format!("scheme={scheme} frames=65536 pipes={} preempt=no", pipes(program));
    let qemu = Qemu::new(Machine::Microvm, cpus).with_line(&line);
    let end = qemu.with_programs(&programs.path, &format!("micro,{program}")).run(image)?;
    // What a child finds wrong it says in a line of its own.
    if end.code != 0 || end.said.contains("are wrong") || end.said.contains("less came") {
        return Err(format!("{program}, code {}: {}", end.code, end.said.trim_end()));
    }
    Ok(Counted { shared: counts_of(&end.said, "count "), own: counts_of(&end.said, "own ") })
}

/// Has the modelled machine run it.
pub(super) fn on_model(verify: &mut Command, program: &str, scheme: &str) -> Result<Counts, String> {
    let output = verify.arg("count").arg(program).arg(format!("scheme={scheme}")).output();
    let output = output.map_err(|e| format!("pageferry-verify does not run: {e}"))?;
    if !output.status.success() {
        return Err(String::from_utf8_lossy(&output.stderr).into_owned());
    }
    Ok(counts_of(&String::from_utf8_lossy(&output.stdout), "count "))
}

/// Compares.
pub(super) fn compare(model: &Counts, metal: &Counted) -> Difference {
    let mut names: Vec<&String> = model.keys().chain(metal.shared.keys()).collect();
    names.sort();
    names.dedup();
    let value = |counts: &Counts, name: &str| counts.get(name).copied().unwrap_or(0);
    let mut left_out = None;
    // Only the end of a process makes calls about its image.
    if value(&metal.own, "syscalls") > 0 && names.iter().any(|name| *name == FREED_WITH_TABLES) {
        names.retain(|name| *name != FREED_WITH_TABLES);
        left_out = Some(format!("{FREED_WITH_TABLES}: page tables of a process that ended"));
    }
    let differing = names
        .iter()
        .map(|name| (name.to_string(), value(model, name), value(&metal.shared, name)))
        .filter(|(_, model, metal)| model != metal)
        .collect();
    Difference { compared: names.len(), differing, left_out }
}

fn counts_of(text: &str, prefix: &str) -> Counts {
    let count = |line: &str| {
        let (name, value) = line.strip_prefix(prefix)?.split_once(' ')?;
        Some((name.to_owned(), value.trim().parse().ok()?))
    };
    text.lines().filter_map(count).collect()
}

/// What pipes are, for a program.
fn pipes(program: &str) -> &'static str {
    let name = program.split(',').next().unwrap_or_default();
    // UVM's pipes are pairs of sockets.
    if matches!(name, "uvm-pipe" | "mixed") { "sockets" } else { "fifo" }
}

/// What is compared by default: the papers' experiments, in the ways that differ most.
pub(super) const PROGRAMS: [&str; 14] = [
    "bw-pipe",
    "invalidate",
    "null-write",
    "null-write,send=loan",
    "null-read",
    "null-read,receive=transfer",
    "uvm-pipe",
    "uvm-pipe,send=loan,receive=transfer",
    "ping-pong",
    "ping-pong,by=pass",
    "pipeline",
    "pipeline,by=pass,send=loan",
    "mixed",
    "mixed,send=loan,receive=transfer",
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_counted_on_one_side_only_differs() {
        let counts = |text| counts_of(text, "count ");
        let model = counts("count switches 3\r\ncount frames_freed 5\nmicro: 4 bytes right\n");
        let metal = |text, own| Counted { shared: counts(text), own: counts_of(own, "own ") };
        let differing = |metal: Counted| compare(&model, &metal).differing;
        assert!(differing(metal("count switches 3\ncount frames_freed 5\n", "own faults 2\n")).is_empty());
        assert_eq!(differing(metal("count frames_freed 5\n", "")), [("switches".into(), 3, 0)]);
        let more = "count switches 3\ncount frames_freed 8\n";
        assert_eq!(differing(metal(more, "")).len(), 1);
        assert!(differing(metal(more, "own syscalls 2\n")).is_empty(), "tables of a process that ended");
    }
}
