//! Complexes: packages that share the last level of their caches.
//!
//! One package of a complex has the shared level at hand, as the last of its own. It changes hands when another one
//! accesses a page. So an access finds all of its levels in its package, and whoever asks a complex for a line asks the
//! package that has the shared level at hand, too. What is left to do here is between packages of one complex, which
//! are *near*:
//! - What one of them has dirty comes from there at `transfer_cycles`, and so does what the shared level lacks.
//! - What it has clean comes from the shared level. A store takes it away at `upgrade_cycles`.
//! - `UNIQUE` in a package's own level says that no other package holds the line, near or far. In the shared level it
//!   says that no other complex does.
//!
//! Streams go line by line where a package of the complex may hold lines of the page.

use super::access::Kind;
use crate::config::{ComplexConfig, MachineConfig};

/// What an access costs between packages of a complex.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Costs {
    pub(super) transfer: u32,
    pub(super) upgrade: u32,
}

/// The complexes of a machine; none where each package has all of its caches for itself.
#[derive(Clone, Default, Debug)]
pub(super) struct Complexes {
    /// Packages of a complex.
    size: usize,
    /// By complex, the package that has the shared level at hand.
    at_hand: Vec<usize>,
    latency: Costs,
    stream: Costs,
}

impl Complexes {
    pub(super) fn of(machine: &MachineConfig) -> Complexes {
        let Some(config) = &machine.complex else { return Complexes::default() };
        let ComplexConfig { transfer_cycles, stream_transfer_cycles, upgrade_cycles, .. } = config;
        let size = config.packages.value as usize;
        Complexes {
            size,
            at_hand: (0..machine.cpu.packages.value as usize).step_by(size).collect(),
            latency: Costs { transfer: transfer_cycles.value as u32, upgrade: upgrade_cycles.value as u32 },
            stream: Costs {
                transfer: stream_transfer_cycles.value as u32,
                upgrade: config.stream_upgrade_cycles.value as u32,
            },
        }
    }

    /// There are some.
    #[inline(always)]
    pub(super) fn exist(&self) -> bool {
        self.size > 0
    }

    /// The package has the shared level at hand when the machine is switched on.
    pub(super) fn begins_with(&self, package: usize) -> bool {
        package.is_multiple_of(self.size)
    }

    /// A bit for each package of the complex of this one.
    pub(super) fn mask(&self, package: usize) -> u64 {
        let first = package / self.size * self.size;
        u64::MAX >> (u64::BITS as usize - self.size) << first
    }

    /// A bit for the package that has the shared level of each complex of these.
    pub(super) fn sharing(&self, packages: u64) -> u64 {
        let has_some = |&package: &usize| self.mask(package) & packages != 0;
        self.at_hand.iter().copied().filter(has_some).fold(0, |all, package| all | 1 << package)
    }

    /// The package that had the shared level of the complex of `package` at hand; it changes hands if that is another.
    pub(super) fn hand_to(&mut self, package: usize) -> usize {
        std::mem::replace(&mut self.at_hand[package / self.size], package)
    }

    /// The most that a line of a stream costs more, where packages of the complex are asked for it.
    pub(super) fn max_asking_cycles(&self) -> u64 {
        u64::from(self.stream.transfer.max(self.stream.upgrade))
    }

    pub(super) fn costs(&self, kind: Kind) -> Costs {
        match kind {
            Kind::Latency => self.latency,
            Kind::Stream => self.stream,
        }
    }
}
