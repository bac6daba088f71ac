//! The pieces that the kernel keeps for a process, for requests that it makes for it.

use alloc::vec::Vec;

/// The pieces of a process: how many pages each has, and its first. At most one of each length of data, and one for
/// control.
#[derive(Clone, Debug, Default)]
pub struct PieceCache {
    pub(super) control: Option<usize>,
    pub(super) data: Vec<(usize, usize)>,
}

impl PieceCache {
    /// The piece of a kind.
    pub(super) fn of(&self, data_pages: Option<usize>) -> Option<usize> {
        match data_pages {
            None => self.control,
            Some(pages) => self.data.iter().find(|(len, _)| *len == pages).map(|(_, page)| *page),
        }
    }

    /// It is one of them, of whatever kind.
    pub(super) fn has(&self, page: usize) -> bool {
        self.control == Some(page) || self.data.iter().any(|(_, first)| *first == page)
    }

    pub(super) fn put(&mut self, data_pages: Option<usize>, page: usize) {
        match data_pages {
            None => self.control = Some(page),
            Some(pages) => self.data.push((pages, page)),
        }
    }

    pub(super) fn take(&mut self, data_pages: Option<usize>) {
        match data_pages {
            None => self.control = None,
            Some(pages) => self.data.retain(|(len, _)| *len != pages),
        }
    }
}
