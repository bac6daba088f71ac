//! What comes after a call in the recording: which process goes on, and which calls had begun when one returned.

use pageferry_trace::strace::{Answer, Call, Entry, What};
use std::collections::BTreeMap;

/// What comes after an entry.
#[derive(Clone, Copy)]
pub(super) struct Ahead<'a> {
    pub(super) entries: &'a [&'a Entry],
    pub(super) by_number: &'a ByNumber,
    /// The entry's place.
    pub(super) entry: usize,
}

impl<'a> Ahead<'a> {
    /// The next entry of a number's process that is a call, if it has not ended before.
    pub(super) fn next_call(&self, pid: u32) -> Option<usize> {
        let entries = self.by_number.of.get(&pid)?;
        let (before, behind) = entries.split_at(entries.partition_point(|(index, _)| *index <= self.entry));
        let has_ended = before.last().is_some_and(|(_, ends)| *ends);
        behind.first().filter(|(_, ends)| !has_ended && !*ends).map(|(index, _)| *index)
    }

    /// The call that the process or thread with this number had begun when this one returned.
    pub(super) fn begun(&self, pid: u32) -> Option<&'a Call> {
        let returned = self.entries[self.entry].ended;
        match self.entries.get(self.next_call(pid)?)? {
            Entry { line, what: What::Call(call), .. } if *line < returned => Some(call),
            _ => None,
        }
    }

    /// The call that the process or thread with this number had begun before this one began, and has not returned from;
    /// and its line.
    pub(super) fn under_way(&self, pid: u32) -> Option<(usize, &'a Call)> {
        let began = self.entries[self.entry].line;
        match self.entries.get(self.next_call(pid)?)? {
            Entry { line, what: What::Call(call), .. } if *line < began => Some((*line, call)),
            _ => None,
        }
    }
}

/// What each number's processes do. A number is a process's until it ends.
pub(super) struct ByNumber {
    /// By entry: true for an end.
    of: BTreeMap<u32, Vec<(usize, bool)>>,
}

impl ByNumber {
    pub(super) fn of(entries: &[&Entry]) -> ByNumber {
        let mut of: BTreeMap<u32, Vec<(usize, bool)>> = BTreeMap::new();
        for (index, entry) in entries.iter().enumerate() {
            let ends = match &entry.what {
                What::Exited => true,
                // Its end follows.
                What::Call(call) if call.answer == Answer::None => continue,
                What::Call(_) => false,
            };
            of.entry(entry.pid).or_default().push((index, ends));
        }
        ByNumber { of }
    }
}
