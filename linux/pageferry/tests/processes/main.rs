//! Tests that need processes of their own: what they check, or what they break, is the whole process.
//!
//! Each runs this program again in a *role*: see [`again`]. The test itself looks at how the role ends.

mod actor;
#[allow(dead_code, reason = "more tests come")]
mod again;
mod conserved;
mod faults;
mod hosts;
mod oracle;
mod prepared;
mod soak;
mod talk;

use pageferry_untested::untested;

/// Whether this host can freeze memory; says so where it cannot, and what needs it is not tested.
fn mmu_here() -> bool {
    let config = pageferry::Config::new().slots(1).slot_bytes(2 << 20);
    let here = pageferry::Channel::pair(config).unwrap().0.level() == pageferry::Level::Mmu;
    if !here {
        untested("what level mmu promises", "it is not to be had");
    }
    here
}

/// Whether a slot that was replaced can be had again: by what is mapped once more, or leaves zeros in its place. Says
/// so where not.
fn alias_here() -> bool {
    let items = pageferry::host::Host::get().items();
    let here =
        items.iter().any(|item| item.name == "alias" && item.verdict == pageferry::host::Verdict::Good);
    if !here {
        untested("zeros in the place of donations, and copy-on-write", "mappings are not duplicated");
    }
    here
}

/// What a process of this program may be.
fn play(role: &str, input: &str) {
    match role {
        "programs" => oracle::programs(input),
        "faults" => faults::sweep(input),
        "wakes" => faults::wakes(),
        "returned" => faults::returned(),
        "waited" => faults::waited(),
        "host" => hosts::host(input),
        "limits" => hosts::limits(input),
        "late" => hosts::late(input),
        "prepared" => prepared::prepared(input),
        "pipe" => soak::pipe(input),
        "soak" => soak::soak(input),
        "actor" => oracle::actor(),
        _ => panic!("there is no role {role}"),
    }
}

/// Not a test: where a process that was started by [`again`] begins.
#[test]
fn role() {
    again::play(play);
}
