//! Words that packets name by number: each is written once, with the first packet that names it.
//!
//! The writer of the trace owns them. Nothing can fail.

use super::packet::{InternedData, InternedString};
use std::collections::HashMap;

#[derive(Default)]
pub(super) struct Words {
    events: HashMap<String, u64>,
    annotations: HashMap<String, u64>,
    values: HashMap<String, u64>,
    /// Those that no packet has brought yet.
    new: InternedData,
    begun: bool,
}

impl Words {
    /// The name of an event.
    pub(super) fn event(&mut self, word: &str) -> u64 {
        number(&mut self.events, &mut self.new.event_names, word)
    }

    /// The name of what an event tells.
    pub(super) fn annotation(&mut self, word: &str) -> u64 {
        number(&mut self.annotations, &mut self.new.debug_annotation_names, word)
    }

    /// What it tells.
    pub(super) fn value(&mut self, word: &str) -> u64 {
        number(&mut self.values, &mut self.new.debug_annotation_string_values, word)
    }

    /// True once: no packet has been written.
    pub(super) fn is_new(&mut self) -> bool {
        !std::mem::replace(&mut self.begun, true)
    }

    /// What the next packet has to bring.
    pub(super) fn take_new(&mut self) -> Option<InternedData> {
        (self.new != InternedData::default()).then(|| std::mem::take(&mut self.new))
    }
}

fn number(known: &mut HashMap<String, u64>, new: &mut Vec<InternedString>, word: &str) -> u64 {
    if let Some(number) = known.get(word) {
        return *number;
    }
    let number = known.len() as u64 + 1;
    known.insert(word.to_owned(), number);
    new.push(InternedString { iid: Some(number), name: Some(word.to_owned()) });
    number
}
