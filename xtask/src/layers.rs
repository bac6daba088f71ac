//! The floors: which package may depend on which. An arrow goes down, or the package is not what it says it is.
//!
//! The list is the order of the house. A package may use what stands before it in its own list of names, and that must
//! stand before it in [`FLOORS`], so that no arrow goes up and none goes round. What only tests use is free: a kernel's
//! tests run on the modelled machine, which is built on the kernel's lowest floor.

use crate::Fault;
use crate::crates::Package;

/// What the rooms above the VM system may use.
const BELOW_KERNEL: &[&str] = &[
    "pageferry-defects",
    "pageferry-hal",
    "pageferry-abi",
    "pageferry-costs",
    "pageferry-fs",
    "pageferry-pmap",
    "pageferry-ephemeral",
    "pageferry-vm",
];

/// What is run and judged on the modelled machine: the kernel, and all that it is made of.
const KERNEL: &[&str] = &[
    "pageferry-defects",
    "pageferry-hal",
    "pageferry-abi",
    "pageferry-costs",
    "pageferry-fs",
    "pageferry-pmap",
    "pageferry-ephemeral",
    "pageferry-vm",
    "pageferry-core",
    "pageferry-net",
    "pageferry-ispc",
    "pageferry-kernel",
    "pageferry-servers",
];

/// Each package and what it may depend on, from the ground up: all names of all lists.
pub const FLOORS: &[(&str, &[&[&str]])] = &[
    // The kernel.
    ("pageferry-defects", &[]),
    ("pageferry-hal", &[]),
    ("pageferry-abi", &[&["pageferry-hal"]]),
    ("pageferry-costs", &[&["pageferry-hal", "pageferry-abi"]]),
    ("pageferry-fs", &[&["pageferry-defects", "pageferry-abi"]]),
    ("pageferry-pmap", &[&["pageferry-defects", "pageferry-hal", "pageferry-abi"]]),
    ("pageferry-ephemeral", &[&["pageferry-defects", "pageferry-hal", "pageferry-abi", "pageferry-pmap"]]),
    (
        "pageferry-vm",
        &[&["pageferry-defects", "pageferry-hal", "pageferry-abi", "pageferry-pmap", "pageferry-ephemeral"]],
    ),
    ("pageferry-core", &[BELOW_KERNEL]),
    ("pageferry-net", &[BELOW_KERNEL, &["pageferry-core"]]),
    ("pageferry-ispc", &[BELOW_KERNEL, &["pageferry-core"]]),
    ("pageferry-kernel", &[BELOW_KERNEL, &["pageferry-core", "pageferry-net", "pageferry-ispc"]]),
    (
        "pageferry-servers",
        &[BELOW_KERNEL, &["pageferry-core", "pageferry-net", "pageferry-ispc", "pageferry-kernel"]],
    ),
    // The machines that it runs on.
    ("pageferry-sourced", &[]),
    ("pageferry-model", &[&["pageferry-hal", "pageferry-sourced"]]),
    // The lab.
    ("pageferry-trace", &[]),
    ("pageferry-workloads", &[&["pageferry-hal", "pageferry-abi", "pageferry-costs"]]),
    ("pageferry-processes", &[KERNEL, &["pageferry-workloads"]]),
    ("pageferry-calls", &[KERNEL]),
    // What both kinds of machine run, and the image for metal.
    (
        "pageferry-verify",
        &[
            KERNEL,
            &["pageferry-sourced", "pageferry-model", "pageferry-workloads", "pageferry-processes"],
            &["pageferry-calls"],
        ],
    ),
    ("pageferry-freestanding", &[]),
    ("pageferry-boot", &[KERNEL, &["pageferry-freestanding", "pageferry-verify"]]),
    (
        "pageferry-user",
        &[&[
            "pageferry-hal",
            "pageferry-abi",
            "pageferry-costs",
            "pageferry-workloads",
            "pageferry-freestanding",
        ]],
    ),
    ("pageferry-soak", &[KERNEL, &["pageferry-model", "pageferry-calls"]]),
    (
        "pageferry-lab",
        &[
            KERNEL,
            &["pageferry-sourced", "pageferry-model", "pageferry-trace", "pageferry-workloads"],
            &["pageferry-processes"],
        ],
    ),
    ("pageferry-report", &[&["pageferry-hal", "pageferry-sourced", "pageferry-model", "pageferry-lab"]]),
    ("pageferry-teach", &[KERNEL, &["pageferry-sourced", "pageferry-model", "pageferry-lab"]]),
    ("pageferry-serve", &[KERNEL, &["pageferry-model", "pageferry-lab"]]),
    // The library on Linux, which uses the arithmetic of costs and nothing else of the above.
    ("pageferry-programs", &[]),
    ("pageferry", &[&["pageferry-costs"]]),
    ("pageferry-capi", &[&["pageferry"]]),
    ("pageferry-python", &[&["pageferry"]]),
    ("pageferry-fuzz", &[&["pageferry"]]),
    ("pageferry-bench", &[&["pageferry"]]),
    ("iceoryx2-peer", &[&["pageferry-bench"]]),
    // The command.
    (
        "pageferry-cli",
        &[
            &["pageferry-sourced", "pageferry-model", "pageferry-trace", "pageferry-soak", "pageferry-lab"],
            &[
                "pageferry-report",
                "pageferry-teach",
                "pageferry-serve",
                "pageferry-fs",
                "pageferry",
                "pageferry-bench",
            ],
        ],
    ),
    // The source looks at itself.
    ("xtask", &[]),
    ("pageferry-untested", &[]),
];

/// Arrows that go where none may, packages that have no floor, and lists that are out of order.
pub fn check(packages: &[Package]) -> Vec<Fault> {
    check_by(FLOORS, packages)
}

/// The same by other floors.
pub fn check_by(floors: &[(&str, &[&[&str]])], packages: &[Package]) -> Vec<Fault> {
    let mut faults = Vec::new();
    for (at, (name, allowed)) in floors.iter().enumerate() {
        for below in allowed.iter().copied().flatten() {
            if !floors[..at].iter().any(|(earlier, _)| earlier == below) {
                faults.push(Fault::new(
                    "xtask/src/layers.rs",
                    0,
                    format!("`{name}` stands before `{below}`"),
                ));
            }
        }
    }
    for package in packages {
        let manifest = format!("{}/Cargo.toml", package.folder);
        let Some((_, allowed)) = floors.iter().find(|(name, _)| *name == package.name) else {
            faults.push(Fault::new(
                &manifest,
                0,
                "it has no floor: expected an entry in xtask/src/layers.rs",
            ));
            continue;
        };
        let allowed: Vec<&str> = allowed.iter().copied().flatten().copied().collect();
        let ours = |name: &str| packages.iter().any(|package| package.name == name);
        for up in package.dependencies.iter().filter(|name| ours(name) && !allowed.contains(&name.as_str())) {
            let known = if allowed.is_empty() { "nothing".to_owned() } else { allowed.join(", ") };
            faults.push(Fault::new(
                &manifest,
                0,
                format!("an arrow up, to `{up}`: it may depend on {known}"),
            ));
        }
    }
    faults
}
