//! What is asked of a web server: its files, the order in which they were last used, and the requests to come.
//!
//! One that is made up comes from [`super::generator`]; a real one from [`super::access_log`].

use pageferry_hal::PAGE_SIZE;

/// A site's files, which go by their index, and who asks for which.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Site {
    /// Bytes of each file.
    pub(super) sizes: Vec<u64>,
    /// The files that were used before the first request here, the one used last at the end.
    pub(super) last_used: Vec<u32>,
    /// The file that is asked for next.
    pub(super) requests: Vec<u32>,
    /// Lines of a log that could not be read.
    pub(super) skipped: SkippedLines,
}

/// Lines of a log that could not be read.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct SkippedLines {
    pub(super) count: u64,
    /// The first: its number, from 1, and what is wrong with it.
    pub(super) first: Option<(u64, &'static str)>,
}

impl SkippedLines {
    /// One more.
    pub(super) fn add(&mut self, line: u64, problem: &'static str) {
        self.count += 1;
        self.first.get_or_insert((line, problem));
    }
}

impl Site {
    /// The files that `pages` pages of mappings are of after all that was used, in the order of their last use, each
    /// with its pages from which on they are mapped.
    pub(super) fn still_mapped(&self, pages: usize) -> Vec<(u32, u64)> {
        let mut left = pages as u64;
        let mut mapped = Vec::new();
        for &file in self.last_used.iter().rev() {
            if left == 0 {
                break;
            }
            let has = self.sizes[file as usize].div_ceil(PAGE_SIZE as u64);
            mapped.push((file, has.saturating_sub(left)));
            left -= has.min(left);
        }
        mapped.reverse();
        mapped
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_used_last_is_mapped() {
        let page = PAGE_SIZE as u64;
        let site = Site {
            sizes: vec![3 * page, 1, 2 * page + 1],
            last_used: vec![1, 2, 0],
            requests: Vec::new(),
            skipped: SkippedLines::default(),
        };
        assert_eq!(site.still_mapped(0), []);
        assert_eq!(site.still_mapped(2), [(0, 1)]);
        assert_eq!(site.still_mapped(4), [(2, 2), (0, 0)]);
        assert_eq!(site.still_mapped(100), [(1, 0), (2, 0), (0, 0)]);
    }
}
