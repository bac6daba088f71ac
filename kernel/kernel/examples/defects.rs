//! The names of all defects that can be planted in a kernel, one a line: what `.ci/defects` searches an image for.

use pageferry_ephemeral::EphemeralDefect;
use pageferry_fs::FsDefect;
use pageferry_kernel::{
    FileServiceDefect, IspcDefect, KernelDefect, NetDefect, NetServiceDefect, SchedDefect,
};
use pageferry_pmap::{AreaDefect, PmapDefect};
use pageferry_vm::VmDefect;

macro_rules! print_all {
    ($($defects:ty),+) => { $(<$defects>::ALL.iter().for_each(|defect| println!("{}", defect.name()));)+ };
}

fn main() {
    print_all!(PmapDefect, AreaDefect, EphemeralDefect, VmDefect, FsDefect);
    print_all!(KernelDefect, NetDefect, SchedDefect, IspcDefect, FileServiceDefect, NetServiceDefect);
}
