//! The machines that are built in, by name.
//!
//! Each is a file of [`crate::config`], every constant with its source. [`MachineConfig::named`] gives one of them,
//! ready to be changed and run; [`text`] gives the file itself, for files that extend it. Its CPUs are
//! `cpu.packages.value` times `cpu.threads_per_package.value`, its memory is `memory.size_mb.value`:
//!
//! ```
//! let mut machine = pageferry_model::MachineConfig::named("opteron-mp").expect("it is built in");
//! machine.cpu.packages.value = 3;
//! assert_eq!(machine.cpus(), 3);
//! ```
//!
//! | name | CPUs | who fills the TLB | for |
//! |---|---|---|---|
//! | `486`, `pentium`, `pentium-iii`, `pentium-pro`, `xeon-up` | 1 | hardware, from two levels (i386) | the papers |
//! | `xeon-htt` | 2 in a package | as those | the papers |
//! | `xeon-mp` | 2 | as those | the papers |
//! | `xeon-mp-htt` | 4, two in a package | as those | the papers |
//! | `p4-flip` | 4, two in a package | as those, a card that splits headers | the page-flip paper |
//! | `opteron-mp` | 2 | hardware, from tables of four levels (amd64) | the papers |
//! | `today` | 2 | as that, with a second-level TLB | what is so now |
//! | `today-invlpgb` | 2 | as that, and a CPU can invalidate a page for all | what is so now |
//! | `today-unmitigated` | 2 | as `today`, without mitigations | what is so now |
//! | `today-8`, `today-64` | 8, 64 | as `today`; eight CPUs share the last cache | what is so now |
//! | `today-arm` | 2 | hardware, from tables of four levels; it invalidates on all CPUs | what is so now |
//! | `ppc603` | 1 | the kernel's refill handler; blocks; fetches through a TLB and a cache of their own | the papers |
//! | `ppc604`, `ppc604-200`, `ppc604-smp` | 1, 1, 2 | hardware, from a hash table; blocks; as above | the papers |
//! | `alpha-21264` | 1 | the kernel's refill handlers; tags of 8 bits | sf_buf paper, 4.4 |
//! | `itanium2` | 1 | the kernel's refill handlers; tags of 18 bits | sf_buf paper, 4.4 |
//! | `ultrasparc-iie` | 1 | the kernel's refill handlers; contexts; a cache of several colours | sf_buf paper, 4.4 |
//! | `sh7751r` | 1 | the kernel's refill handler; tags of 8 bits, reserved entries, three sizes of pages | the papers |
//! | `mini-soft` | 1 | the kernel's refill handler; tags of 8 bits (SH-4) | tests of kernels |
//! | `mini-hash` | 1 | hardware, from a hash table | tests of kernels |
//! | `mini-blocks` | 1 | the kernel's refill handler; blocks | tests of kernels |

use crate::config::MachineConfig;
use pageferry_sourced::{ConfigError, nearest};

macro_rules! machines {
    ($($name:literal),* $(,)?) => {
        /// Their names and files, by name.
        static FILES: &[(&str, &str)] = &[$(($name, include_str!(concat!("../machines/", $name, ".toml")))),*];
    };
}

machines![
    "486",
    "alpha-21264",
    "itanium2",
    "mini-blocks",
    "mini-hash",
    "mini-soft",
    "opteron-mp",
    "p4-flip",
    "pentium",
    "pentium-iii",
    "pentium-pro",
    "ppc603",
    "ppc604",
    "ppc604-200",
    "ppc604-smp",
    "sh7751r",
    "today",
    "today-64",
    "today-8",
    "today-arm",
    "today-invlpgb",
    "today-unmitigated",
    "ultrasparc-iie",
    "xeon-htt",
    "xeon-mp",
    "xeon-mp-htt",
    "xeon-up",
];

/// The names of all machines that are built in, sorted, and their files.
pub fn files() -> &'static [(&'static str, &'static str)] {
    FILES
}

/// The names of all machines that are built in, sorted.
pub fn names() -> impl Iterator<Item = &'static str> {
    FILES.iter().map(|&(name, _)| name)
}

/// The file of a machine that is built in.
pub fn text(name: &str) -> Option<&'static str> {
    FILES.iter().find(|file| file.0 == name).map(|file| file.1)
}

/// No machine of that name is built in.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no machine is called {name}{}; there are: {}", meant(name), names().collect::<Vec<_>>().join(", "))]
pub struct UnknownMachine {
    /// The name.
    pub name: String,
}

fn meant(name: &str) -> String {
    nearest(name, names()).map_or(String::new(), |near| format!(" (did you mean {near}?)"))
}

impl MachineConfig {
    /// The machine of that name that is built in: see [`names`].
    ///
    /// ```
    /// let machine = pageferry_model::MachineConfig::named("xeon-mp")?;
    /// assert_eq!(machine.cpus(), 2);
    /// # Ok::<(), pageferry_model::machines::UnknownMachine>(())
    /// ```
    ///
    /// # Errors
    /// [`UnknownMachine`] when there is none, with the name that was meant, perhaps.
    pub fn named(name: &str) -> Result<MachineConfig, UnknownMachine> {
        let text = text(name).ok_or_else(|| UnknownMachine { name: name.into() })?;
        Ok(MachineConfig::extending(name, text).unwrap_or_else(|e| panic!("a machine that is built in: {e}")))
    }

    /// Reads a machine file called `name`, which may extend a machine that is built in.
    ///
    /// # Errors
    /// When it is not a machine, with the place of the fault.
    pub fn extending(name: &str, file: &str) -> Result<MachineConfig, ConfigError> {
        MachineConfig::parse(name, file, &|base| text(base).map(str::to_owned))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_file_is_built_in_and_is_a_machine() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/machines");
        let paths =
            std::fs::read_dir(folder).expect("it is there").map(|entry| entry.expect("an entry").path());
        let stem =
            |path: std::path::PathBuf| path.file_stem().expect("a name").to_string_lossy().into_owned();
        let mut files: Vec<String> = paths.map(stem).collect();
        files.sort();
        assert_eq!(names().collect::<Vec<_>>(), files);
        for name in names() {
            assert_eq!(MachineConfig::named(name).expect("one").name, name);
        }
    }

    #[test]
    fn an_unknown_name_is_told_what_was_meant() {
        let said = MachineConfig::named("xeon-pm").expect_err("none").to_string();
        assert!(said.contains("did you mean xeon-mp?") && said.contains("mini-soft"), "{said}");
    }
}
