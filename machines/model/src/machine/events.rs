//! What CPUs did, call by call: for the reader of a run that went wrong.
//!
//! Off unless [`Options::keep_events`](crate::Options::keep_events) says how many are kept, of which the last ones
//! stay. An event stands when its call begins to act: after the CPUs that were to come first. Calls that only account
//! are none, nor are accesses to page tables, of which what is declared of mappings tells.

use crate::machine::event::{Event, EventKind, NumberedEvent};
use crate::machine::inner::Inner;
use crate::mmu::access::Site;
use crate::watchdog::hold;
use pageferry_hal::CpuId;

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
        let (cpu, context) = (CpuId(self.cpu() as u8), self.context.get());
        let noted = NumberedEvent { cpu, at: self.clock(), context, what, by };
        let mut events = hold(&self.pulse.events);
        if events.last.len() == events.room {
            events.last.pop_front();
        }
        events.last.push_back(noted);
    }

    pub(super) fn last_events(&self) -> Vec<Event> {
        let (events, contexts) = (hold(&self.pulse.events), self.contexts.borrow());
        events.last.iter().map(|noted| noted.named(&contexts[noted.context].name)).collect()
    }
}
