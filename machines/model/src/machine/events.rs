//! What CPUs did, call by call: for the reader of a run that went wrong.
//!
//! Off unless [`Options::keep_events`](crate::Options::keep_events) says how many are kept, of which the last ones
//! stay. An event stands when its call begins to act: after the CPUs that were to come first. Calls that only account
//! are none, nor are accesses to page tables, of which what is declared of mappings tells.

use crate::machine::event::{Event, EventKind, NumberedEvent};
use crate::machine::inner::Inner;
use crate::mmu::access::Site;
use pageferry_hal::{CpuId, Cycles};

impl Inner {
    /// Notes what the executing CPU does.
    #[inline]
    pub(crate) fn note(&self, what: EventKind, by: Option<Site>) {
        if self.options.keep_events > 0 && self.running.get() {
            self.keep(what, by);
        }
    }

    #[cold]
    fn keep(&self, what: EventKind, by: Option<Site>) {
        let noted = (CpuId(self.cpu() as u8), self.clock(), self.context.get(), what, by);
        let mut events = self.events.borrow_mut();
        if events.last.len() == events.room {
            events.last.pop_front();
        }
        events.last.push_back(noted);
    }

    pub(super) fn last_events(&self) -> Vec<Event> {
        let (events, contexts) = (self.events.borrow(), self.contexts.borrow());
        let event = |&(cpu, at, context, what, by): &NumberedEvent| {
            let context = contexts[context].name.clone();
            Event { cpu, at: Cycles(at), context, what, by }
        };
        events.last.iter().map(event).collect()
    }
}
