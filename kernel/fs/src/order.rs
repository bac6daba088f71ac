//! What a volume with soft updates knows of its changes, beside what each of them is after. The rules that it keeps to
//! by that are in `ordering`.

use crate::Ino;
use crate::layout::Run;
use crate::soft::{ChangeId, SoftUpdates};
use alloc::collections::BTreeMap;
use alloc::vec::Vec;

/// So many inodes are kept at least before those that wait for nothing are looked for.
pub(crate) const MIN_KEPT: usize = 1024;

/// What is on its way to be free.
pub(crate) struct Freed {
    pub(crate) after: Vec<ChangeId>,
    pub(crate) runs: Vec<Run>,
    pub(crate) ino: Option<Ino>,
}

/// What is known of changes beside what each is after.
#[derive(Default)]
pub(crate) struct Order {
    /// What the next change of this call is after.
    pub(crate) chain: Vec<ChangeId>,
    /// What states of an inode wait for beside contents.
    pub(crate) inodes: BTreeMap<Ino, Vec<ChangeId>>,
    /// Changes that give an inode a name.
    pub(crate) names: BTreeMap<Ino, Vec<ChangeId>>,
    /// Changes that take a name away, of a directory.
    pub(crate) left: BTreeMap<(Ino, Vec<u8>), Vec<ChangeId>>,
    /// The last directory that moved.
    pub(crate) moved: Vec<ChangeId>,
    pub(crate) freed: Vec<Freed>,
    /// What had got to the disk when `freed` was looked through.
    pub(crate) seen: u64,
    pub(crate) kept: usize,
}

impl Order {
    pub(crate) fn len(&self) -> usize {
        self.inodes.len() + self.names.len() + self.left.len()
    }
}

/// What happens to a name of a directory.
pub(crate) struct NameChange<'a> {
    pub(crate) dir: Ino,
    pub(crate) name: &'a [u8],
    /// It is this inode's from now on.
    pub(crate) given_to: Option<Ino>,
    /// It was another one's.
    pub(crate) is_taken: bool,
}

pub(crate) fn prune<K: Ord>(map: &mut BTreeMap<K, Vec<ChangeId>>, soft: &SoftUpdates) {
    map.retain(|_, ids| {
        ids.retain(|id| soft.waits(*id));
        !ids.is_empty()
    });
}
